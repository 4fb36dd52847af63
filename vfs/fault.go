package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"
)

// Trace returns base and writes one line per call to w: the call, its names, and what came of it. The
// lines of an operation are its durability protocol, to be reviewed as text. name maps each file
// name to what is printed; nil prints it as it is.
func Trace(base FS, w io.Writer, name func(string) string) FS {
	if name == nil {
		name = func(s string) string { return s }
	}
	var mu sync.Mutex
	moved := map[string]string{} // an open file is printed with the name that it was given last
	current := func(s string) string {
		for old, now := range moved {
			if rest, ok := strings.CutPrefix(s, old); ok {
				return now + rest
			}
		}
		return s
	}
	return Around(base, func(c *Call, do func() error) error {
		err := do()
		mu.Lock()
		defer mu.Unlock()
		subject := c.Name
		switch c.Op {
		case OpWrite, OpRead, OpSync, OpSyncData, OpFileStat, OpLock, OpHasWriter:
			subject = current(subject)
		case OpLink, OpRename:
			if err == nil {
				moved[c.Name] = c.To
			}
		}
		line := string(c.Op) + " " + name(subject)
		if c.To != "" {
			line += " -> " + name(c.To)
		}
		if c.Result != "" {
			line += " (" + c.Result + ")"
		}
		switch {
		case errors.Is(err, io.EOF):
		case errors.Is(err, fs.ErrNotExist):
			line += ": not there"
		case errors.Is(err, fs.ErrExist):
			line += ": exists"
		case err != nil:
			line += ": failed"
		}
		fmt.Fprintln(w, line)
		return err
	})
}

// Rule says which call Fault makes fail, and how.
type Rule struct {
	Match   func(Call) bool // nil: every call
	K       int             // the K-th matching call fails, from 1
	Forever bool            // and all matching calls after it
	Err     error           // nil: EIO
	After   bool            // the call is made, then its error is reported (for a write: all bytes arrive)
	Short   int             // OpWrite: this many bytes arrive before the error
	Skip    bool            // the call is not made and success is reported: a lie (syncs only)
	Drop    bool            // syncs of a file of a Mem: what the failed one should have made durable never will be
	Hold    func()          // runs before the call goes on: a delay, a crash, another's turn
}

// Fault returns base with one failing call or more, by rule. Hits counts the matching calls so far.
func Fault(base FS, r Rule) *Faulty {
	f := &Faulty{rule: r}
	f.FS = Around(base, f.around)
	return f
}

// Faulty is what Fault returns.
type Faulty struct {
	FS
	rule Rule
	mu   sync.Mutex
	hits int
}

// Hits returns how many calls have matched the rule.
func (f *Faulty) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

func (f *Faulty) around(c *Call, do func() error) error {
	r := f.rule
	if r.Match != nil && !r.Match(*c) {
		return do()
	}
	f.mu.Lock()
	f.hits++
	n := f.hits
	f.mu.Unlock()
	if n < r.K || n > r.K && !r.Forever {
		return do()
	}
	if r.Hold != nil {
		r.Hold()
		if r.Err == nil {
			return do()
		}
	}
	err := r.Err
	if err == nil {
		err = syscall.EIO
	}
	err = &fs.PathError{Op: string(c.Op), Path: c.Name, Err: err}
	switch {
	case r.Skip:
		return nil
	case r.Drop && c.drop != nil:
		c.drop()
	case r.After:
		if real := do(); real != nil {
			return real
		}
	case c.Op == OpWrite && r.Short > 0:
		c.Limit = min(c.Limit, r.Short)
		if real := do(); real != nil {
			return real
		}
	}
	return err
}
