package storetest

import (
	"errors"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var removeTests = []test{
	{"Trash", removeTrash},
	{"Held", removeHeld},
	{"NeverAgain", removeNeverAgain},
	{"Purge", removePurge},
	{"Forks", removeForks},
	{"ForksTogether", removeForksTogether},
	{"ForkOfHeir", removeForkOfHeir},
	{"Blobs", removeBlobs},
	{"Dependents", removeDependents},
}

func (s *suite) remover() store.Remover {
	s.Helper()
	r, ok := s.st.(store.Remover)
	if !ok {
		s.Skip("this driver does not delete")
	}
	return r
}

// purge trashes ids, if they are not there yet, and purges them at once.
func (s *suite) purge(ids ...session.ID) []store.Purged {
	s.Helper()
	r := s.remover()
	for _, id := range ids {
		if err := r.Trash(s.ctx, id); err != nil && !goneAs(err, true, false) {
			s.Fatal(err)
		}
	}
	out := r.Purge(s.ctx, ids)
	for i, p := range out {
		if p.ID != ids[i] || p.Unsure != nil {
			s.Fatalf("purge of %v: %+v", ids, out)
		}
		s.ok(p.Err)
	}
	return out
}

// goneAs reports whether err says that a session is in the trash, or was purged.
func goneAs(err error, trashed, purged bool) bool {
	nf, ok := errors.AsType[*store.NotFoundError](err)
	return ok && errors.Is(err, store.ErrNotFound) && nf.Trashed == trashed && nf.Purged == purged
}

// gone fails unless every way to a session says where it went.
func (s *suite) gone(id session.ID, trashed, purged bool) {
	s.Helper()
	_, serr := s.st.Stat(s.ctx, id)
	_, rerr := s.st.Read(s.ctx, id)
	_, oerr := s.st.Open(s.ctx, id)
	for what, err := range map[string]error{"Stat": serr, "Read": rerr, "Open": oerr, "Trash": s.remover().Trash(s.ctx, id)} {
		if !goneAs(err, trashed, purged) {
			s.Fatalf("%s of a deleted session: %v", what, err)
		}
	}
}

// taken fails unless id cannot be had by any way.
func (s *suite) never(id session.ID, purged bool) {
	s.Helper()
	_, cerr := s.st.Create(s.ctx, header(id))
	errs := map[string]error{"Create": cerr}
	if t, ok := s.st.(store.Taker); ok {
		errs["Take"] = t.Take(s.ctx, taken(id, 1), each(talk(0, 1)))
	}
	if f, ok := s.st.(store.Forker); ok {
		errs["CreateFork"] = f.CreateFork(s.ctx, s.childHeader(id, "other", 2), []session.Event{boundary(3)})
	}
	for what, err := range errs {
		e, ok := errors.AsType[*store.ExistsError](err)
		if !ok || !e.Deleted || e.Purged != purged {
			s.Fatalf("%s with the id of a deleted session: %v", what, err)
		}
	}
}

func (s *suite) listed(q store.Query) []session.ID {
	s.Helper()
	page, err := s.lister().List(s.ctx, q)
	s.ok(err)
	var ids []session.ID
	for _, r := range page.Rows {
		ids = append(ids, r.ID)
	}
	return ids
}

func removeTrash(s *suite) {
	r := s.remover()
	for i, id := range []session.ID{"alpha", "beta", "gamma"} {
		ev := user(0, "hello")
		ev.Time += int64(i) * 1000
		s.stored(id, ev, chunk(1))
	}
	before := s.stat("beta")
	s.ok(r.Trash(s.ctx, "beta"))
	s.gone("beta", true, false)
	if got := s.listed(store.Query{}); !slices.Equal(got, []session.ID{"gamma", "alpha"}) {
		s.Fatalf("the list has %v", got)
	}
	page, err := s.lister().List(s.ctx, store.Query{Trash: true})
	s.ok(err)
	if len(page.Rows) != 1 || page.Total != 1 || page.Rows[0].ID != "beta" || page.Rows[0].LastActivity != before.LastActivity ||
		page.Rows[0].Pos != before.Pos || page.Rows[0].State != store.StateOK || page.Rows[0].Header.Cwd != before.Header.Cwd {
		s.Fatalf("the trash has %+v", page)
	}
	for prefix, want := range map[string]int{"beta": 1, "b": 1, "alpha": 0, "": 1} {
		if ids, err := r.MatchTrash(s.ctx, prefix, 4); err != nil || len(ids) != want {
			s.Fatalf("MatchTrash %q: %v, %v", prefix, ids, err)
		}
	}
	if ids, err := s.lister().Match(s.ctx, "beta", 4); err != nil || len(ids) != 0 {
		s.Fatalf("Match: %v, %v", ids, err)
	}
	if s.Reopen != nil {
		s.reopen()
		r = s.remover()
		s.gone("beta", true, false)
	}
	s.ok(r.Restore(s.ctx, "beta"))
	ev := user(0, "hello")
	ev.Time += 1000
	s.holds("beta", []session.Event{ev, chunk(1)})
	if after := s.stat("beta"); after.LastActivity != before.LastActivity || after.Bytes != before.Bytes {
		s.Fatalf("restored: %+v, was %+v", after, before)
	}
	if got := s.listed(store.Query{}); !slices.Equal(got, []session.ID{"gamma", "beta", "alpha"}) {
		s.Fatalf("the list has %v", got)
	}
	if got := s.listed(store.Query{Trash: true}); got != nil {
		s.Fatalf("the trash has %v", got)
	}
	s.is(r.Restore(s.ctx, "beta"), store.ErrNotTrashed, "Restore of a stored session")
	for _, id := range []session.ID{"nobody", "NOT AN ID"} {
		if err := r.Restore(s.ctx, id); !goneAs(err, false, false) {
			s.Errorf("Restore of %q: %v", id, err)
		}
		if err := r.Trash(s.ctx, id); !goneAs(err, false, false) {
			s.Errorf("Trash of %q: %v", id, err)
		}
	}
	w := s.open("beta")
	s.append(w, chunk(2))
	s.flush(w)
}

func removeHeld(s *suite) {
	r := s.remover()
	w := s.create("held", talk(0, 3)...)
	handles := []store.Remover{r}
	if s.Another != nil {
		handles = append(handles, s.Another(s.T).(store.Remover))
	}
	for i, h := range handles {
		err := h.Trash(s.ctx, "held")
		busy, ok := errors.AsType[*store.BusyError](err)
		if !ok || busy.Holder == nil {
			s.Fatalf("handle %d: Trash of a held session: %v", i, err)
		}
	}
	s.append(w, talk(3, 2)...)
	s.flush(w)
	s.ok(w.Close())
	w = s.open("held") // has written nothing yet
	for i, h := range handles {
		s.is(h.Trash(s.ctx, "held"), store.ErrBusy, "Trash of an opened session")
		_ = i
	}
	s.ok(w.Close())
	s.holds("held", talk(0, 5))
	s.ok(handles[len(handles)-1].Trash(s.ctx, "held"))
	s.gone("held", true, false)
}

func removeNeverAgain(s *suite) {
	r := s.remover()
	s.stored("other", talk(0, 5)...)
	s.stored("once", talk(0, 3)...)
	s.ok(r.Trash(s.ctx, "once"))
	s.never("once", false)
	s.purge("once")
	s.never("once", true)
	s.gone("once", false, true)
	if s.Reopen != nil {
		s.reopen()
		s.never("once", true)
		s.gone("once", false, true)
	}
	// Who had reserved the id before is too late.
	w, err := s.st.Create(s.ctx, header("late"))
	s.ok(err)
	if s.Another != nil {
		o := s.Another(s.T)
		h, err := o.Create(s.ctx, header("late"))
		if err == nil { // a driver may refuse this already
			_, err = h.Append(s.ctx, talk(0, 1))
			s.ok(err)
			s.ok(h.Close())
			s.ok(o.(store.Remover).Trash(s.ctx, "late"))
			_, err = w.Append(s.ctx, talk(0, 2))
			s.is(err, store.ErrExists, "the first append to an id that was deleted meanwhile")
		}
	}
}

func removePurge(s *suite) {
	r := s.remover()
	s.stored("keep", talk(0, 5)...)
	s.stored("drop", talk(0, 50)...)
	for id, want := range map[session.ID]error{"drop": store.ErrNotTrashed, "nobody": store.ErrNotFound, "NOT AN ID": store.ErrNotFound} {
		if out := r.Purge(s.ctx, []session.ID{id}); len(out) != 1 || !errors.Is(out[0].Err, want) {
			s.Fatalf("Purge of %q: %+v", id, out)
		}
	}
	s.holds("drop", talk(0, 50))
	s.ok(r.Trash(s.ctx, "drop"))
	out := r.Purge(s.ctx, []session.ID{"nobody", "drop", "keep", "drop"})
	if !errors.Is(out[0].Err, store.ErrNotFound) || out[1].Err != nil || out[1].Bytes == 0 || !errors.Is(out[2].Err, store.ErrNotTrashed) {
		s.Fatalf("%+v", out)
	}
	s.gone("drop", false, true)
	if err := r.Restore(s.ctx, "drop"); !goneAs(err, false, true) {
		s.Errorf("Restore of a purged session: %v", err)
	}
	if out := r.Purge(s.ctx, []session.ID{"drop"}); !goneAs(out[0].Err, false, true) {
		s.Errorf("a second purge: %v", out[0].Err)
	}
	if out := r.Purge(s.ctx, nil); len(out) != 0 {
		s.Errorf("a purge of nothing: %v", out)
	}
	if got := s.listed(store.Query{Trash: true}); got != nil {
		s.Errorf("the trash has %v", got)
	}
	s.holds("keep", talk(0, 5))
}

// family makes three generations and returns what each of them holds.
func (s *suite) family() map[session.ID][]session.Event {
	s.Helper()
	s.forker()
	all := talk(0, 60)
	s.stored("gen0", all...)
	grow := func(id session.ID, events []session.Event, n int) []session.Event {
		s.Helper()
		w := s.open(id)
		events = append(events[:len(events):len(events)], talk(session.Seq(len(events)), n)...)
		s.append(w, events[len(events)-n:]...)
		s.flush(w)
		s.ok(w.Close())
		return events
	}
	out := map[session.ID][]session.Event{"gen0": all}
	out["gen1"] = grow("gen1", s.fork("gen1", "gen0", 39, all), 20)        // 0..39 gen0, then its own
	out["gen1b"] = s.fork("gen1b", "gen0", 5, all)                         // nothing of its own but the boundary
	out["gen2"] = grow("gen2", s.fork("gen2", "gen1", 50, out["gen1"]), 9) // 0..39 gen0, 40..50 gen1
	out["early"] = grow("early", s.fork("early", "gen1", 20, out["gen1"]), 3)
	out["empty"] = s.fork("empty", "gen0", session.None, nil)
	return out
}

func (s *suite) whole(all map[session.ID][]session.Event, but ...session.ID) {
	s.Helper()
	for id, events := range all {
		if slices.Contains(but, id) {
			continue
		}
		s.holds(id, events)
		if st := s.stat(id); st.State != store.StateOK || st.Pos != posAfter(events) {
			s.Fatalf("%s: %+v", id, st)
		}
		if v, ok := s.st.(store.Verifier); ok {
			snap, err := v.Verify(s.ctx, id)
			s.ok(err)
			if len(snap.Damage) > 0 || snap.Pos != posAfter(events) {
				s.Fatalf("%s: verified to %v: %+v", id, snap.Pos, snap.Damage)
			}
			s.ok(snap.Close())
		}
	}
}

// removeForks deletes a family from its oldest to its youngest.
func removeForks(s *suite) {
	r := s.remover()
	all := s.family()
	var dead []session.ID
	for _, id := range []session.ID{"gen0", "gen1", "early", "gen2"} {
		s.ok(r.Trash(s.ctx, id))
		s.whole(all, append(dead, id)...)
		s.ok(r.Restore(s.ctx, id))
		s.whole(all, dead...)
		s.purge(id)
		dead = append(dead, id)
		s.whole(all, dead...)
		if s.Reopen != nil {
			s.reopen()
			r = s.remover()
			s.whole(all, dead...)
		}
		for heir, events := range all { // they can be written to
			if slices.Contains(dead, heir) {
				continue
			}
			w := s.open(heir)
			more := talk(session.Seq(len(events)), 2)
			s.append(w, more...)
			s.flush(w)
			s.ok(w.Close())
			all[heir] = append(events[:len(events):len(events)], more...)
		}
		s.whole(all, dead...)
	}
}

// removeForksTogether deletes forks that are in the trash with what they begin with, in any order.
func removeForksTogether(s *suite) {
	r := s.remover()
	all := s.family()
	for _, id := range []session.ID{"gen2", "gen0", "gen1"} {
		s.ok(r.Trash(s.ctx, id))
	}
	s.whole(all, "gen0", "gen1", "gen2")
	s.purge("gen0") // its forks in the trash get their part too
	s.ok(r.Restore(s.ctx, "gen2"))
	s.whole(all, "gen0", "gen1")
	s.purge("gen1", "early", "gen2")
	s.whole(all, "gen0", "gen1", "gen2", "early")
}

// removeForkOfHeir forks a session that was handed its beginning.
func removeForkOfHeir(s *suite) {
	all := s.family()
	s.purge("gen0")
	late := s.fork("late", "gen2", 55, all["gen2"])
	cut := s.fork("short", "gen2", 10, all["gen2"])
	s.whole(all, "gen0")
	s.purge("gen2", "gen1")
	s.holds("late", late)
	s.holds("short", cut)
	later := s.fork("later", "late", 56, late)
	s.purge("late")
	s.holds("later", later)
}

func removeBlobs(s *suite) {
	b := s.blobs()
	s.forker()
	big := func(c string) string { return strings.Repeat(c, 40000) }
	note := func(text string) string { // a value that somebody attached, named in a message
		name, err := b.PutBlob(s.ctx, []byte(text))
		s.ok(err)
		return name
	}
	only, both, inText, early, late := note("only of it"), note("of both"), note("named in a long text"), note("before the cut"), note("behind the cut")
	parent := []session.Event{user(0, "see "+early), user(1, big("p")), user(2, big("s")), user(3, big("l")+inText), user(4, "see "+late+" and "+only), user(5, "and "+both+" "+inText)}
	s.stored("parent", parent...)
	other := []session.Event{user(0, big("s")), user(1, "see "+both)}
	s.stored("other", other...)
	long := []session.Event{user(0, big("l")+inText)} // the same string: the same blob, which names another
	s.stored("long", long...)
	child := s.fork("child", "parent", 1, parent)

	deps, err := s.remover().Dependents(s.ctx, []session.ID{"parent"}, true)
	s.ok(err)
	by := map[string]string{}
	for _, sb := range deps[0].Blobs {
		var ids []string
		for _, id := range sb.By {
			ids = append(ids, string(id))
		}
		by[sb.Name] = strings.Join(ids, " ")
	}
	if by[both] != "other" || by[inText] != "long" || by[only] != "" || by[late] != "" {
		s.Errorf("shared blobs: %v", by)
	}

	out := s.purge("parent")
	if out[0].Blobs != 2 { // late and only
		s.Errorf("%+v", out[0])
	}
	for _, name := range []string{only, late} {
		if _, err := b.GetBlob(s.ctx, name); !errors.Is(err, store.ErrNotFound) {
			s.Errorf("a blob that nobody names is still there: %v", err)
		}
	}
	for _, name := range []string{both, inText, early} {
		_, err := b.GetBlob(s.ctx, name)
		s.ok(err)
	}
	s.holds("other", other)
	s.holds("long", long)
	s.holds("child", child)
	s.purge("child")
	if _, err := b.GetBlob(s.ctx, early); !errors.Is(err, store.ErrNotFound) {
		s.Errorf("the blob of the last fork is still there: %v", err)
	}
	s.holds("other", other)
}

func removeDependents(s *suite) {
	r := s.remover()
	s.family()
	s.ok(r.Trash(s.ctx, "gen1b"))
	deps, err := r.Dependents(s.ctx, []session.ID{"gen0", "gen1", "gen2"}, false)
	s.ok(err)
	type part struct {
		id        session.ID
		trashed   bool
		from, end session.Seq
	}
	want := [][]part{{{"early", false, 0, 21}, {"gen1b", true, 0, 6}}, nil, nil}
	for i, d := range deps {
		var got []part
		for _, h := range d.Heirs {
			got = append(got, part{h.ID, h.Trashed, h.From, h.End})
			if h.Bytes <= 0 {
				s.Errorf("%+v", h)
			}
		}
		if !slices.Equal(got, want[i]) || d.Blobs != nil {
			s.Errorf("dependents of %s: %+v", d.ID, d)
		}
	}
	deps, err = r.Dependents(s.ctx, []session.ID{"gen1"}, true)
	s.ok(err)
	if h := deps[0].Heirs; len(h) != 1 || h[0].ID != "gen2" || h[0].From != 40 || h[0].End != 51 || deps[0].Blobs == nil || len(deps[0].Blobs) != 0 {
		s.Errorf("dependents of gen1: %+v", deps[0])
	}
	_, err = r.Dependents(s.ctx, []session.ID{"gen1", "nobody"}, false)
	s.is(err, store.ErrNotFound, "Dependents")
}
