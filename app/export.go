package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/export"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/redact"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// The formats of an export.
const (
	FormatJSONL    = "jsonl"
	FormatMarkdown = "markdown"
	FormatHTML     = "html"
	FormatOpenAI   = "openai"
)

// Formats are the formats of an export, in the order in which they are named.
func Formats() []string { return []string{FormatJSONL, FormatMarkdown, FormatHTML, FormatOpenAI} }

// ExportOptions says what an export is.
type ExportOptions struct {
	Format   string
	View     bool // what the model sees, instead of the log; that of openai always is
	NoRedact bool // leave credentials in
}

// Export writes a session to w. It takes no lease and changes nothing. What cannot be read of a damaged session is
// named in the report.
func (a *App) Export(ctx context.Context, id session.ID, o ExportOptions, w io.Writer) (export.Report, error) {
	if !slices.Contains(Formats(), o.Format) {
		return export.Report{}, &UsageError{"--format " + o.Format, "there is no such format", "it is one of " + strings.Join(Formats(), ", ")}
	}
	if o.Format == FormatJSONL && !o.View { // the log needs no fold
		snap, err := a.Store.Read(ctx, id)
		if err == nil && len(snap.Damage) > 0 {
			snap, _, err = a.salvage(ctx, id, snap, store.Stat{})
		}
		if err != nil {
			return export.Report{}, err
		}
		defer snap.Close()
		if snap.Header.ID == "" {
			return export.Report{}, unreadable(id, snap)
		}
		return export.JSONL(ctx, w, a.source(snap, o))
	}
	ins, err := a.InspectWhole(ctx, id, nil)
	if err != nil {
		return export.Report{}, err
	}
	defer ins.Close()
	if ins.Snap.Header.ID == "" {
		return export.Report{}, unreadable(id, ins.Snap)
	}
	src := a.source(ins.Snap, o)
	var view []message.Message
	if o.View || o.Format == FormatOpenAI {
		if view, err = ins.View(""); err != nil {
			return export.Report{}, err
		}
	}
	switch o.Format {
	case FormatOpenAI:
		system, err := ins.system()
		if err != nil {
			return export.Report{}, err
		}
		return export.OpenAI(ctx, w, src, system, view)
	case FormatJSONL:
		return export.Messages(ctx, w, src, view)
	}
	visible := make(map[session.Seq]bool, ins.State.SurfaceLen())
	for _, n := range ins.State.Surface() {
		visible[n.Seq] = true
	}
	title, err := ins.Title()
	if err != nil {
		return export.Report{}, err
	}
	to := export.TranscriptOptions{Title: title, View: view, Hidden: func(seq session.Seq) bool { return !visible[seq] }}
	if o.Format == FormatHTML {
		return export.HTML(ctx, w, src, to)
	}
	return export.Markdown(ctx, w, src, to)
}

// system returns the system prompt of the last request, "" if there was none.
func (i *Inspection) system() (string, error) {
	seq := i.State.RequestHeader()
	if seq == session.None {
		return "", nil
	}
	ev, err := i.Prefix.At(seq)
	if err != nil {
		return "", err
	}
	h, err := session.DecodeData[session.RequestHeader](ev)
	if err != nil {
		return "", nil // a foreign log: the messages are worth more than the prompt
	}
	return h.Header.System, nil
}

func unreadable(id session.ID, snap *store.Snapshot) error {
	if snap.Unsupported != "" {
		return &store.UnsupportedError{ID: id, Detail: snap.Unsupported}
	}
	return &store.DamagedError{ID: id, Ranges: snap.Damage}
}

func (a *App) source(snap *store.Snapshot, o ExportOptions) export.Source {
	src := export.Source{Snap: snap}
	if b, ok := a.Store.(store.Blobs); ok {
		src.Blobs = b
	}
	if !o.NoRedact {
		src.Redact = redact.Redactor{}
	}
	return src
}

// WriteFile makes a new file of what write writes: readable by its owner alone, in full or not at all, and never in
// the place of another one.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	taken := func() error {
		return &UsageError{"-o " + name, "there is such a file already, and it is not overwritten", "give another name, or remove it"}
	}
	if _, err := os.Lstat(name); err == nil {
		return taken()
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".strand-*") // 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer func() {
		_ = f.Close() // a second time after a success
		_ = os.Remove(f.Name())
	}()
	b := bufio.NewWriterSize(f, 64<<10)
	if err := write(b); err != nil {
		return err
	}
	if err := errors.Join(b.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	err = os.Link(f.Name(), name) // refuses a name that came into being meanwhile, which a rename would not
	if errors.Is(err, fs.ErrExist) {
		return taken()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
