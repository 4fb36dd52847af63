package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Histories of real processes. Each of a few children has the store open and does what it is told, one operation after the
// other; all are told at the same time. The parent notes a moment before it asks and one behind the answer, so
// an operation took place somewhere between the two. A history is right if there is an order of its operations, each at
// one moment of its own time, in which they are what one log with at most one writer would have answered.

// deed is what a process was asked, as the model sees it. An append is one deed for each event: a reader may see the
// first of a batch without the second.
type deed struct {
	op    string // open, append, read, fork, close, died
	who   string
	known string // append: the log as this life knows it, without the event
	id    string // append: the event
}

// outcome is what was answered.
type outcome struct {
	as  string // ok, busy, or unknown: it failed in a way that leaves open whether it had an effect
	log string // open, read: all that was there; fork: what the child inherited
}

// logState is a log and who may write it: "" if nobody.
type logState struct{ log, writer string }

// logModel is the log that every history must look like; it begins with the events begin. With strict every lock works:
// then there is one writer, and who is told that the session is busy has met it.
func logModel(strict bool, begin string) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{logState{log: begin}} },
		Step: func(state, input, output any) []any {
			st, in, out := state.(logState), input.(deed), output.(outcome)
			mayOpen := !strict || st.writer == ""
			mayAppend := st.log == in.known && (!strict || st.writer == in.who)
			opened, appended := logState{st.log, in.who}, logState{st.log + in.id, st.writer}
			switch in.op + " " + out.as {
			case "open ok":
				return when(mayOpen && st.log == out.log, opened)
			case "open unknown":
				return append(when(mayOpen, opened), st)
			case "open busy":
				return when(!strict || st.writer != "", st)
			case "append ok":
				return when(mayAppend, appended)
			case "append unknown":
				return append(when(mayAppend, appended), st)
			case "read ok":
				return when(st.log == out.log, st)
			case "fork ok":
				return when(strings.HasPrefix(st.log, out.log), st)
			case "close ok", "died ok":
				if st.writer == in.who {
					st.writer = ""
				}
				return []any{st}
			}
			panic("no deed: " + in.op + " " + out.as)
		},
	}).ToModel()
}

func when(ok bool, next logState) []any {
	if ok {
		return []any{next}
	}
	return nil
}

func (d deed) String() string {
	return fmt.Sprintf("%s: %s %s", d.who, d.op, strings.TrimSpace(d.known+" "+d.id))
}

// The checker must be able to fail. Every log begins with x.
func TestHistoriesThatCannotBe(t *testing.T) {
	type op = porcupine.Operation
	did := func(client int, from, to int64, in deed, as, log string) op {
		in.who = string(rune('a' + client))
		return op{ClientId: client, Call: from, Return: to, Input: in, Output: outcome{as, log}}
	}
	open, read, fork := deed{op: "open"}, deed{op: "read"}, deed{op: "fork"}
	add := func(known, id string) deed { return deed{op: "append", known: known, id: id} }
	for _, c := range []struct {
		name         string
		strict, want bool
		ops          []op
	}{
		{"one life", true, true, []op{did(0, 1, 2, open, "ok", "x."), did(1, 3, 4, open, "busy", ""), did(0, 5, 8, add("x.", "y."), "ok", ""),
			did(1, 6, 7, read, "ok", "x.y."), did(1, 9, 10, fork, "ok", "x.y."), did(0, 11, 12, deed{op: "close"}, "ok", ""), did(1, 13, 14, open, "ok", "x.y.")}},
		{"a fenced append that was read", false, true, []op{did(0, 1, 2, open, "ok", "x."), did(0, 3, 6, add("x.", "y."), "unknown", ""),
			did(1, 4, 5, open, "ok", "x.y."), did(1, 7, 8, add("x.y.", "z."), "ok", "")}},
		{"one seq acknowledged twice", false, false, []op{did(0, 1, 2, open, "ok", "x."), did(1, 3, 4, open, "ok", "x."),
			did(0, 5, 8, add("x.", "y."), "ok", ""), did(1, 6, 7, add("x.", "z."), "ok", "")}},
		{"an acknowledged event that is not read", false, false, []op{did(0, 1, 2, open, "ok", "x."), did(0, 3, 4, add("x.", "y."), "ok", ""),
			did(1, 5, 6, read, "ok", "x.")}},
		{"read, and gone again", false, false, []op{did(0, 1, 2, open, "ok", "x."), did(0, 3, 10, add("x.", "y."), "unknown", ""),
			did(1, 4, 5, read, "ok", "x.y."), did(1, 6, 7, read, "ok", "x.")}},
		{"a batch without its beginning", false, false, []op{did(0, 1, 10, add("x.", "y."), "unknown", ""), did(0, 1, 10, add("x.y.", "z."), "unknown", ""),
			did(1, 4, 5, read, "ok", "x.z.")}},
		{"a fenced append that comes late", false, false, []op{did(0, 1, 2, open, "ok", "x."), did(0, 3, 4, add("x.", "y."), "unknown", ""),
			did(1, 5, 6, read, "ok", "x."), did(1, 7, 8, read, "ok", "x.y.")}},
		{"two that hold it", true, false, []op{did(0, 1, 2, open, "ok", "x."), did(1, 3, 4, open, "ok", "x.")}},
		{"busy with nobody", true, false, []op{did(0, 1, 2, open, "ok", "x."), did(0, 3, 4, deed{op: "died"}, "ok", ""), did(1, 5, 6, open, "busy", "")}},
		{"a fork of what was not there", true, false, []op{did(0, 1, 2, open, "ok", "x."), did(1, 3, 4, fork, "ok", "x.y.")}},
	} {
		if got := porcupine.CheckOperations(logModel(c.strict, "x."), c.ops); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// player is what the parent knows of one child.
type player struct {
	h     *history
	n     int
	name  string
	p     *proc
	spare *proc // takes its place when it was killed
	rnd   *rand.Rand
	made  int    // events and forks, to name them
	holds bool   // it has the session open
	known string // then: the log as it knows it
}

// history is what a few players did side by side.
type history struct {
	t        *testing.T
	root     string
	meddling bool
	clock    atomic.Int64
	mu       sync.Mutex
	ops      []porcupine.Operation
	as       map[string]int // how often what was answered
}

func (h *history) note(p *player, from, to int64, in deed, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in.who = p.name
	h.ops = append(h.ops, porcupine.Operation{ClientId: p.n, Call: from, Return: to, Input: in, Output: out})
	h.as[in.op+" "+out.as]++
}

// replace makes session.json anew, as somebody may who has copied the store.
func (h *history) replace() {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := filepath.Join(h.root, "sessions", string(subject), headerName)
	b, err := os.ReadFile(name)
	if err == nil {
		err = errors.Join(os.WriteFile(name+".copy", b, 0o600), os.Remove(name), os.Rename(name+".copy", name))
	}
	if err != nil {
		h.t.Errorf("replacing session.json: %v", err)
	}
}

// ask tells the child what to do and returns its answer, "" if it was killed before it gave one.
func (p *player) ask(kill bool, line string) (from, to int64, as, log string) {
	from = p.h.clock.Add(1)
	if _, err := fmt.Fprintln(p.p.in, line); err != nil {
		p.h.t.Errorf("%s: %v", p.name, err)
	}
	if kill {
		for range p.rnd.IntN(4000) { // a moment that is not always the same
			os.Getppid()
		}
		at := p.h.clock.Add(1)
		p.p.cmd.Process.Kill()
		for p.p.out.Scan() {
			line = p.p.out.Text()
			as, log, _ = strings.Cut(line, " ")
		}
		p.p.cmd.Wait()
		to = p.h.clock.Add(1)
		p.h.note(p, at, to, deed{op: "died"}, outcome{as: "ok"})
		return from, to, as, log
	}
	if !p.p.out.Scan() {
		p.h.t.Errorf("%s said nothing to %s", p.name, line)
		return from, from, "error", "nothing"
	}
	to = p.h.clock.Add(1)
	as, log, _ = strings.Cut(p.p.out.Text(), " ")
	return from, to, as, log
}

// do has the child do one thing and notes it. It returns false when the child cannot go on.
func (p *player) do(op string, kill bool) bool {
	in, line := deed{op: op}, op
	var ids []string
	switch op {
	case "append":
		for range 1 + p.rnd.IntN(3) {
			p.made++
			ids = append(ids, fmt.Sprintf("%s%d.", p.name, p.made))
		}
		line += " " + strings.Join(ids, " ")
	case "fork":
		p.made++
		line += fmt.Sprintf(" fork-%s-%d", p.name, p.made)
	}
	from, to, as, log := p.ask(kill, line)
	p.holds = p.holds && !kill
	switch {
	case as == "" && op != "open" && op != "append":
		return !kill
	case as == "", as == "fenced" && p.h.meddling:
		as = "unknown"
		p.holds = p.holds && op != "append" // the child has closed it
	case as == "absent" && p.h.meddling: // session.json was away
		return !kill
	case as != "ok" && !(as == "busy" && op == "open"):
		p.h.t.Errorf("%s: %s: %s %s", p.name, line, as, log)
		return false
	}
	switch op {
	case "append":
		for _, id := range ids {
			in.known, in.id = p.known, id
			p.h.note(p, from, to, in, outcome{as: as})
			p.known += id
		}
	case "open":
		p.h.note(p, from, to, in, outcome{as, log})
		if as == "ok" && !kill {
			p.holds, p.known = true, log
		}
	case "close":
		p.holds = false
		fallthrough
	default:
		p.h.note(p, from, to, in, outcome{as, log})
	}
	return !kill
}

// play does so many things, and lets go.
func (p *player) play(steps, killAt int) {
	deeds := map[bool][]string{
		false: {"open", "open", "open", "read", "read", "fork"},
		true:  {"append", "append", "append", "append", "read", "fork", "close"},
	}
	for step := range steps {
		if p.h.meddling && p.rnd.IntN(6) == 0 {
			p.h.replace()
		}
		ops := deeds[p.holds]
		if ok := p.do(ops[p.rnd.IntN(len(ops))], step == killAt); !ok {
			if step != killAt {
				return
			}
			p.p, p.spare = p.spare, nil
			if _, _, as, log := p.ask(false, "root "+p.h.root); as != "ok" {
				p.h.t.Errorf("%s: %s", p.name, log)
				return
			}
		}
	}
	if p.holds {
		p.do("close", false)
	}
}

// TestHistories checks what real processes saw: with every lock, with deaths, and with a session.json that is replaced again
// and again. STRANDLINE_HISTORIES says how many of each.
func TestHistories(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_HISTORIES")); err == nil {
		rounds = n
	}
	for _, c := range []struct {
		name            string
		kills, meddling bool
		must            []string // answers without which nothing was tried
	}{
		{"every lock", false, false, []string{"append ok", "open busy", "read ok", "fork ok", "close ok"}},
		{"deaths", true, false, []string{"append ok", "died ok"}},
		{"session.json replaced", false, true, []string{"append ok", "append unknown"}},
		{"session.json replaced, and deaths", true, true, []string{"append ok", "append unknown", "died ok"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			total, ops := map[string]int{}, 0
			players := make([]*player, 3)
			for i := range players {
				players[i] = &player{n: i, name: string(rune('a' + i)), p: startChild(t, "history", "-")}
			}
			for round := range rounds {
				h := &history{t: t, root: t.TempDir(), meddling: c.meddling, as: total}
				s := openStore(t, h.root, nil)
				w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
				mustAppend(t, w, named(0, "x."))
				mustFlush(t, w)
				w.Close()
				var wg sync.WaitGroup
				for i, p := range players {
					p.h, p.rnd = h, rand.New(rand.NewPCG(uint64(round), uint64(i)))
					killAt := -1
					if c.kills && p.rnd.IntN(3) > 0 {
						killAt = p.rnd.IntN(14)
						if p.spare == nil {
							p.spare = startChild(t, "history", "-")
						}
					}
					if _, _, as, log := p.ask(false, "root "+h.root); as != "ok" {
						t.Fatal(log)
					}
					wg.Go(func() { p.play(16, killAt) })
				}
				wg.Wait()
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
				h.finish(s, !c.meddling)
				ops += len(h.ops)
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
			for _, what := range c.must {
				if total[what] == 0 {
					t.Errorf("%s never happened: %v", what, total)
				}
			}
			t.Logf("%d histories, %d operations: %v", rounds, ops, total)
		})
	}
}

// finish reads what is there in the end and checks the history.
func (h *history) finish(s *Store, strict bool) {
	from := h.clock.Add(1)
	got, snap := readEvents(h.t, s, subject)
	if len(snap.Damage) > 0 || snap.Lost != nil {
		h.t.Errorf("in the end: damage %+v, lost %v", snap.Damage, snap.Lost)
	}
	h.note(&player{n: 3, name: "the end"}, from, h.clock.Add(1), deed{op: "read"}, outcome{"ok", names(got)})
	if porcupine.CheckOperations(logModel(strict, "x."), h.ops) {
		return
	}
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range h.ops {
		fmt.Fprintf(&b, "\n%4d to %4d: %v: %v", o.Call, o.Return, o.Input, o.Output)
	}
	h.t.Errorf("no order explains this:%s", b.String())
}

// named makes events that tell who made them, as which of his.
func named(first session.Seq, ids ...string) []session.Event {
	evs := events(first, len(ids))
	for i, id := range ids {
		evs[i].Data = jsontext.Value(fmt.Sprintf("{%q:1}", id))
	}
	return evs
}

// names is the inverse.
func names(evs []session.Event) string {
	var b strings.Builder
	for _, ev := range evs {
		id, _, _ := strings.Cut(strings.TrimPrefix(string(ev.Data), `{"`), `"`)
		b.WriteString(id)
	}
	return b.String()
}

// historian is a child that does what it is told, a line for a line.
func historian() error {
	ctx := context.Background()
	var s *Store
	var w store.Writer
	logOf := func(p session.Prefix) (string, error) {
		var evs []session.Event
		for ev, err := range p.Range(0, p.Len()) {
			if err != nil {
				return "", err
			}
			evs = append(evs, ev)
		}
		return names(evs), nil
	}
	read := func(id session.ID) (string, session.Seq, error) {
		snap, err := s.Read(ctx, id)
		if err != nil {
			return "", 0, err
		}
		defer snap.Close()
		if len(snap.Damage) > 0 {
			return "", 0, &store.DamagedError{ID: id, Owner: id, Ranges: snap.Damage}
		}
		log, err := logOf(snap.Prefix)
		return log, snap.Prefix.Len(), err
	}
	do := func(op string, args []string) (log string, err error) {
		switch op {
		case "root":
			if s != nil {
				err = s.Close()
			}
			o := testOptions()
			o.PID, o.FS, o.SegmentBytes = os.Getpid(), unsynced, 600
			if err == nil {
				s, err = Open(args[0], o)
			}
			return "", err
		case "open":
			if w, err = s.Open(ctx, subject); err != nil {
				w = nil
				return "", err
			}
			return logOf(w.Opened().Prefix)
		case "append":
			if _, err = w.Append(ctx, named(w.Stored().Len(), args...)); err == nil {
				_, err = w.Flush(ctx)
			}
			if err != nil { // overtaken
				err = errors.Join(err, w.Close())
			}
			return "", err
		case "close":
			return "", w.Close()
		case "read":
			log, _, err = read(subject)
			return log, err
		case "fork":
			_, n, err := read(subject)
			if err != nil {
				return "", err
			}
			child := session.ID(args[0])
			h, err := forkHeader(ctx, s, child, n-1)
			if err == nil {
				err = s.CreateFork(ctx, h, named(n, "/"))
			}
			if err == nil {
				log, _, err = read(child)
			}
			return strings.TrimSuffix(log, "/"), err
		}
		return "", fmt.Errorf("what is %q", op)
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Fields(in.Text())
		log, err := do(f[0], f[1:])
		answer := "ok " + log
		switch {
		case errors.Is(err, store.ErrBusy):
			answer = "busy"
		case errors.Is(err, store.ErrFenced):
			answer = "fenced"
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrDamaged) && strings.Contains(err.Error(), headerName):
			answer = "absent"
		case err != nil:
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		if _, err := fmt.Println(answer); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
