package filestore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// known takes away the events that are written already, and checks that they are equal and that the
// rest follows. What is not synced is compared with memory: its file may be the one that failed.
func (w *writer) known(ctx context.Context, events []session.Event) ([]session.Event, error) {
	if len(events) == 0 || events[0].Seq >= w.next.Next {
		return w.following(events)
	}
	v, text := w.view(), w.unsynced[:w.kept]
	for due := w.synced.Next; len(events) > 0 && events[0].Seq < w.next.Next; {
		var old session.Event
		var err error
		if events[0].Seq < w.synced.Next {
			old, err = v.At(events[0].Seq)
		} else {
			k := bytes.IndexByte(text, '\n')
			for ; due < events[0].Seq; due++ {
				text = text[k+1:]
				k = bytes.IndexByte(text, '\n')
			}
			var raw record.Raw
			if raw, err = record.Parse(text[:k:k]); err == nil {
				old, err = w.s.accepted(ctx, w.id, w.id, &raw)
			}
		}
		if err != nil {
			return nil, w.notSaved(err)
		}
		if !same(old, events[0]) {
			return nil, fmt.Errorf("filestore: session %s: another event with seq %d is written already", w.id, old.Seq)
		}
		events = events[1:]
	}
	return w.following(events)
}

// following refuses events that do not begin at the seq that is due.
func (w *writer) following(events []session.Event) ([]session.Event, error) {
	if len(events) > 0 && events[0].Seq != w.next.Next {
		return nil, fmt.Errorf("filestore: session %s: event %d does not follow: %d is due", w.id, events[0].Seq, w.next.Next)
	}
	return events, nil
}

func same(a, b session.Event) bool {
	return a.Seq == b.Seq && a.Time == b.Time && a.Type == b.Type && a.Op == b.Op && a.Ignorable == b.Ignorable &&
		slices.Equal(a.Sources, b.Sources) && bytes.Equal(a.Extra, b.Extra) && bytes.Equal(a.Data, b.Data)
}

// encode appends the records of events to w.unsynced, and returns the position behind them and the
// lock that keeps their blobs, if any, until the records are written. w.named are then the pinned blobs that they name.
func (w *writer) encode(ctx context.Context, events []session.Event) (end store.Pos, lock vfs.File, err error) {
	mark := w.synced.Next - 1
	end, w.named = w.next, nil
	if w.unsynced == nil {
		if room, ok := w.s.rooms.Get().(*[]byte); ok {
			w.unsynced = *room
		}
	}
	put := func(raw []byte) (string, error) {
		if lock == nil {
			var err error
			if lock, err = w.s.shareStore(ctx); err != nil {
				return "", w.notSaved(err)
			}
		}
		name, err := w.s.putBlob(raw)
		if err != nil {
			return "", w.notSaved(err)
		}
		return name, nil
	}
	if len(w.own) == 0 && len(w.lost) > len(events) {
		return end, nil, fmt.Errorf("filestore: session %s: the first batch must begin with the %d events of Snapshot.Lost", w.id, len(w.lost))
	}
	for i, ev := range events {
		if ev.Seq != end.Next {
			return end, lock, fmt.Errorf("filestore: session %s: event %d does not follow: %d is due", w.id, ev.Seq, end.Next)
		}
		if len(w.own) == 0 && i < len(w.lost) {
			lr := w.lost[i]
			if !same(lr.ev, ev) {
				return end, lock, fmt.Errorf("filestore: session %s: event %d must be the one of Snapshot.Lost", w.id, ev.Seq)
			}
			if lr.raw != nil {
				w.unsynced = append(w.unsynced, lr.raw...)
				end, mark = store.Pos{Next: ev.Seq + 1, Link: lr.link}, session.None
				continue
			}
		}
		if err := record.Check(ev); err != nil {
			return end, lock, err
		}
		w.named = append(w.named, w.s.pinned(ev.Data)...) // here: of a long text only its own name gets into the record
		if ev.Data, err = record.Externalize(ev.Data, record.BlobLimit, put); err != nil {
			return end, lock, err
		}
		n := len(w.unsynced)
		w.unsynced, end.Link = record.Append(w.unsynced, ev, end.Link, mark)
		if n = len(w.unsynced) - n; n > record.MaxRecord {
			return end, lock, &store.TooLargeError{ID: w.id, Seq: ev.Seq, Bytes: n, Limit: record.MaxRecord}
		}
		end.Next++
		mark = session.None
	}
	return end, lock, nil
}
