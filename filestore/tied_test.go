package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// goOn cuts the log of the subject to 17 events, and writes others behind them, which it returns.
func (k *kin) goOn(t *testing.T, more int) []session.Event {
	t.Helper()
	return k.goOnAt(t, more, 1000)
}

// goOnAt is goOn by a clock that shows so much more than that of who wrote first.
func (k *kin) goOnAt(t *testing.T, more int, ahead int64) []session.Event {
	t.Helper()
	path := filepath.Join(k.s.dir(subject), segmentName(10))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(path, []byte(strings.Join(lines[:8], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := must[store.Writer](t)(k.s.Open(t.Context(), subject))
	defer w.Close()
	other := by("other", 17, more)
	for i := range other {
		other[i].Time += ahead
	}
	for _, batch := range [][]session.Event{other[:(2*more+2)/3], other[(2*more+2)/3:]} { // the second says that the first is synced
		mustAppend(t, w, batch)
		mustFlush(t, w)
	}
	return other
}

// hurtForkPoint makes the record bad that the subject has where it was forked, after it went on.
func (k *kin) hurtForkPoint(t *testing.T) {
	t.Helper()
	path := filepath.Join(k.s.dir(subject), segmentName(17))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[strings.Index(string(b), `"seq":21,`)+20] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whoever does not read all that a fork begins with gets no event of what its parent went on with: who peeks, who asks for a link, who
// follows, who opens behind a checkpoint.
func TestNobodyReadsWhatWentOn(t *testing.T) { eachKin(t, nobodyReadsWhatWentOn) }

func nobodyReadsWhatWentOn(t *testing.T, newKin func(*testing.T) *kin) {
	ctx := t.Context()
	for _, more := range []int{3, 5, 30} { // to below the fork point, to it, behind it
		for _, first := range []bool{true, false}[:max(1, min(2, 8-more))] {
			k := newKin(t)
			links := map[place]session.Link{}
			for _, id := range []session.ID{"child", "grandchild"} {
				w := must[store.Writer](t)(k.s.Open(ctx, id))
				keepFold(t, k.s, w)
				w.Close()
				for q := range k.logs[id] {
					links[place{id, session.Seq(q)}] = must[session.Link](t)(k.s.LinkAt(ctx, id, session.Seq(q)))
				}
			}
			k.goOn(t, more)
			s := k.s
			if first { // whatever was asked before
				must[session.Link](t)(s.LinkAt(ctx, subject, 17))
			}
			for _, id := range []session.ID{"child", "grandchild"} {
				at := fmt.Sprintf("%d more, %s", more, id)
				if snap, err := s.Peek(ctx, id); err != nil {
					t.Errorf("%s: peek: %v", at, err)
				} else if snap != nil {
					t.Errorf("%s: peek does not leave it to read", at)
				}
				for q, want := range k.logs[id] {
					link, err := s.LinkAt(ctx, id, session.Seq(q))
					if bad := q >= 17 && q < 22; bad != errors.Is(err, store.ErrDamaged) || !bad && (err != nil || link != links[place{id, session.Seq(q)}]) {
						t.Errorf("%s: the link of %v: %s, %v", at, want, link, err)
					}
				}
				for _, from := range []session.Seq{0, 12, 16, 17, 20, 21, 22} {
					got, err := followFrom(t, s, id, from)
					for i, ev := range got {
						if want := k.logs[id][from+session.Seq(i)]; !same(ev, want) {
							t.Errorf("%s: followed from %d: %v, want %v", at, from, ev, want)
						}
					}
					if !errors.Is(err, store.ErrDamaged) || len(got) != int(max(17-from, 0)) {
						t.Errorf("%s: followed from %d: %d events, %v", at, from, len(got), err)
					}
				}
				snap := must[*store.Snapshot](t)(s.ReadTail(ctx, id))
				if got := collect(t, snap.Prefix); len(snap.Damage) == 0 || wantMended(t, at, got, k.logs[id]) > 0 {
					t.Errorf("%s: read behind a checkpoint: %d events, damage %v", at, len(got), snap.Damage)
				}
				snap.Close()
				if w, err := s.Open(ctx, id); !errors.Is(err, store.ErrDamaged) {
					t.Errorf("%s: opened behind a checkpoint: %v", at, err)
					w.Close()
				}
			}
			// Repaired, each of them is read in every way again.
			for _, id := range []session.ID{"grandchild", "child"} {
				must[store.Repair](t)(s.Repair(ctx, id, false))
				at := fmt.Sprintf("%d more, %s repaired", more, id)
				snap := must[*store.Snapshot](t)(s.Peek(ctx, id))
				if snap == nil {
					t.Fatalf("%s: it cannot be peeked", at)
				}
				if n := wantMended(t, at, collect(t, snap.Prefix), k.logs[id]); n != 5 {
					t.Errorf("%s: peek finds %d marks", at, n)
				}
				for q := range k.logs[id] {
					link, err := s.LinkAt(ctx, id, session.Seq(q))
					if lost := q >= 17 && q < 22; err != nil || lost == (link == links[place{id, session.Seq(q)}]) {
						t.Errorf("%s: the link of %d: %s, %v", at, q, link, err)
					}
				}
				got, err := followFrom(t, s, id, 0)
				if n := wantMended(t, at, got, k.logs[id]); err != nil || n != 5 || len(got) != len(k.logs[id]) {
					t.Errorf("%s: followed: %d events, %d marks, %v", at, len(got), n, err)
				}
			}
		}
	}
}

// The reader of docs/reader.py sees no wrong event either, also where a mark stands at the fork point.
func TestReaderOfWhatWentOn(t *testing.T) { eachKin(t, readerOfWhatWentOn) }

func readerOfWhatWentOn(t *testing.T, newKin func(*testing.T) *kin) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 here, so docs/reader.py was not run")
	}
	for _, mark := range []bool{false, true} {
		k := newKin(t)
		k.goOn(t, 9)
		if mark {
			k.hurtForkPoint(t)
			must[store.Repair](t)(k.s.Repair(t.Context(), subject, false))
		}
		for _, id := range []session.ID{"grandchild", "child"} {
			ok, why, got := readerSays(t, python, k.s, id)
			if ok || wantMended(t, "read", got, k.logs[id]) > 0 || len(got) != 17 {
				t.Errorf("mark %v: %s: %d events, %s", mark, id, len(got), why)
			}
			must[store.Repair](t)(k.s.Repair(t.Context(), id, false))
			if ok, why, got = readerSays(t, python, k.s, id); !ok || wantMended(t, "repaired", got, k.logs[id]) != 5 {
				t.Errorf("mark %v: %s repaired: %d events, %s", mark, id, len(got), why)
			}
		}
	}
}

// readerSays is what docs/reader.py says of a session.
func readerSays(t *testing.T, python string, s *Store, id session.ID) (ok bool, why string, events []session.Event) {
	t.Helper()
	out, _ := exec.Command(python, "../docs/reader.py", s.Root(), string(id), "--events").Output()
	head, rest, _ := strings.Cut(string(out), "\n")
	var r struct {
		OK  bool
		Why string
	}
	if err := json.Unmarshal([]byte(head), &r, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(rest) {
		var ev session.Event
		if err := json.Unmarshal([]byte(line), &ev, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	return r.OK, r.Why, events
}

// followFrom returns the events of id from from on that a follower gives out now.
func followFrom(t *testing.T, s *Store, id session.ID, from session.Seq) (out []session.Event, err error) {
	t.Helper()
	f, err := s.Watch(t.Context(), id, from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for {
		news, err := f.Next(context.WithoutCancel(t.Context()))
		if err != nil || len(news.Events) == 0 {
			return out, err
		}
		out = append(out, news.Events...)
	}
}

// Who follows from behind what is damaged, and comes to where the log does not fit together, is told of the damage.
func TestFollowingBehindDamage(t *testing.T) {
	k := newKin(t)
	k.cut(t) // the subject: up to 16
	must[store.Repair](t)(k.s.Repair(t.Context(), subject, false))
	if err := flipAt(filepath.Join(k.s.dir(subject), segmentName(0)), 300); err != nil {
		t.Fatal(err)
	}
	got, err := followFrom(t, k.s, "child", 21) // a mark, and behind it what does not follow it
	if !errors.Is(err, store.ErrDamaged) {
		t.Errorf("%d events, %v", len(got), err)
	}
}
