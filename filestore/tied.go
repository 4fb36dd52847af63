package filestore

import (
	"context"
	"errors"
	"io/fs"

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
	for i, sp := range h.Parent.Spans {
		if sp.End <= from || sp.End > to {
			continue
		}
		want := h.Parent.Link
		if i+1 < len(h.Parent.Spans) {
			link, ok, err := s.linkBehind(h, h.Parent.Spans[i+1].ID, sp.End)
			if err != nil || !ok {
				return false, err
			}
			want = link
		}
		if ok, err := s.endsIn(ctx, h, sp, want); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// linkBehind returns the link that the part of id, which begins at first, says to follow.
func (s *Store) linkBehind(h session.Header, id session.ID, first session.Seq) (link session.Link, ok bool, err error) {
	dir, names, err := s.locate(id, h.ID)
	if err != nil || len(names) == 0 || names[0].first != first {
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
	same := false
	err = s.withText(names[i].in(dir), func(f vfs.File) error {
		_, err := locateRecord(ctx, f, sp.End-1, func(raw *record.Raw) {
			link, ok := raw.Link()
			same = ok && link == want || string(raw.Type) == session.TypeLost && s.markedBefore(raw.Time, sp.ID, h)
		})
		return err
	})
	return same, unlessBad(err)
}

// markedBefore reports whether a mark of that time at the end of the part of id may stand for the record that was forked: a mark has the
// time of the record before it, and what was written when the fork was there is not the fork's.
func (s *Store) markedBefore(time int64, id session.ID, h session.Header) bool {
	made, _, ok := s.takenFrom(id, h.Parent, h.CreatedAt)
	return !ok || time <= made
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
