package app_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/app"
)

// tree makes files (a path that ends in / is a directory, "-> X" a link) in a fresh directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		to, link := strings.CutPrefix(text, "-> ")
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case link:
			err = os.Symlink(strings.ReplaceAll(to, "ROOT", root), path)
		default:
			err = os.WriteFile(path, []byte(strings.ReplaceAll(text, "ROOT", root)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// repo adds the least that makes a git directory.
func repo(files map[string]string, dir string) map[string]string {
	files[dir+"/HEAD"] = "ref: refs/heads/main\n"
	files[dir+"/objects/"], files[dir+"/refs/"] = "", ""
	return files
}

func TestProjectRoot(t *testing.T) {
	linked := func(files map[string]string, back string) map[string]string {
		files["main/.git/worktrees/w/gitdir"] = back
		files["main/.git/worktrees/w/commondir"] = "../..\n"
		return repo(files, "main/.git")
	}
	for name, tt := range map[string]struct {
		files      map[string]string
		dir        string
		root, tree string // tree "": root
	}{
		"no git":            {map[string]string{"a/b/": ""}, "a/b", "a/b", ""},
		"gone":              {nil, "a/b", "a/b", ""},
		"gone behind link":  {map[string]string{"a/": "", "l": "-> a"}, "l/b", "a/b", ""},
		"link":              {map[string]string{"a/b/": "", "l": "-> a/b"}, "l", "a/b", ""},
		"repository":        {repo(map[string]string{"a/b/c/": ""}, "a/.git"), "a/b/c", "a", ""},
		"link into it":      {repo(map[string]string{"a/b/c/": "", "l": "-> a/b"}, "a/.git"), "l/c", "a", ""},
		"in its .git":       {repo(map[string]string{"a/.git/hooks/": ""}, "a/.git"), "a/.git/hooks", "a", ""},
		"bare":              {repo(map[string]string{"a.git/x/": ""}, "a.git"), "a.git/x", "a.git", ""},
		"empty .git":        {map[string]string{"a/.git/": "", "a/b/": ""}, "a/b", "a", ""},
		"noise in .git":     {map[string]string{"a/.git": "\x00\xff\n\n"}, "a", "a", ""},
		"huge .git":         {map[string]string{"a/.git": "gitdir: " + strings.Repeat("x/", 1<<16)}, "a", "a", ""},
		".git to nowhere":   {map[string]string{"a/.git": "gitdir: ../gone/worktrees/x\n"}, "a", "a", ""},
		".git to itself":    {map[string]string{"a/.git": "gitdir: .git\n"}, "a", "a", ""},
		".git is a loop":    {map[string]string{"a/.git": "-> .git", "a/b/": ""}, "a/b", "a", ""},
		"submodule":         {repo(repo(map[string]string{"a/s/.git": "gitdir: ../.git/modules/s\n"}, "a/.git"), "a/.git/modules/s"), "a/s", "a/s", ""},
		"linked tree":       {linked(map[string]string{"w/.git": "gitdir: ROOT/main/.git/worktrees/w\n", "w/x/": ""}, "ROOT/w/.git\n"), "w/x", "main", "w"},
		"relative paths":    {linked(map[string]string{"w/.git": "gitdir: ../main/.git/worktrees/w\n"}, "../../../../w/.git\n"), "w", "main", "w"},
		"CR LF":             {linked(map[string]string{"w/.git": "gitdir: ../main/.git/worktrees/w\r\n"}, "ROOT/w/.git\r\n"), "w", "main", "w"},
		"tree of a bare":    {repo(map[string]string{"b.git/worktrees/w/gitdir": "ROOT/w/.git\n", "w/.git": "gitdir: ROOT/b.git/worktrees/w\n"}, "b.git"), "w", "b.git", "w"},
		"named by another":  {linked(map[string]string{"w/.git": "gitdir: ../main/.git/worktrees/w\n", "other/.git": "gitdir: ../main/.git/worktrees/w\n"}, "ROOT/w/.git\n"), "other", "other", ""},
		"not named back":    {linked(map[string]string{"w/.git": "gitdir: ../main/.git/worktrees/w\n"}, "\n"), "w", "w", ""},
		"the repository":    {linked(map[string]string{"w/.git": "gitdir: ../main/.git\n"}, "ROOT/w/.git\n"), "w", "w", ""},
		"own admin, theirs": {linked(map[string]string{"w/.git": "gitdir: g/worktrees/x\n", "w/g/worktrees/x/gitdir": "ROOT/w/.git\n", "w/g/worktrees/x/commondir": "ROOT/main/.git\n"}, "\n"), "w", "w", ""},
		"link to theirs":    {linked(map[string]string{"w/.git": "gitdir: g/worktrees/w\n", "w/g": "-> ROOT/main/.git"}, "\n"), "w", "w", ""},
		".git a link":       {linked(map[string]string{"w/.git": "-> ../main/.git"}, "\n"), "w", "w", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, tt.files)
			got := app.ProjectOf(filepath.Join(dir, tt.dir))
			if tt.tree == "" {
				tt.tree = tt.root
			}
			if want := filepath.Join(dir, tt.root); got.Root != want {
				t.Errorf("root %s, want %s", got.Root, want)
			}
			if want := filepath.Join(dir, tt.tree); got.Tree != want {
				t.Errorf("tree %s, want %s", got.Tree, want)
			}
			for _, name := range []string{got.Root, got.Tree, filepath.Join(dir, tt.dir)} {
				if !slices.Contains(got.Names, name) {
					t.Errorf("%s is not among the names %q", name, got.Names)
				}
			}
		})
	}
}

// A pipe in the place of .git holds nobody up.
func TestProjectPipe(t *testing.T) {
	dir := tree(t, map[string]string{"a/": ""})
	if err := syscall.Mkfifo(filepath.Join(dir, "a", ".git"), 0o600); err != nil {
		t.Skip(err)
	}
	if got := app.ProjectOf(filepath.Join(dir, "a")); got.Root != filepath.Join(dir, "a") {
		t.Errorf("%+v", got)
	}
}

func TestProjectID(t *testing.T) {
	dir := tree(t, repo(map[string]string{"one/sub/": "", "plain/": ""}, "one/.git"))
	at := func(name string) app.Project { return app.ProjectOf(filepath.Join(dir, name)) }
	one, plain := at("one/sub"), at("plain")
	if one.ID == "" {
		t.Skip("this file system does not tell when a directory was made")
	}
	if one.ID == plain.ID {
		t.Fatalf("two directories have the id %s", one.ID)
	}
	if err := errors.Join(os.Rename(filepath.Join(dir, "one"), filepath.Join(dir, "two")), os.Rename(filepath.Join(dir, "plain"), filepath.Join(dir, "moved"))); err != nil {
		t.Fatal(err)
	}
	if got := at("two/sub"); got.ID != one.ID || got.Root == one.Root {
		t.Errorf("renamed: %+v, was %+v", got, one)
	}
	if got := at("moved"); got.ID != plain.ID {
		t.Errorf("renamed: %+v, was %+v", got, plain)
	}
	if err := os.MkdirAll(filepath.Join(dir, "one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := at("one"); got.ID == one.ID {
		t.Errorf("another directory in its place has its id %s", got.ID)
	}
}

// What git itself makes is understood: linked work trees, also renamed ones, a submodule, a clone.
func TestProjectRealGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git here")
	}
	dir := tree(t, nil)
	for _, args := range []string{
		"init -q main", "-C main commit -q --allow-empty -m one", "-C main worktree add -q ../linked", "clone -q main clone",
		"init -q --bare bare.git", "-C main -c protocol.file.allow=always submodule --quiet add ../clone sub",
	} {
		cmd := exec.CommandContext(t.Context(), git, strings.Fields(args)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	for name, want := range map[string]string{"main": "main", "linked": "main", "clone": "clone", "bare.git": "bare.git", "bare.git/refs": "bare.git", "main/sub": "main/sub"} {
		if got := app.ProjectOf(filepath.Join(dir, name)); got.Root != filepath.Join(dir, want) {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
}
