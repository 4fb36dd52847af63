package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// chained returns the records of evs, whose sums are right, behind prev. The first has the mark synced.
func chained(prev session.Link, synced session.Seq, evs ...session.Event) (text []byte) {
	for _, ev := range evs {
		text, prev = record.Append(text, ev, prev, synced)
		synced = session.None
	}
	return text
}

var errSilent = errors.New("a hundred waits, and nothing was told")

// patient returns a store whose followers give up when they have waited often without a word.
func patient(t testing.TB, root string) *Store {
	o := testOptions()
	o.FS = unsynced
	waits := 0
	o.Wait = func(context.Context, time.Duration) error {
		if waits++; waits%100 == 0 {
			return errSilent
		}
		return nil
	}
	return openWith(t, root, o)
}

// follow returns what a feed gives out until nothing is left, and who holds the session then.
func follow(t testing.TB, f store.Feed) (got []session.Event, holder *store.Holder, err error) {
	for {
		news, err := f.Next(t.Context())
		if err != nil || len(news.Events) == 0 {
			return got, news.Holder, err
		}
		got = append(got, news.Events...)
	}
}

// A record belongs to a log by its link, however right its sum is. What stands in the log's files and does not follow
// is given out to nobody, from wherever he began; and he is told what is wrong, or that nothing is left for now.
func TestUnlinkedIsNotFollowed(t *testing.T) {
	foreign := session.Link{1, 2, 3}
	segment := func(prev session.Link, first session.Seq, records []byte) []byte {
		return append(record.AppendSegment(nil, record.Segment{Session: subject, First: first, Prev: prev}), records...)
	}
	write := func(t *testing.T, path string, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		made func(t *testing.T, dir string, last session.Link) // last: of event 9
		want error                                             // nil: a loss of power explains it
		most session.Seq                                       // events that are the log's
	}{
		{"at the end", func(t *testing.T, dir string, _ session.Link) {
			appendFile(t, filepath.Join(dir, segmentName(5)), string(chained(foreign, session.None, events(10, 1)...)))
		}, nil, 10},
		{"several at the end", func(t *testing.T, dir string, _ session.Link) {
			appendFile(t, filepath.Join(dir, segmentName(5)), string(chained(foreign, session.None, events(10, 3)...)))
		}, nil, 10},
		{"behind good ones", func(t *testing.T, dir string, last session.Link) {
			appendFile(t, filepath.Join(dir, segmentName(5)), string(chained(last, session.None, events(10, 2)...))+
				string(chained(foreign, session.None, events(12, 2)...)))
		}, nil, 12},
		{"in front of a mark that says it was synced", func(t *testing.T, dir string, _ session.Link) {
			appendFile(t, filepath.Join(dir, segmentName(5)), string(chained(foreign, session.None, events(10, 1)...))+
				string(chained(foreign, 10, events(11, 1)...)))
		}, store.ErrDamaged, 10},
		{"a segment of another log", func(t *testing.T, dir string, _ session.Link) {
			write(t, filepath.Join(dir, segmentName(10)), segment(foreign, 10, chained(foreign, session.None, events(10, 3)...)))
		}, store.ErrDamaged, 10},
		{"a segment whose first line follows and whose records do not", func(t *testing.T, dir string, last session.Link) {
			write(t, filepath.Join(dir, segmentName(10)), segment(last, 10, chained(foreign, session.None, events(10, 3)...)))
		}, store.ErrDamaged, 10},
		{"another last segment, which goes on", func(t *testing.T, dir string, _ session.Link) {
			path := filepath.Join(dir, segmentName(5))
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			head, err := record.ParseSegment(old[:bytes.IndexByte(old, '\n')])
			if err == nil {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, segment(head.Prev, 5, chained(head.Prev, session.None, lively(7, 5, 9)...)))
		}, store.ErrReplaced, 10},
	} {
		for _, from := range []session.Seq{0, 5, 9, 10} {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/from %d, late %v", c.name, from, late), func(t *testing.T) {
					root := t.TempDir()
					s := openStore(t, root, nil)
					newStored(t, s, subject, 5)
					w := must[store.Writer](t)(s.Open(t.Context(), subject))
					pos := mustAppend(t, w, events(5, 5))
					mustFlush(t, w)
					w.Close()
					f, err := patient(t, root).Watch(t.Context(), subject, from)
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					var got []session.Event
					if !late {
						if got, _, err = follow(t, f); err != nil {
							t.Fatal(err)
						}
					}
					c.made(t, s.dir(subject), pos.Link)
					began, want := len(got) > 0, c.want
					if want == store.ErrReplaced && !began {
						return // that is the log now, for all that it knows
					}
					more, _, err := follow(t, f)
					if !late && want == nil && c.most == 10 { // that nothing is left was told before
						want = errSilent
					}
					if !errors.Is(err, want) {
						t.Errorf("told %v, want %v", err, want)
					}
					wantEvents(t, append(got, more...), events(from, int(c.most-from)))
				})
			}
		}
	}
}

// Behind a record that is not the log's a follower learns who holds the session, that he is gone, and what the next
// life makes of it.
func TestUnlinkedUnderAHolder(t *testing.T) {
	for _, announced := range []bool{true, false} {
		root := t.TempDir()
		s := openStore(t, root, nil)
		newStored(t, s, subject, 5)
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, events(5, 2))
		if !announced {
			if err := os.Remove(s.livePath(subject)); err != nil {
				t.Fatal(err)
			}
		}
		appendFile(t, filepath.Join(s.dir(subject), segmentName(5)), string(chained(session.Link{1}, session.None, events(7, 1)...)))
		f, err := patient(t, root).Watch(t.Context(), subject, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, holder, err := follow(t, f)
		wantEvents(t, got, events(0, 7))
		if err != nil || holder == nil || announced != (holder.PID != 0) {
			t.Fatalf("announced %v: holder %+v, %v", announced, holder, err)
		}
		w.Close()
		if got, holder, err = follow(t, f); len(got) > 0 || holder != nil || err != nil {
			t.Fatalf("when he was gone: %d events, holder %+v, %v", len(got), holder, err)
		}
		if _, _, err = follow(t, f); !errors.Is(err, errSilent) {
			t.Fatalf("told %v without news", err)
		}
		next := must[store.Writer](t)(s.Open(t.Context(), subject))
		lost := next.Opened().Lost
		if len(lost) != 1 {
			t.Fatalf("the next life found %d events lost", len(lost))
		}
		mustAppend(t, next, append(slices.Clone(lost), events(8, 2)...))
		log, _ := readEvents(t, s, subject)
		got, holder, err = follow(t, f)
		if err != nil || holder == nil {
			t.Fatal(holder, err)
		}
		wantEvents(t, got, log[7:])
		next.Close()
	}
}
