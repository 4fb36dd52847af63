package storetest

import (
	"bytes"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var checkpointTests = []test{
	{"Behind", checkpointBehind},
	{"Fork", checkpointFork},
	{"Refused", checkpointRefused},
	{"Useless", checkpointUseless},
}

func (s *suite) checkpoints() store.Checkpoints {
	s.Helper()
	c, ok := s.st.(store.Checkpoints)
	if !ok {
		s.Skip("this driver keeps no checkpoints")
	}
	return c
}

// fold returns, as a checkpoint, what events fold to in a session with header h.
func (s *suite) fold(h session.Header, events []session.Event) store.Checkpoint {
	s.Helper()
	st, err := session.Fold(h, nil, session.Events(events))
	s.ok(err)
	data, err := st.MarshalBinary()
	s.ok(err)
	return store.Checkpoint{Pos: posAfter(events), Data: data}
}

// tailIs fails unless the tail of id, and what opening it finds, are events, in every respect. It returns where the newest
// checkpoint of the first n events is, 0 without one.
func (s *suite) tailIs(id session.ID, events []session.Event, n session.Seq) (at session.Seq) {
	s.Helper()
	snap, err := store.ReadTail(s.ctx, s.st, id)
	s.ok(err)
	defer snap.Close()
	w := s.open(id)
	defer w.Close()
	for _, snap := range []*store.Snapshot{snap, w.Opened()} {
		if snap.Header.ID != id || snap.Torn != nil || snap.Lost != nil || snap.Damage != nil || snap.Pos != posAfter(events) {
			s.Fatalf("the tail of %s: %+v", id, snap)
		}
		s.prefixIs(snap.Prefix, events)
		for _, n := range []session.Seq{0, 1, n, store.Whole} {
			n = min(n, session.Seq(len(events)))
			st, err := store.FoldTo(snap, nil, n)
			s.ok(err)
			got, err := st.MarshalBinary()
			s.ok(err)
			if !bytes.Equal(got, s.fold(snap.Header, events[:n]).Data) {
				s.Fatalf("the first %d events of %s fold to something else behind a checkpoint", n, id)
			}
		}
		if snap.Nearest == nil {
			continue
		}
		if c, ok := snap.Nearest(n); ok {
			if c.Pos.Next > n || c.Pos != posAfter(events[:c.Pos.Next]) {
				s.Fatalf("as the nearest checkpoint of %d events of %s: %+v", n, id, c.Pos)
			}
			at = c.Pos.Next
		}
	}
	return at
}

// checkpointBehind: what is read behind a checkpoint is the log, in this process and in others, whichever there are.
func checkpointBehind(s *suite) {
	c := s.checkpoints()
	all := talk(0, 40)
	w := s.create("kept", all[:15]...)
	s.flush(w)
	s.ok(c.PutCheckpoint(s.ctx, "kept", s.fold(header("kept"), all[:10])))
	s.append(w, all[15:30]...)
	s.flush(w)
	s.ok(c.PutCheckpoint(s.ctx, "kept", s.fold(header("kept"), all[:30])))
	s.ok(c.PutCheckpoint(s.ctx, "kept", s.fold(header("kept"), all[:30]))) // again
	s.append(w, all[30:]...)
	s.flush(w)
	s.ok(w.Close())
	look := func() {
		s.Helper()
		for n, want := range map[session.Seq]session.Seq{9: 0, 10: 10, 29: 10, 30: 30, 40: 30, store.Whole: 30} {
			if at := s.tailIs("kept", all, n); at != want {
				s.Fatalf("of the first %d events there is a checkpoint at %d, want %d", n, at, want)
			}
		}
	}
	look()
	if v, ok := s.st.(store.Verifier); ok {
		whole, err := v.Verify(s.ctx, "kept")
		s.ok(err)
		defer whole.Close()
		if wrong, err := store.WrongCheckpoints(s.ctx, c, whole, nil); err != nil || len(wrong) > 0 {
			s.Fatalf("wrong checkpoints: %v %v", wrong, err)
		}
	}
	if s.Reopen != nil {
		s.reopen()
		look()
		c = s.checkpoints()
	}
	s.ok(c.DropCheckpoints(s.ctx, "kept"))
	s.ok(c.DropCheckpoints(s.ctx, "kept"))
	if at := s.tailIs("kept", all, store.Whole); at != 0 {
		s.Fatalf("a dropped checkpoint is at %d", at)
	}
}

// checkpointFork: a fork begins with what its parent kept below the cut, and with nothing from above it.
func checkpointFork(s *suite) {
	c := s.checkpoints()
	s.forker()
	all := talk(0, 30)
	w := s.create("cp-parent", all...)
	s.flush(w)
	for _, n := range []int{10, 20} {
		s.ok(c.PutCheckpoint(s.ctx, "cp-parent", s.fold(header("cp-parent"), all[:n])))
	}
	s.ok(w.Close())
	own := s.fork("cp-child", "cp-parent", 14, all[:15])
	if at := s.tailIs("cp-child", own, store.Whole); at != 10 {
		s.Fatalf("the fork finds the checkpoint at %d", at)
	}
	child := s.open("cp-child")
	own = append(own, talk(child.Opened().Pos.Next, 5)...)
	s.append(child, own[len(own)-5:]...)
	s.flush(child)
	s.ok(c.PutCheckpoint(s.ctx, "cp-child", s.fold(child.Header(), own)))
	s.ok(child.Close())
	if at := s.tailIs("cp-child", own, store.Whole); at != session.Seq(len(own)) {
		s.Fatalf("the fork finds its own checkpoint at %d", at)
	}
	if at := s.tailIs("cp-parent", all, store.Whole); at != 20 {
		s.Fatalf("the parent finds a checkpoint at %d", at)
	}
}

// checkpointRefused: only what is synced, by a session that this process holds, gets a checkpoint.
func checkpointRefused(s *suite) {
	c := s.checkpoints()
	all := talk(0, 20)
	w := s.create("kept", all[:10]...)
	s.flush(w)
	s.append(w, all[10:]...)
	refused := func(what string, cp store.Checkpoint) {
		s.Helper()
		if err := c.PutCheckpoint(s.ctx, "kept", cp); err == nil {
			s.Errorf("there can be a checkpoint of %s", what)
		}
	}
	refused("what is not synced", s.fold(header("kept"), all))
	s.flush(w)
	other := s.fold(header("kept"), all)
	other.Pos.Link[0] ^= 1
	refused("another log", other)
	refused("nothing", store.Checkpoint{Data: []byte("x")})
	s.ok(w.Close())
	refused("a session that nobody holds", s.fold(header("kept"), all))
	if at := s.tailIs("kept", all, store.Whole); at != 0 {
		s.Fatalf("one was kept, at %d", at)
	}
}

// checkpointUseless: one that does not fit the log, or that is no fold, changes nothing of what is read.
func checkpointUseless(s *suite) {
	c := s.checkpoints()
	all := talk(0, 20)
	w := s.create("kept", all...)
	s.flush(w)
	s.ok(c.PutCheckpoint(s.ctx, "kept", store.Checkpoint{Pos: posAfter(all[:12]), Data: []byte("no fold")}))
	astray := s.fold(header("kept"), all[:15])
	astray.Pos.Link = posAfter(all[:14]).Link
	_ = c.PutCheckpoint(s.ctx, "kept", astray) // whether it is refused or not found later is the driver's business
	s.ok(w.Close())
	s.tailIs("kept", all, store.Whole)
	if v, ok := s.st.(store.Verifier); ok {
		whole, err := v.Verify(s.ctx, "kept")
		s.ok(err)
		defer whole.Close()
		wrong, err := store.WrongCheckpoints(s.ctx, c, whole, nil)
		s.ok(err)
		if len(wrong) != 1 || wrong[0] != 12 {
			s.Fatalf("wrong checkpoints: %v", wrong)
		}
		if at := s.tailIs("kept", all, store.Whole); at != 0 {
			s.Fatalf("the wrong ones are still there, at %d", at)
		}
	}
}
