package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// newKeeper returns a keeper with a registry of live sessions of its own.
func (a *App) newKeeper() *keeper.Keeper {
	host, _ := os.Hostname()
	return keeper.New(a.Store, live.New(), keeper.Options{
		Now: Now, NewID: NewID, Registry: a.Registry, Path: a.Root, CheckFold: checkFold,
		Holder: store.Holder{PID: os.Getpid(), Host: host, Program: program()},
		Link: func(prev session.Link, ev session.Event) (session.Link, error) {
			data, err := record.Externalize(ev.Data, record.BlobLimit, func(raw []byte) (string, error) { return record.BlobName(raw), nil })
			if err != nil {
				return prev, err
			}
			ev.Data = data
			_, link := record.Append(nil, ev, prev, session.None)
			return link, nil
		},
	})
}

// change holds a session for writing while f appends to it, and lets it go when everything is synced. An f
// that appends nothing leaves the session as it was.
func (a *App) change(ctx context.Context, id session.ID, f func(s *session.Session) error) error {
	opened, err := a.newKeeper().Resume(ctx, id)
	if err != nil {
		return err
	}
	h := a.exports.follow(opened)
	failed := f(h.Session())
	if err := h.Dispose(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(failed, a.rescue(opened, err))
	}
	return failed
}

// rescue is the way out of a session that cannot be saved: what is missing is written to a file outside the
// store, the lease is released, and the error names the file.
func (a *App) rescue(h *keeper.Handle, cause error) error {
	if !errors.Is(cause, store.ErrNotSaved) {
		return cause
	}
	out := &UnsavedError{ID: h.Header().ID, Err: cause}
	events, err := h.Abandon(context.Background())
	if len(events) == 0 {
		return errors.Join(cause, err)
	}
	out.Kept = keepOutside(out.ID, events)
	return out
}

// keepOutside writes events as JSON lines into a new file, of the directory for temporary files or else of the
// working directory, and returns its name; "" if nothing could be written.
func keepOutside(id session.ID, events []session.Event) string {
	var text []byte
	for _, ev := range events {
		text = append(AppendEvent(text, ev), '\n')
	}
	for _, dir := range []string{os.TempDir(), "."} {
		f, err := os.CreateTemp(dir, fmt.Sprintf("strand-unsaved-%s-*.jsonl", id))
		if err != nil {
			continue
		}
		_, err = f.Write(text)
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			name, err := filepath.Abs(f.Name())
			if err != nil {
				return f.Name()
			}
			return name
		}
		_ = os.Remove(f.Name())
	}
	return ""
}

// Undone says which turn was hidden or brought back.
type Undone struct {
	ID   session.ID `json:"id"`
	Turn int        `json:"turn"`
	Redo bool       `json:"redo"`
}

// Undo hides the last visible turn of a session, or brings back the one that was hidden last.
func (a *App) Undo(ctx context.Context, id session.ID, redo bool) (Undone, error) {
	out := Undone{ID: id, Redo: redo}
	err := a.change(ctx, id, func(s *session.Session) error {
		st := s.State()
		drafts, turn, err := st.UndoDrafts()
		if redo {
			drafts, turn, err = st.RedoDrafts(s.Events())
		}
		if err != nil {
			return err
		}
		out.Turn = turn
		_, err = s.AppendAll(nil, drafts...)
		return err
	})
	return out, err
}

// Title is a session's title.
type Title struct {
	ID     session.ID `json:"id"`
	Title  string     `json:"title"`
	Source string     `json:"source"` // user, provider, fallback; "" if nobody gave it one
}

// Title reads the title of a session.
func (a *App) Title(ctx context.Context, id session.ID) (Title, error) {
	ins, err := a.Inspect(ctx, id, nil)
	if err != nil {
		return Title{}, err
	}
	defer ins.Close()
	if err := ins.Err(); errors.Is(err, store.ErrDamaged) && ins.Prefix.Len() == 0 {
		return Title{}, err
	}
	title, err := ins.Title()
	if err != nil {
		return Title{}, fmt.Errorf("reading session %s: %w", id, err)
	}
	return Title{id, title, ins.State.Title().Source}, nil
}

// maxTitle is how many signs a title may have: it stands in a row of a list.
const maxTitle = 200

// SetTitle gives a session a title, which no other but the user changes again.
func (a *App) SetTitle(ctx context.Context, id session.ID, title string) (Title, error) {
	title = strings.TrimSpace(title)
	switch n := utf8.RuneCountInString(title); {
	case n == 0:
		return Title{}, &UsageError{What: "title", Why: "it is empty", Hint: "give it a word or two"}
	case n > maxTitle:
		return Title{}, &UsageError{What: "title", Why: fmt.Sprintf("it has %d signs", n), Hint: fmt.Sprintf("%d are the most", maxTitle)}
	}
	t := Title{id, title, "user"}
	return t, a.change(ctx, id, func(s *session.Session) error {
		_, err := s.Append(session.Draft{Type: session.TypeTitle, Data: session.Title{Title: title, Source: t.Source}})
		return err
	})
}
