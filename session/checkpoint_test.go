package session_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

func marshal(t rapid.TB, st session.State) []byte {
	b, err := st.MarshalBinary()
	if err != nil {
		t.Fatalf("no checkpoint: %v", err)
	}
	return b
}

// continued is the fold of evs that goes on from a checkpoint of the first n, made for a session with header of.
func continued(t rapid.TB, of, h session.Header, evs session.Events, n int) (session.State, error) {
	st, err := session.UnmarshalState(h, sessiontest.Registry(), marshal(t, fold(t, of, evs[:n])))
	if err != nil {
		return st, err
	}
	for _, ev := range evs[n:] {
		st.Load(ev)
	}
	return st, nil
}

// A fold that goes on from a checkpoint, of this session or of one that it was forked from, is the fold of the whole
// log, to the byte and in all that it tells.
func TestCheckpointIsTheFold(t *testing.T) {
	foreign := 0
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, actions)
		evs := l.Events()
		want := fold(t, l.Header, evs)
		heads := map[session.ID]session.Header{}
		for _, p := range l.Pickups {
			heads[p.Header.ID] = p.Header
		}
		for range 5 {
			n := rapid.IntRange(0, len(evs)).Draw(t, "n")
			for _, of := range heads {
				if of.ID != l.Header.ID && session.Seq(n) > l.Header.SeedLength {
					continue // it has other events there
				}
				got, err := continued(t, of, l.Header, evs, n)
				if errors.Is(err, session.ErrOtherFold) && of.ID != l.Header.ID {
					continue
				}
				if err != nil {
					t.Fatalf("a checkpoint of %s at %d for %s: %v", of.ID, n, l.Header.ID, err)
				}
				if of.ID != l.Header.ID {
					foreign++
				}
				if d := diff(got, want); d != "" || !bytes.Equal(marshal(t, got), marshal(t, want)) {
					t.Fatalf("from a checkpoint of %s at %d of %d:\n%s", of.ID, n, len(evs), d)
				}
			}
		}
	})
	if foreign == 0 {
		t.Error("no fork went on from a checkpoint of its parent")
	}
}

// The same of logs that break every rule.
func TestCheckpointOfGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		evs := sessiontest.Garbage(sessiontest.Drawn(t), 40)
		h := session.Header{ID: "garbage", CreatedAt: 7}
		got, err := continued(t, h, h, evs, rapid.IntRange(0, len(evs)).Draw(t, "n"))
		if err != nil {
			t.Fatal(err)
		}
		if want := fold(t, h, evs); !bytes.Equal(marshal(t, got), marshal(t, want)) {
			t.Fatalf("%s\n%s", diff(got, want), sessiontest.Dump(evs))
		}
	})
}

// What is not the checkpoint that was made is refused: each bit, each length, other types.
func TestCheckpointIsRefused(t *testing.T) {
	h := session.Header{ID: "some", CreatedAt: 7}
	evs := sessiontest.Garbage(sessiontest.Bytes([]byte("some garbage that is always the same")), 30)
	b := marshal(t, fold(t, h, evs))
	reg := sessiontest.Registry()
	if _, err := session.UnmarshalState(h, session.Core(), b); !errors.Is(err, session.ErrOtherFold) {
		t.Errorf("with other types: %v", err)
	}
	for i := range b {
		if _, err := session.UnmarshalState(h, reg, b[:i]); err == nil {
			t.Errorf("cut to %d of %d bytes it is accepted", i, len(b))
		}
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := session.UnmarshalState(h, reg, c); err == nil || errors.Is(err, session.ErrOtherFold) {
				t.Errorf("with bit %d of byte %d changed: %v", bit, i, err)
			}
		}
	}
}

// A session that calls another part of the log its own gets no questions and no queue from a checkpoint.
func TestCheckpointOfAnother(t *testing.T) {
	input, err := session.Draft{Type: session.TypeInboxSpliced,
		Data: session.InboxSpliced{Target: session.NextTurn, Inserted: []message.Message{message.User("m", "hello")}}}.Event(0, 5)
	if err != nil {
		t.Fatal(err)
	}
	evs := session.Events{input}
	parent := session.Header{ID: "parent"}
	fork := session.Header{ID: "fork", SeedLength: 1, CreatedAt: 9, Parent: &session.Parent{ID: "parent", Spans: []session.OriginSpan{{ID: "parent", End: 1}}}}
	b := marshal(t, fold(t, parent, evs))
	st, err := session.UnmarshalState(fork, sessiontest.Registry(), b)
	if err != nil || len(st.Queue(session.NextTurn)) != 0 || st.LastActivity() != 9 {
		t.Errorf("a fork: %v, queue %v, activity %d", err, st.Queue(session.NextTurn), st.LastActivity())
	}
	if _, err := session.UnmarshalState(parent, sessiontest.Registry(), marshal(t, fold(t, fork, evs))); !errors.Is(err, session.ErrOtherFold) {
		t.Errorf("the parent, from one of the fork: %v", err) // the fork has dropped what is the parent's
	}
}

// The states of this version. If this fails and the same events are to fold to another state from now on, or a State
// has other members, foldVersion (checkpoint.go) must rise, or old checkpoints are taken for new ones.
func TestFoldVersion(t *testing.T) {
	const version, want = 1, "fb5baca7f852e46c"
	sum := sha256.New()
	x := uint64(1)
	for range 64 {
		b := make([]byte, 512)
		for i := range b {
			x = x*6364136223846793005 + 1442695040888963407
			b[i] = byte(x >> 56)
		}
		st := fold(t, session.Header{ID: "some", CreatedAt: 7}, sessiontest.Garbage(sessiontest.Bytes(b), 60))
		sum.Write(marshal(t, st))
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)[:8]); got != want {
		t.Errorf("events fold to something else than in version %d: %s, was %s", version, got, want)
	}
}

// FuzzCheckpoint: no bytes make the decoder fall over, and what it accepts is a state that can be asked, go on, and be
// written again.
func FuzzCheckpoint(f *testing.F) {
	sessiontest.Seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h := session.Header{ID: "some"}
		evs := sessiontest.Garbage(sessiontest.Bytes(data), 20)
		b := marshal(t, fold(t, h, evs))
		for i, c := range data { // what is damaged has a right sum: only so it comes far
			if len(b) > 4 {
				b[(i*31+int(c))%(len(b)-4)] ^= c
			}
		}
		st, err := session.UnmarshalState(h, sessiontest.Registry(), session.Resum(b))
		if err != nil {
			return
		}
		seen(st)
		st.Load(session.Event{Seq: st.Next(), Type: session.TypeRestore, Op: session.Restore(0), Data: []byte(`{}`)})
		_, _ = st.MarshalBinary() // texts that no JSON can hold
	})
}
