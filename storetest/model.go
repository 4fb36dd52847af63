package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var modelTests = []test{{"Random", modelRandom}}

// model is what a store must hold: a map of slices.
type model struct {
	*suite
	rnd  *rand.Rand
	logs map[session.ID][]session.Event
	held map[session.ID]store.Writer
}

// modelRandom does anything in any order and compares with the model.
func modelRandom(s *suite) {
	for seed := range uint64(4) {
		m := &model{suite: s, rnd: rand.New(rand.NewPCG(3, seed)), logs: map[session.ID][]session.Event{}, held: map[session.ID]store.Writer{}}
		for i := range 250 {
			m.step(session.ID(fmt.Sprintf("m%d-%02d", seed, m.rnd.IntN(12))), i)
			if s.Failed() {
				s.Fatalf("seed %d, step %d", seed, i)
			}
		}
		for id, log := range m.logs {
			s.holds(id, log)
		}
		for id, w := range m.held {
			s.ok(w.Close())
			delete(m.held, id)
		}
		for id, log := range m.logs {
			s.holds(id, log)
		}
	}
}

func (m *model) step(id session.ID, i int) {
	m.Helper()
	log, stored := m.logs[id]
	w := m.held[id]
	switch op := m.rnd.IntN(10); {
	case op < 4 && w != nil: // append, sometimes with a retry
		from := len(log) - m.rnd.IntN(min(len(log), 3)+1)
		batch := append(log[from:len(log):len(log)], m.talk(len(log), 1+m.rnd.IntN(9), i)...)
		if pos := m.append(w, batch...); pos.Next != session.Seq(from+len(batch)) {
			m.Errorf("position %v", pos)
		}
		m.logs[id] = append(log[:from:from], batch...)
	case op == 4 && w != nil:
		if pos := m.flush(w); pos != posAfter(log) {
			m.Errorf("flush: %v, want %v", pos, posAfter(log))
		}
	case op == 5 && w != nil:
		m.ok(w.Close())
		delete(m.held, id)
	case op <= 6 && !stored && w == nil:
		m.held[id] = m.create(id)
	case op <= 6 && !stored:
		_, err := m.st.Create(m.ctx, header(id))
		m.is(err, store.ErrExists, "Create of a reserved id")
	case op <= 6 && w == nil:
		m.held[id] = m.open(id)
		m.prefixIs(m.held[id].Opened().Prefix, log)
	case op <= 6:
		_, err := m.st.Open(m.ctx, id)
		m.is(err, store.ErrBusy, "Open of a held session")
	case op == 7 && stored && len(log) > 0:
		f, ok := m.st.(store.Forker)
		if !ok {
			return
		}
		child := session.ID(fmt.Sprintf("%s-f%d", id, i))
		if len(child) > 40 {
			return
		}
		at := session.Seq(m.rnd.IntN(len(log)))
		m.ok(f.CreateFork(m.ctx, m.childHeader(child, id, at), []session.Event{boundary(at + 1)}))
		m.logs[child] = append(log[:at+1:at+1], boundary(at+1))
		if m.rnd.IntN(2) == 0 { // the child takes part
			w := m.open(child)
			next := m.talk(int(at)+2, 3, i)
			m.append(w, next...)
			m.logs[child] = append(m.logs[child], next...)
			m.ok(w.Close())
		}
	default:
		st, err := m.st.Stat(m.ctx, id)
		if !stored {
			if !errors.Is(err, store.ErrNotFound) {
				m.Errorf("Stat: %v", err)
			}
			return
		}
		m.ok(err)
		if st.Pos != posAfter(log) || (st.Holder != nil) != (w != nil) {
			m.Errorf("Stat: %+v, want %v, held %v", st, posAfter(log), w != nil)
		}
		m.holds(id, log)
	}
}

// talk is different for each step, so that no two logs are equal by accident.
func (m *model) talk(first, n, i int) []session.Event {
	out := talk(session.Seq(first), n)
	for k := range out {
		out[k].Time += int64(i * 1000)
	}
	return out
}
