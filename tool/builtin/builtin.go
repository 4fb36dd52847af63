// Package builtin holds the tools that come with the harness: read, write, edit, ls, glob, grep, bash,
// todo_write and fetch.
//
// The file tools work inside directories, the workspace first of all, and go through os.Root: a path
// that leaves it, by .. or by a link, is refused by the system calls and not by looking at strings.
// bash is a shell and can do whatever its user can; what keeps it in check is the approval policy.
package builtin

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
)

// The codes of the results of these tools, beside those of package tool.
const (
	CodeOutside  = "OUTSIDE_WORKSPACE" // a path leads out of the workspace
	CodeNotFound = "NOT_FOUND"
	CodeNotText  = "NOT_TEXT"   // a binary file, or no regular file
	CodeNoMatch  = "NO_MATCH"   // edit: the text to replace is not there, or not once
	CodeExit     = "EXIT_CODE"  // bash: the command ended with another code than 0
	CodeHTTP     = "HTTP_ERROR" // fetch: no answer, or one that is no success
)

// Options says where and how the tools work. Root is needed, the rest has defaults.
type Options struct {
	Root string   // the workspace: an absolute directory
	Also []string // further absolute directories in which the file tools may work

	// Env is the environment of commands, in the form of os.Environ. Variables that look like secrets (by
	// the words of their names, or a password in a URL) are dropped, unless KeepEnv names them.
	Env     []string
	KeepEnv []string

	// HTTP is the client of fetch; without it there is no such tool. Its redirect policy is not used.
	HTTP *http.Client

	BashTimeout    time.Duration // of a command that asks for none; default 2 minutes
	BashMaxTimeout time.Duration // the most that a command may ask for; default 10 minutes
	BashOutput     int           // bytes of output kept, half of it head, half tail; default 1 MiB
	BashGrace      time.Duration // between SIGTERM and SIGKILL, and for what still holds the output after the end; default 2 s
}

// New returns the tools for a workspace. It fails when a directory does not exist.
func New(o Options) ([]tool.Definition, error) {
	setDefault(&o.BashTimeout, 2*time.Minute)
	setDefault(&o.BashMaxTimeout, 10*time.Minute)
	setDefault(&o.BashOutput, 1<<20)
	setDefault(&o.BashGrace, 2*time.Second)
	w := &workspace{}
	for _, dir := range append([]string{o.Root}, o.Also...) {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("builtin: the directory %q is not absolute", dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("builtin: %w", err)
		}
		if fi, err := os.Stat(real); err != nil || !fi.IsDir() {
			return nil, fmt.Errorf("builtin: %s is not a directory", dir)
		}
		w.areas = append(w.areas, area{path: filepath.Clean(dir), real: real})
	}
	defs := []tool.Definition{
		readTool(w), writeTool(w), editTool(w), lsTool(w), globTool(w), grepTool(w), bashTool(o), todoTool(),
	}
	if o.HTTP != nil {
		defs = append(defs, fetchTool(o.HTTP))
	}
	return defs, nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// pathSubject is the Subject of tools with an argument "path".
func pathSubject(w *workspace) func(jsontext.Value) string {
	return func(args jsontext.Value) string {
		var a struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(args, &a) != nil {
			return ""
		}
		return w.display(a.Path)
	}
}

func meta(v any) jsontext.Value {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil
	}
	return b
}
