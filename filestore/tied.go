package filestore

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// tied reports whether the parts of a log that end behind from, and not behind to, lie in files of which the last record of the part is
// the one that was forked, or a mark in its place. Who does not read all that a fork begins with asks this first: the files are those of
// others, who may have lost their end and gone on (proof.go). What is wrong, if it is not so, a scan of the whole log finds out.
func (s *Store) tied(ctx context.Context, h session.Header, from, to session.Seq) (bool, error) {
	if h.Parent == nil {
		return true, nil
	}
	for _, sp := range h.Parent.Spans {
		if sp.End <= from || sp.End > to {
			continue
		}
		want, ok, err := s.partLink(h, sp.ID)
		if err == nil && ok {
			ok, err = s.endsIn(ctx, h, sp, want)
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// partLink returns the link at the end of the part of id in h, as h or what follows the part says it.
func (s *Store) partLink(h session.Header, id session.ID) (link session.Link, ok bool, err error) {
	spans := h.Parent.Spans
	i := slices.IndexFunc(spans, func(sp session.OriginSpan) bool { return sp.ID == id })
	if link, _, ok := h.Parent.Ending(id); ok || i < 0 {
		return link, ok, nil
	}
	dir, names, err := s.locate(spans[i+1].ID, h.ID)
	if err != nil || len(names) == 0 || names[0].first != spans[i].End {
		return link, false, err
	}
	err = s.withText(names[0].in(dir), func(f vfs.File) error {
		head, _, err := readSegmentHead(f)
		link, ok = head.Prev, err == nil
		return err
	})
	return link, ok, unlessBad(err)
}

// endsIn reports whether the last record of the part sp of h has that link, or is the mark of it.
func (s *Store) endsIn(ctx context.Context, h session.Header, sp session.OriginSpan, want session.Link) (bool, error) {
	dir, names, err := s.locate(sp.ID, h.ID)
	if err != nil {
		return false, err
	}
	i := holding(names, sp.End-1)
	if i < 0 {
		return false, nil
	}
	same, mark, time := false, false, int64(0)
	err = s.withText(names[i].in(dir), func(f vfs.File) error {
		_, err := locateRecord(ctx, f, sp.End-1, func(raw *record.Raw) {
			link, ok := raw.Link()
			same, mark, time = ok && link == want, string(raw.Type) == session.TypeLost, raw.Time
		})
		return err
	})
	if err == nil && !same && mark {
		return s.mayMark(ctx, time, sp.ID, h)
	}
	return same, unlessBad(err)
}

// mayMark reports whether a mark of that time at the end of the part of id may stand for the record that was forked: what is before it has
// to be what was forked. A mark has the time of the record before it.
func (s *Store) mayMark(ctx context.Context, time int64, id session.ID, h session.Header) (bool, error) {
	e, ok := s.takenFrom(id, h.Parent, h.CreatedAt)
	if !ok || e.trail == nil {
		return !ok || time <= e.made, nil
	}
	dir, _, err := s.locate(id, h.ID)
	if err != nil || dir == "" {
		return false, err
	}
	from, end, _ := (&relative{parent: h.Parent}).part(id)
	n, err := s.parts(ctx, dir, from, end, e)
	return n == end, unlessBad(err)
}

// unlessBad is err, unless it says that a file, or what is looked for in it, is gone or bad.
func unlessBad(err error) error {
	var re *record.Error
	var fe *record.FormatError
	var nf *notFileError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &re) || errors.As(err, &fe) || errors.As(err, &nf) {
		return nil
	}
	return err
}
