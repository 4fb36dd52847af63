package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/tool"
)

// bench is a workspace with files in it and the tools over it.
type bench struct {
	t    *testing.T
	root string
	set  tool.Set
}

func newBench(t *testing.T, files map[string]string, opts ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, root: filepath.Join(t.TempDir(), "ws")}
	if err := os.Mkdir(b.root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(b.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Root: b.root, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
	for _, f := range opts {
		f(&o)
	}
	defs, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if b.set, err = tool.NewSet(defs...); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) prepare(name string, args any) tool.Prepared {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	p, bad := b.set.Prepare("c1", name, string(raw))
	if bad != nil {
		b.t.Fatalf("%s %s: %s", name, raw, text(*bad))
	}
	return p
}

type args = map[string]any

func (b *bench) run(name string, a args) tool.Result {
	b.t.Helper()
	return b.prepare(name, a).Run(b.t.Context(), tool.RunOptions{})
}

// ok runs a call that has to succeed and returns its text.
func (b *bench) ok(name string, a args) string {
	b.t.Helper()
	r := b.run(name, a)
	if r.IsError {
		b.t.Fatalf("%s %v: %s %s", name, a, r.Code, text(r))
	}
	return text(r)
}

// fails runs a call that has to fail with a code and a text.
func (b *bench) fails(name string, a args, code, says string) {
	b.t.Helper()
	r := b.run(name, a)
	if !r.IsError || r.Code != code || !strings.Contains(text(r), says) {
		b.t.Errorf("%s %v: got %v %s %q, want %s %q", name, a, r.IsError, r.Code, text(r), code, says)
	}
}

func (b *bench) file(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func text(r tool.Result) string { return message.Message{Content: r.Content}.PlainText() }

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestRead(t *testing.T) {
	var long strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&long, "%d\n", i+1)
	}
	b := newBench(t, map[string]string{
		"a.txt": "one\r\ntwo\nthree", "empty": "", "bin": "a\x00b", "latin": "caf\xe9 \xff\n", "long": long.String(),
		"wide": strings.Repeat("é", 3000) + "\nend\n", "d/x": "1", "huge": strings.Repeat(strings.Repeat("y", 1999)+"\n", 100),
	})
	want(t, b.ok("read", args{"path": "a.txt"}), "     1\tone\n     2\ttwo\n     3\tthree\n")
	want(t, b.ok("read", args{"path": "a.txt", "offset": 2, "limit": 1}), "     2\ttwo\n[there is more; go on with offset 3]")
	want(t, b.ok("read", args{"path": filepath.Join(b.root, "d/../a.txt"), "offset": 3}), "     3\tthree\n")
	want(t, b.ok("read", args{"path": "empty"}), "(the file is empty)")
	want(t, b.ok("read", args{"path": "latin"}), "     1\tcaf\uFFFD \uFFFD\n")
	if got := b.ok("read", args{"path": "long"}); !strings.HasSuffix(got, "  2000\t2000\n[there is more; go on with offset 2001]") {
		t.Errorf("long: ends with %q", got[len(got)-100:])
	}
	if got := b.ok("read", args{"path": "wide"}); !utf8.ValidString(got) || strings.ContainsRune(got, '\uFFFD') ||
		!strings.Contains(got, "[... 4000 more bytes in this line]\n     2\tend\n") {
		t.Errorf("wide: %q", got[len(got)-100:])
	}
	if got := b.ok("read", args{"path": "huge"}); len(got) > tool.DefaultLimit || !strings.HasSuffix(got, "go on with offset 16]") {
		t.Errorf("huge: %d bytes, ends with %q", len(got), got[len(got)-60:])
	}
	// Numbers are what JSON Schema takes them for.
	want(t, b.ok("read", args{"path": "a.txt", "offset": jsontext.Value("2.0"), "limit": jsontext.Value("1e0")}), "     2\ttwo\n[there is more; go on with offset 3]")
	b.fails("read", args{"path": "a.txt", "offset": jsontext.Value("1e300")}, tool.CodeInvalidArgs, "1e300 is not an integer that can be used here")
	b.fails("read", args{"path": "bin"}, CodeNotText, "binary")
	b.fails("read", args{"path": "d"}, CodeNotText, "use ls")
	b.fails("read", args{"path": "nope"}, CodeNotFound, "nope does not exist")
	b.fails("read", args{"path": "a.txt", "offset": 9}, tool.CodeFailed, "has only 3 lines")
	b.fails("read", args{"path": "a\x00b"}, tool.CodeInvalidArgs, "zero byte")
}

// spent is a context that ends after n looks at it.
type spent struct {
	context.Context
	n int
}

func (s *spent) Err() error {
	if s.n--; s.n < 0 {
		return context.Canceled
	}
	return nil
}

// A line can be as long as a disk: reading it, and what lies behind the last line that is shown, can be ended.
func TestReadLongLineEnds(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "long")
	if err := os.WriteFile(path, []byte(strings.Repeat("line\n", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip("no sparse files here: ", err)
	}
	w := &workspace{areas: []area{{path: root, real: root}}}
	p, err := w.find("long")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if _, err := p.read(&spent{t.Context(), 5}, 1990, 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("reading the long line: %v", err)
	}
	r, err := p.read(&spent{t.Context(), 5}, 1, 2000)
	if err != nil || !strings.HasSuffix(text(r), "[there is more; go on with offset 2001]") {
		t.Errorf("reading up to the long line: %v, it ends with %q", err, text(r)[max(0, len(text(r))-100):])
	}
}

func TestReadDoesNotBlock(t *testing.T) {
	b := newBench(t, nil)
	if err := syscall.Mkfifo(filepath.Join(b.root, "pipe"), 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	b.fails("read", args{"path": "pipe"}, CodeNotText, "not a regular file")
	b.fails("write", args{"path": "pipe", "content": "x"}, CodeNotText, "not a regular file")
}

// A path that leaves the workspace is refused by every file tool, however it leaves.
func TestOutside(t *testing.T) {
	b := newBench(t, map[string]string{"in/a": "inside"})
	outside := filepath.Join(filepath.Dir(b.root), "secret")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte("treasure"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"rel": "../secret", "abs": outside, "file": "../secret/f", "absfile": filepath.Join(outside, "f"), "dangling": "../secret/new",
		"insideabs": filepath.Join(b.root, "in"), "insiderel": "in",
	} {
		if err := os.Symlink(target, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"../secret/f", outside + "/f", "in/../../secret/f", "rel/f", "abs/f", "file", "absfile", "/etc/passwd", b.root + "/../secret/f"} {
		b.fails("read", args{"path": path}, CodeOutside, "outside the workspace")
		b.fails("write", args{"path": path, "content": "x"}, CodeOutside, "outside the workspace")
		b.fails("edit", args{"path": path, "oldString": "treasure", "newString": "x"}, CodeOutside, "outside the workspace")
		b.fails("grep", args{"path": path, "pattern": "treasure"}, CodeOutside, "outside the workspace")
	}
	for _, path := range []string{"..", "rel", "abs", outside, b.root + "2"} {
		b.fails("ls", args{"path": path}, CodeOutside, "outside the workspace")
		b.fails("glob", args{"path": path, "pattern": "*"}, CodeOutside, "outside the workspace")
	}
	b.fails("write", args{"path": "rel/new", "content": "x"}, CodeOutside, "outside the workspace")
	b.fails("write", args{"path": "abs/new", "content": "x"}, CodeOutside, "outside the workspace")
	b.fails("write", args{"path": "dangling", "content": "x"}, CodeNotFound, "link to nothing")
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("the other directory has %d entries", len(entries))
	}
	if got := b.ok("grep", args{"pattern": "treasure"}); !strings.HasPrefix(got, "No line matches") {
		t.Errorf("grep went through a link: %q", got)
	}
	// Links that stay inside are followed, also absolute ones.
	want(t, b.ok("read", args{"path": "insiderel/a"}), "     1\tinside\n")
	want(t, b.ok("read", args{"path": "insideabs/a"}), "     1\tinside\n")
	b.ok("write", args{"path": "insideabs/b", "content": "new"})
	want(t, b.file("in/b"), "new")
}

func TestAlso(t *testing.T) {
	other := t.TempDir()
	b := newBench(t, nil, func(o *Options) { o.Also = []string{other} })
	path := filepath.Join(other, "x")
	b.ok("write", args{"path": path, "content": "1"})
	want(t, b.ok("ls", args{"path": other}), "x\t1\n")
	want(t, b.ok("glob", args{"path": other, "pattern": "*"}), path+"\n")
	if b.prepare("write", args{"path": path, "content": ""}).Edits() {
		t.Error("an edit outside the workspace counts as one inside")
	}
}

func TestWrite(t *testing.T) {
	b := newBench(t, map[string]string{"run.sh": "old", "target": "t", "d/x": ""})
	if err := os.Chmod(filepath.Join(b.root, "run.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", filepath.Join(b.root, "link")); err != nil {
		t.Fatal(err)
	}
	want(t, b.ok("write", args{"path": "run.sh", "content": "new\nx"}), "Replaced run.sh (5 bytes, 2 lines).")
	fi, err := os.Stat(filepath.Join(b.root, "run.sh"))
	if err != nil || fi.Mode().Perm() != 0o751 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	want(t, b.file("run.sh"), "new\nx")
	want(t, b.ok("write", args{"path": "p/q/r.txt", "content": "deep\n"}), "Created p/q/r.txt (5 bytes, 1 lines).")
	want(t, b.file("p/q/r.txt"), "deep\n")
	b.ok("write", args{"path": "link", "content": "through"})
	want(t, b.file("target"), "through")
	if fi, err := os.Lstat(filepath.Join(b.root, "link")); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
	b.fails("write", args{"path": "d", "content": ""}, CodeNotText, "is a directory")
	b.fails("write", args{"path": "", "content": ""}, CodeNotText, "is a directory")
	b.fails("write", args{"path": "run.sh/x", "content": ""}, tool.CodeFailed, "not a directory")
	// No temporary file stays behind, and one that another process left is not touched.
	if err := os.WriteFile(filepath.Join(b.root, "d", ".x.strand0"), []byte("stray"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.ok("write", args{"path": "d/x", "content": "y"})
	want(t, b.ok("ls", args{"path": "d"}), ".x.strand0\t5\nx\t1\n")
	want(t, b.ok("ls", args{}), "d/\nlink -> target\np/\nrun.sh\t5\ntarget\t7\n")
}

func TestEdit(t *testing.T) {
	b := newBench(t, map[string]string{
		"a": "one\ntwo\nthree\ntwo\n", "crlf": "a\r\nb\r\nc\r\n", "tabs": "if x {\n\treturn  1\n}\n", "bin": "a\x00b", "raw": "x\xffy one\n", "flat": "x",
	})
	b.fails("edit", args{"path": "a", "oldString": "two", "newString": "2"}, CodeNoMatch, "occurs 2 times in a (lines 2, 4)")
	b.fails("edit", args{"path": "a", "oldString": "four", "newString": "2"}, CodeNoMatch, "does not occur in a; nothing was changed")
	b.fails("edit", args{"path": "tabs", "oldString": "if x {\n    return 1\n}", "newString": ""}, CodeNoMatch, "Line 1 has the same words with other white space")
	b.fails("edit", args{"path": "a", "oldString": "one\nTWO", "newString": ""}, CodeNoMatch, "Its first line occurs in line 1")
	b.fails("edit", args{"path": "a", "oldString": "one", "newString": "one"}, tool.CodeInvalidArgs, "are the same")
	b.fails("edit", args{"path": "bin", "oldString": "a", "newString": "b"}, CodeNotText, "binary")
	b.fails("edit", args{"path": "nope", "oldString": "a", "newString": "b"}, CodeNotFound, "does not exist")
	want(t, b.file("a"), "one\ntwo\nthree\ntwo\n")

	want(t, b.ok("edit", args{"path": "a", "oldString": "one\ntwo", "newString": "1\n2"}),
		"Replaced 1 occurrence in a. It now reads:\n     1\t1\n     2\t2\n     3\tthree\n     4\ttwo\n")
	b.ok("edit", args{"path": "a", "oldString": "t", "newString": "T", "replaceAll": true})
	want(t, b.file("a"), "1\n2\nThree\nTwo\n")
	b.ok("edit", args{"path": "crlf", "oldString": "a\nb", "newString": "x\ny\nz"})
	want(t, b.file("crlf"), "x\r\ny\r\nz\r\nc\r\n")
	b.ok("edit", args{"path": "crlf", "oldString": "y", "newString": "y\nnew"}) // no line end in oldString to go by
	want(t, b.file("crlf"), "x\r\ny\r\nnew\r\nz\r\nc\r\n")
	b.ok("edit", args{"path": "flat", "oldString": "x", "newString": "x\ny"})
	want(t, b.file("flat"), "x\ny")
	// Bytes that are no text are left as they are.
	b.ok("edit", args{"path": "raw", "oldString": "one", "newString": "1"})
	want(t, b.file("raw"), "x\xffy 1\n")
}

func TestEditsInside(t *testing.T) {
	b := newBench(t, map[string]string{"a": "", ".git/hooks/x": "", "sub/.GIT/config": ""})
	for name, target := range map[string]string{"out": "..", "g": ".git", "dangling": "/nowhere"} {
		if err := os.Symlink(target, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		"a": true, "new/deep/file": true, b.root + "/a": true, ".gitignore": true,
		"../x": false, "/etc/passwd": false, "out/x": false, "dangling": false,
		".git/hooks/pre-commit": false, "g/hooks/pre-commit": false, "sub/.GIT/config": false, "new/.git/x": false,
	} {
		if got := b.prepare("write", args{"path": path, "content": ""}).Edits(); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if got := b.prepare("write", args{"path": b.root + "/x/../a", "content": ""}).Subject(); got != "a" {
		t.Errorf("subject %q", got)
	}
}

func TestGlob(t *testing.T) {
	b := newBench(t, map[string]string{
		"b.go": "", "a.go": "", "x/c.go": "", "x/y/d.go": "", "x/y/d.txt": "", ".git/e.go": "",
		".gitignore": "# comment\nbuild/\n*.log\n!keep.log\n/top\n", "build/f.go": "", "x/build/g.go": "", "z.log": "", "keep.log": "", "top": "", "x/top": "",
		"x/.gitignore": "y/*.txt\r\n", "{b}": "",
	})
	want(t, b.ok("glob", args{"pattern": "*.go"}), "a.go\nb.go\nx/c.go\nx/y/d.go\n")
	want(t, b.ok("glob", args{"pattern": "./*/*.go"}), "x/c.go\n")
	want(t, b.ok("glob", args{"pattern": "**/*.{txt,log}"}), "keep.log\n")
	want(t, b.ok("glob", args{"pattern": "**/*.{txt,log}", "ignored": true}), "keep.log\nx/y/d.txt\nz.log\n")
	want(t, b.ok("glob", args{"pattern": "top"}), "x/top\n")
	want(t, b.ok("glob", args{"pattern": "*", "path": "x/y"}), "x/y/d.go\n")
	want(t, b.ok("glob", args{"pattern": "*", "path": "build"}), "build/f.go\n")
	want(t, b.ok("glob", args{"pattern": "nope"}), "No file matches nope.")
	b.fails("glob", args{"pattern": "[a"}, tool.CodeInvalidArgs, "not valid")
	b.fails("glob", args{"pattern": "*", "path": "nope"}, CodeNotFound, "does not exist")
}

func TestGrep(t *testing.T) {
	b := newBench(t, map[string]string{
		"a.go": "alpha\nbeta\ngamma\ndelta\nepsilon\nzeta\neta\ntheta\n", "b.txt": "BETA\r\n", "bin": "beta\x00", "d/c.go": "x beta y\xff\n",
		".git/x": "beta", "skip.log": "beta", ".gitignore": "*.log\n",
	})
	want(t, b.ok("grep", args{"pattern": "be.a"}), "a.go:2: beta\nd/c.go:1: x beta y\uFFFD\n")
	want(t, b.ok("grep", args{"pattern": "^beta$", "ignoreCase": true}), "a.go:2: beta\nb.txt:1: BETA\n")
	want(t, b.ok("grep", args{"pattern": "beta", "glob": "d/*.go"}), "d/c.go:1: x beta y\uFFFD\n")
	want(t, b.ok("grep", args{"pattern": "beta", "path": "d"}), "d/c.go:1: x beta y\uFFFD\n")
	want(t, b.ok("grep", args{"pattern": "beta", "path": "skip.log"}), "skip.log:1: beta\n")
	want(t, b.ok("grep", args{"pattern": "beta", "filesOnly": true}), "a.go\nd/c.go\n")
	want(t, b.ok("grep", args{"pattern": "beta|eta$", "path": "a.go", "context": 1}),
		"a.go-1- alpha\na.go:2: beta\na.go-3- gamma\n--\na.go-5- epsilon\na.go:6: zeta\na.go:7: eta\na.go:8: theta\n")
	want(t, b.ok("grep", args{"pattern": "a", "path": "a.go", "limit": 2}),
		"a.go:1: alpha\na.go:2: beta\n[there may be more; make the pattern, the path or the glob narrower, or raise the limit]\n")
	want(t, b.ok("grep", args{"pattern": "nope"}), "No line matches.\n")
	b.fails("grep", args{"pattern": "(?=x)"}, tool.CodeInvalidArgs, "not valid")
}

func TestListingIsBounded(t *testing.T) {
	files := map[string]string{}
	for i := range 3000 {
		files[fmt.Sprintf("a-file-name-%04d", i)] = "match\n"
	}
	b := newBench(t, files)
	for name, a := range map[string]args{"ls": {}, "glob": {"pattern": "*"}, "grep": {"pattern": "match", "limit": 1000}} {
		got := b.ok(name, a)
		if len(got) > tool.DefaultLimit || !strings.Contains(got[len(got)-120:], "more") || strings.Contains(got, "left out") {
			t.Errorf("%s: %d bytes, ends with %q", name, len(got), got[len(got)-120:])
		}
	}
}

func TestTodoWrite(t *testing.T) {
	b := newBench(t, nil)
	r := b.run("todo_write", args{"todos": []args{{"content": "a \"b\"", "status": "in_progress"}, {"content": "c", "status": "pending"}}})
	want(t, text(r), "The list has 2 items now.\n[>] a \"b\"\n[ ] c\n")
	if len(r.Records) != 1 || r.Records[0].Type != "todo/write" {
		t.Fatalf("records: %+v", r.Records)
	}
	want(t, string(r.Records[0].Data), `{"todos":[{"content":"a \"b\"","status":"in_progress"},{"content":"c","status":"pending"}]}`)
	if r := b.run("todo_write", args{"todos": []args{}}); string(r.Records[0].Data) != `{"todos":[]}` {
		t.Errorf("empty list: %s", r.Records[0].Data)
	}
	if _, bad := b.set.Prepare("c", "todo_write", `{"todos":[{"content":"a","status":"doing"}]}`); bad == nil {
		t.Error("an unknown status was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"", "relative", file, file + "-nope"} {
		if _, err := New(Options{Root: root}); err == nil {
			t.Errorf("%q: accepted", root)
		}
	}
}
