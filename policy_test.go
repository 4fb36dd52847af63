package strandline

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/strandline-dev/strandline/"

// arrows is the import graph that docs/architecture.md draws: which packages of this module a package may
// import, and which modules from outside ("std" is always allowed). A package that is not listed fails.
var arrows = map[string]struct{ in, out string }{
	"":                    {"", ""},
	"message":             {"", json},
	"brief":               {"message", "github.com/clipperhouse/uax29/v2/graphemes"},
	"session":             {"message", json},
	"session/sessiontest": {"session message", json + " pgregory.net/rapid"},
	"view":                {"session message", json},
	"view/viewtest":       {"session message view", json},
	"record":              {"session", json},
	"vfs":                 {"", "golang.org/x/sys"},
	"store":               {"session", json},
	"storetest":           {"session store record message", json},
	"memstore":            {"session store record", json},
	"filestore":           {"session store record vfs", json + " golang.org/x/sync github.com/klauspost/compress"},
	"live":                {"session", ""},
	"keeper":              {"session store live", json},
	"llm":                 {"message", json},
	"llm/script":          {"message llm", json},
	"llm/fake":            {"message llm llm/script", json},
	"llm/catalog":         {"llm", "charm.land/catwalk"},
	"llm/llmtest":         {"llm", ""},
	"llm/openai":          {"message llm", json + " github.com/openai/openai-go"},
	"tool":                {"message", json + " github.com/google/jsonschema-go"},
	"tool/builtin":        {"message tool", json + " github.com/bmatcuk/doublestar"},
	"agent":               {"message brief session view live llm tool", json + " golang.org/x/sync"},
	"compact":             {"message session view llm meter", json},
	"meter":               {"message session view llm", json},
	"subagent":            {"message session store llm tool agent meter", json},
	"export":              {"brief session store record view message", json},
	"search/searchtest":   {"message session store", json + " pgregory.net/rapid"},
	"recall":              {"brief session store search redact tool", json},
	"redact":              {"", json},
	"search":              {"message session store", json + " golang.org/x/text"},
	"telemetry":           {"message session", json + " go.opentelemetry.io/otel go.opentelemetry.io/collector/pdata google.golang.org/protobuf/encoding/protowire github.com/go-logr/logr"},
	"telemetry/otlptest":  {"", "go.opentelemetry.io/proto/otlp google.golang.org/protobuf"},
	"config":              {"tool", "github.com/pelletier/go-toml"},
	"importer":            {"session store record", json + " github.com/klauspost/compress"},
	"importer/dsh":        {"message session record importer", json},
	"importer/native":     {"session record importer", json},
	"index":               {"session message brief store search", json + " golang.org/x/sync modernc.org/sqlite"},
	"app":                 {"*", json + " golang.org/x/sync golang.org/x/term golang.org/x/sys"},
	"bench":               {"*", json + " golang.org/x/sync"},
	"demo":                {"*", json},
	"scenario":            {"", ""},
	"cmd/strand":          {"*", json + " github.com/spf13/cobra github.com/spf13/pflag golang.org/x/term golang.org/x/sys"},
}

const json = "github.com/go-json-experiment/json"

// outside are the packages that may touch the clock, randomness and the environment.
var outside = []string{"app", "bench", "cmd/strand", "vfs", "demo"}

type source struct {
	path, pkg string
	test      bool
	file      *ast.File
	text      []byte
	lines     int
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(p, ".go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(p))
		if pkg == "." {
			pkg = ""
		}
		out = append(out, source{
			path: p, pkg: pkg, test: strings.HasSuffix(p, "_test.go"), file: f, text: text,
			lines: bytes.Count(text, []byte("\n")),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestArrows keeps the import graph: arrows point one way, and only the packages that are meant to know a
// dependency know it.
func TestArrows(t *testing.T) {
	for _, s := range sources(t) {
		allowed, ok := arrows[s.pkg]
		if !ok {
			t.Errorf("%s: package %s is not in the import graph of policy_test.go and docs/architecture.md", s.path, s.pkg)
			continue
		}
		if s.test {
			continue
		}
		for _, im := range s.file.Imports {
			p, _ := strconv.Unquote(im.Path.Value)
			switch in, own := strings.CutPrefix(p, module); {
			case own && allowed.in != "*" && !slices.Contains(strings.Fields(allowed.in), in):
				t.Errorf("%s imports %s: that arrow is not in the graph", s.path, in)
			case !own && strings.Contains(strings.Split(p, "/")[0], ".") &&
				!slices.ContainsFunc(strings.Fields(allowed.out), func(m string) bool { return p == m || strings.HasPrefix(p, m+"/") }):
				t.Errorf("%s imports %s: that module does not belong there", s.path, p)
			}
		}
	}
}

// TestPurity keeps clock, randomness and environment out of everything but the edge, and the name of the
// first bracket owner out of the core.
func TestPurity(t *testing.T) {
	banned := map[string][]string{
		"time":         {"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc"},
		"os":           {"Getenv", "LookupEnv", "Environ", "Hostname", "Getpid", "UserHomeDir", "Getwd"},
		"math/rand":    {"*"},
		"math/rand/v2": {"*"},
		"crypto/rand":  {"*"},
	}
	core := []string{"message", "session", "view", "record", "store", "live", "keeper", "agent"}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if slices.Contains(core, s.pkg) && bytes.Contains(s.text, []byte("compact"+"/")) {
			t.Errorf("%s names compact"+"/: the core closes brackets of no package and knows none", s.path)
		}
		if slices.Contains(outside, s.pkg) || strings.HasSuffix(s.pkg, "test") {
			continue
		}
		names := map[string]string{}
		for _, im := range s.file.Imports {
			p, _ := strconv.Unquote(im.Path.Value)
			if banned[p] == nil {
				continue
			}
			name := path.Base(strings.TrimSuffix(p, "/v2"))
			if im.Name != nil {
				name = im.Name.Name
			}
			names[name] = p
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil {
				if list := banned[names[id.Name]]; slices.Contains(list, sel.Sel.Name) || slices.Contains(list, "*") {
					t.Errorf("%s uses %s.%s: inject it", s.path, id.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestHouseStyle keeps files readable and packages introduced.
func TestHouseStyle(t *testing.T) {
	story := map[string]bool{}
	for _, s := range sources(t) {
		if s.lines > 700 {
			t.Errorf("%s has %d lines: split it by what it does", s.path, s.lines)
		}
		if _, seen := story[s.pkg]; !seen && !s.test {
			story[s.pkg] = false
		}
		if s.file.Doc != nil && !s.test {
			story[s.pkg] = true
		}
	}
	for pkg, ok := range story {
		if !ok {
			t.Errorf("package %q has no package comment", pkg)
		}
	}
}

// TestDocs keeps the documents that the README promises, and that the graph is drawn in one of them.
func TestDocs(t *testing.T) {
	arch, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range arrows {
		if pkg != "" && !bytes.Contains(arch, []byte("`"+pkg+"`")) {
			t.Errorf("docs/architecture.md does not mention the package `%s`", pkg)
		}
	}
	deps, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) == 2 && strings.Contains(f[0], ".") && strings.HasPrefix(f[1], "v") && !strings.Contains(line, "indirect") {
			if !bytes.Contains(deps, []byte("`"+f[0]+"`")) {
				t.Errorf("docs/dependencies.md gives no reason for %s", f[0])
			}
		}
		if strings.HasPrefix(strings.TrimSpace(line), "replace") {
			t.Errorf("go.mod: %s: no replace directives", strings.TrimSpace(line))
		}
	}
}
