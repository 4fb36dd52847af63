// Package app wires everything: the clock, ids, the environment and the file system meet the packages that
// are free of them here, and nowhere else. What it offers are the verbs of the product (list, show, fork,
// undo, run ..) as plain functions with typed results; the command gives them flags, text and exit codes.
//
// Reading verbs open nothing for writing and create nothing, not even the store's directory. No session is
// stored before its first accepted input.
//
// The files, in reading order:
//
//	app.go       Open; the clock and ids
//	root.go      where the store is
//	project.go   what a project is
//	resolve.go   from what a person types to one session
//	list.go      rows of a list
//	feed.go      the index as sessions are worked on
//	inspect.go   a session as it is stored, or as it was then
//	tail.go      a session as it grows
//	takeover.go  asking whoever holds a session to let it go
//	doctor.go    what is wrong, and what is only worth knowing
//	fork.go      forks, in this store and in another one
//	change.go    undo, redo, title
//	telemetry.go what tells a receiver of the work
//	compact.go   compaction: its numbers, what begins it, what a person asks of it
//	remove.go    into the trash, back, for good
//	import.go    files of other programs
//	stats.go     sums over sessions, by day, project and model
//	upkeep.go    facts of the store, packing, checking
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/index"
	"github.com/strandline-dev/strandline/llm/catalog"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/subagent"
)

// Version is the version of the program; the build may set it.
var Version = "0.1.0-dev"

// Options says what to open. The zero value opens the user's store.
type Options struct {
	Store string // a directory, or file:// and a directory; "" = StoreRoot decides
	// Kinds are further event types, for programs that bring packages of their own.
	Kinds [][]session.Kind
	// LetGo is how long a holder that is asked to let a session go gets for it; 0: 10 s.
	LetGo time.Duration
	// Warn is told, once at most, why the index of the store is of no use, which makes lists and searches slow.
	Warn func(error)
}

// App is an opened store with everything that works on it. It is safe for concurrent use.
type App struct {
	Root     string // the store's directory
	Store    store.Store
	Registry *session.Registry

	index   *index.Index
	catalog *catalog.Catalog
	host    string
	letGo   time.Duration
	exports exports
}

// Open opens a store. It creates nothing: a directory that is not there is an empty store.
func Open(o Options) (*App, error) {
	root, err := StoreRoot(o.Store)
	if err != nil {
		return nil, err
	}
	reg, err := session.NewRegistry(append([][]session.Kind{agent.Kinds(), subagent.Kinds(), importer.Kinds(), compact.Kinds()}, o.Kinds...)...)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	st, err := openStore(root, host)
	if err != nil {
		return nil, err
	}
	if o.LetGo == 0 {
		o.LetGo = letGo
	}
	x := index.Open(index.Options{Path: filepath.Join(root, indexName), Store: st, Registry: reg, Now: time.Now, Warn: o.Warn})
	return &App{Root: root, Store: st, Registry: reg, index: x, catalog: catalog.New(), host: host, letGo: o.LetGo}, nil
}

func openStore(root, host string) (*filestore.Store, error) {
	return filestore.Open(root, filestore.Options{
		Now: time.Now, Rand: rand.Reader,
		Host: host, Program: program(), PID: os.Getpid(), ProcessStart: processStart(), Alive: alive,
	})
}

func program() string { return "strand " + Version }

// Close ends what is open. What telemetry is left is not waited for: Report does that.
func (a *App) Close() error {
	over, end := context.WithCancel(context.Background())
	end()
	a.Report(over)
	return errors.Join(a.index.Close(), a.Store.Close())
}

// indexName is the file of the index, in the store's directory.
const indexName = "index.db"

// Now is the time in Unix milliseconds.
func Now() int64 { return time.Now().UnixMilli() }

// idAlphabet has 32 signs without those that are misread (i, l, o, u).
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns a random id of 20 signs, 100 bits.
func NewID() session.ID {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends when there is no randomness
	for i := range b {
		b[i] = idAlphabet[b[i]%32]
	}
	return session.ID(b[:])
}

// UsageError says that the program was asked for what it cannot do: nothing was done.
type UsageError struct{ What, Why, Hint string }

func (e *UsageError) Error() string {
	s := e.What + ": " + e.Why
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// CheckCwd returns dir (the working directory when empty) as an absolute path.
func CheckCwd(dir string) (string, error) {
	if dir == "" {
		d, err := os.Getwd()
		if err != nil {
			return "", &UsageError{"--cwd", fmt.Sprintf("the working directory is gone (%v)", err), "give one that exists with --cwd DIR"}
		}
		return usable(d)
	}
	abs, err := absDir(dir)
	if err != nil {
		return "", &UsageError{"--cwd " + dir, err.Error(), "give a directory that exists with --cwd DIR"}
	}
	return usable(abs)
}

// usable refuses a directory that a session could not name.
func usable(dir string) (string, error) {
	if !utf8.ValidString(dir) {
		return "", &UsageError{"--cwd " + strings.ToValidUTF8(dir, "\uFFFD"), "its path is not UTF-8, and a session could not name it",
			"give another directory with --cwd DIR"}
	}
	return dir, nil
}

// CheckProject is CheckCwd for a directory that only names a project: it may be gone.
func CheckProject(dir string) (string, error) {
	if dir == "" {
		d, err := os.Getwd()
		if err != nil {
			return "", &UsageError{"--project", fmt.Sprintf("the working directory is gone (%v)", err), "name one with --project DIR, or give --any-project"}
		}
		return d, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", &UsageError{"--project " + dir, err.Error(), "give an absolute directory"}
	}
	return abs, nil
}
