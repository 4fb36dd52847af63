package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/importer/dsh"
	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// FromAuto lets the content of a file say what it is.
const FromAuto = "auto"

// formats are the session files that can be imported, in the order in which they are asked.
func formats(repair bool) importer.Formats {
	return importer.Formats{native.Format{Repair: repair}, dsh.Format{}}
}

// ImportFormats lists what can be said for the format of a file.
func ImportFormats() []string { return append([]string{FromAuto}, formats(false).Names()...) }

// Imported is what became of one file. Its keys are a contract.
type Imported struct {
	Path     string             `json:"path"`
	Tool     string             `json:"tool"`
	ID       session.ID         `json:"id"`
	Events   session.Seq        `json:"events"`
	Fidelity *importer.Fidelity `json:"fidelity"` // null: the file could not be read
	Existing bool               `json:"existing"` // the session was there already; nothing was written
	Older    session.ID         `json:"older"`    // the session that an earlier state of the file became
	Tail     int64              `json:"tailBytes"`
	Error    *string            `json:"error"`
	Err      error              `json:"-"`
}

// ImportPlan is what there is to import.
type ImportPlan struct {
	Files   []string
	Skipped int // files of directories that are no session files
	formats importer.Formats
	format  importer.Format
	bad     map[string]error
}

// PlanImport finds the files that paths name: files themselves, and of directories (walked; links in them are not
// followed) those that hold a session of the format called from. With repair what is good of an exported session that does
// not fit is taken in, as a copy with marks.
func (a *App) PlanImport(ctx context.Context, paths []string, from string, repair bool) (*ImportPlan, error) {
	all := formats(repair)
	p := &ImportPlan{formats: all, bad: map[string]error{}}
	if from != FromAuto {
		f, ok := all.Named(from)
		if !ok {
			return nil, &UsageError{"--from " + from, "no such format", "one of " + strings.Join(ImportFormats(), ", ")}
		}
		p.format, all = f, importer.Formats{f}
	}
	for _, path := range paths {
		fi, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = errors.New("there is no such file or directory")
			fallthrough
		case err != nil:
			p.bad[path] = err
			p.Files = append(p.Files, path)
		case !fi.IsDir():
			p.Files = append(p.Files, path)
		default:
			if err := a.walk(ctx, path, all, p); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// walk adds the session files below dir.
func (a *App) walk(ctx context.Context, dir string, known importer.Formats, p *ImportPlan) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		switch {
		case err != nil:
			p.bad[path] = err
			p.Files = append(p.Files, path)
			return nil
		case e.IsDir():
			if abs, err := filepath.Abs(path); err == nil && abs == a.Root {
				return fs.SkipDir // sessions are not imported from where they are
			}
			return nil
		case !e.Type().IsRegular():
			return nil
		}
		head, err := importer.Head(file(path))
		switch {
		case err != nil:
			p.bad[path] = err
			p.Files = append(p.Files, path)
		case known.Sniff(head) != nil:
			p.Files = append(p.Files, path)
		default:
			p.Skipped++
		}
		return nil
	})
}

func file(path string) importer.Source {
	return func() (io.ReadCloser, error) {
		fi, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !fi.Mode().IsRegular() {
			return nil, errors.New("it is not a regular file")
		}
		return os.Open(path)
	}
}

// Import imports the files of a plan, one after the other, and tells each when it is done. A file that cannot be
// imported is told with its error and does not stop the rest; an error of Import itself ends it.
func (a *App) Import(ctx context.Context, p *ImportPlan, before func(i int), each func(Imported) error) error {
	im, err := importer.New(importer.Options{
		Store: a.Store, Registry: a.Registry, Formats: p.formats, Now: Now,
		Project: func(cwd string) (string, string) {
			if !filepath.IsAbs(cwd) {
				return cwd, "" // of a file that hides where it was made
			}
			p := ProjectOf(cwd)
			return p.Root, p.ID
		},
	})
	if err != nil {
		return err
	}
	for i, path := range p.Files {
		if before != nil {
			before(i)
		}
		out := Imported{Path: path, Err: p.bad[path]}
		if out.Err == nil {
			var r importer.Result
			r, out.Err = im.Import(ctx, p.format, file(path))
			out.Tool, out.ID, out.Events, out.Existing, out.Older, out.Tail = r.Tool, r.ID, r.Events, r.Existing, r.Older, r.Tail
			if r.Fidelity.Dropped != nil {
				out.Fidelity = &r.Fidelity
			}
		}
		if out.Err != nil {
			var pe *fs.PathError
			if errors.As(out.Err, &pe) {
				out.Err = pe.Err
			}
			var fault *native.FaultError
			if errors.As(out.Err, &fault) {
				out.Err = fmt.Errorf("%w; to take in the rest, with marks for what is missing: strand import --repair %s", out.Err, path)
			}
			s := out.Err.Error()
			out.Error, out.ID = &s, ""
		}
		if err := each(out); err != nil {
			return err
		}
		if fatal(ctx, out.Err) {
			return out.Err
		}
	}
	return nil
}

// fatal reports whether an error concerns all files: an interruption, or a store that takes nothing.
func fatal(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrNotSaved) || errors.Is(err, store.ErrReadOnly))
}

// Lineage is where an imported session came from, as its source says.
type Lineage struct {
	Source string `json:"source"` // its id there
	Parent string `json:"parent"` // the id there of the session that it was forked from, or made by
	// ParentID is the session here that was imported from that one, "" if there is none.
	ParentID   session.ID  `json:"parentId"`
	Origin     string      `json:"origin"`
	SeedLength session.Seq `json:"seedLength"`
	// Boundary is the seq of the mark behind the inherited events, null if there is none.
	Boundary *session.Seq `json:"boundary"`
	Older    session.ID   `json:"older"`
}

// Lineage tells where an imported session came from; nil for others.
func (a *App) Lineage(ctx context.Context, i *Inspection) (*Lineage, error) {
	im := i.Snap.Header.Imported
	if im == nil {
		return nil, nil
	}
	l := &Lineage{Source: im.Source, Parent: im.Parent, Origin: im.Origin, SeedLength: im.SeedLength, Older: im.Older}
	if im.SeedLength > 0 && slices.Contains(i.State.Boundaries(), im.SeedLength) {
		l.Boundary = &im.SeedLength
	}
	lister, ok := a.Store.(store.Lister)
	if im.Parent == "" || !ok {
		return l, nil
	}
	page, err := lister.List(ctx, store.Query{})
	if err != nil {
		return nil, err
	}
	best := session.Seq(-1) // of several states of the parent the longest
	for _, st := range page.Rows {
		switch p := st.Header.Imported; {
		case p != nil && p.Tool == im.Tool && p.Source == im.Parent && p.Events > best:
			best, l.ParentID = p.Events, st.ID
		case p == nil && im.Tool == native.Name && string(st.ID) == im.Parent:
			l.ParentID = st.ID
			return l, nil
		}
	}
	return l, nil
}

// String says it in one line for a person, "" if there is nothing to say.
func (l *Lineage) String() string {
	if l == nil || l.Parent == "" {
		return ""
	}
	what := "fork"
	if l.Origin != "" {
		what = l.Origin
	}
	s := fmt.Sprintf("%s of %s there", what, l.Parent)
	if l.ParentID != "" {
		s += fmt.Sprintf(" (%s here)", l.ParentID)
	}
	if l.SeedLength > 0 {
		s += fmt.Sprintf("; the first %d events are its parent's", l.SeedLength)
	}
	if l.Boundary != nil {
		s += fmt.Sprintf(", the boundary is at %d", *l.Boundary)
	}
	return s
}
