package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func init() {
	children["p6-writer"] = playP6Writer
	children["p6-rival"] = playP6Rival
}

const p6ID = "two-writers"

// playP6Writer appends 200 records at random intervals, prints each seq when it is acknowledged, and holds on.
func playP6Writer(args []string) error {
	a, err := createAuthor(args[0], p6ID, args[1], 1_700_000_000_000)
	if err != nil {
		return err
	}
	seed, _ := strconv.ParseUint(args[2], 10, 64)
	if err := writeP6(a, seed, func(n int) { fmt.Println("acknowledged", n) }); err != nil {
		return err
	}
	return hold()
}

// writeP6 appends 200 records: a turn of six now and then, titles else.
func writeP6(a *author, seed uint64, told func(int)) error {
	r := rand.New(rand.NewPCG(seed, 6))
	for n := 0; n < 200; {
		if n <= 194 && r.IntN(10) == 0 {
			if err := a.say("question", "answer"); err != nil {
				return err
			}
			n += 6
		} else {
			if err := a.add(titled(fmt.Sprintf("title %d", n))); err != nil {
				return err
			}
			n++
		}
		told(n)
		spin(r.IntN(2_000_000))
	}
	return nil
}

// rivalReport is what a process that wants to write saw.
type rivalReport struct {
	Tries, Got  int
	Grew        int // reads that saw more than the one before
	MaxAnswerMs float64
	Holder      store.Holder
	Message     string
	Ways        []string
	Reads       int
	Log         []string // what it read last, event by event
}

// playP6Rival tries 50 times to open the session for writing, reads it between the tries, and prints what
// it saw.
func playP6Rival(args []string) error {
	st, err := openStore(args[0])
	if err != nil {
		return err
	}
	defer st.Close()
	rep, err := rival(st)
	if err != nil {
		return err
	}
	b, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	return nil
}

// rival fails when a read is not a prefix of what was read later, or when the answer to a try is not busy.
func rival(st store.Store) (rivalReport, error) {
	var rep rivalReport
	ctx := context.Background()
	var last []session.Event
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), 6))
	for range 50 {
		spin(r.IntN(2_000_000))
		start := time.Now()
		w, err := st.Open(ctx, p6ID)
		rep.MaxAnswerMs = max(rep.MaxAnswerMs, float64(time.Since(start).Microseconds())/1000)
		rep.Tries++
		var busy *store.BusyError
		switch {
		case err == nil:
			rep.Got++
			_ = w.Close()
		case !errors.As(err, &busy):
			return rep, fmt.Errorf("the answer to opening a held session is %v", err)
		case busy.Holder == nil:
			return rep, errors.New("the answer does not name the holder")
		default:
			rep.Holder, rep.Message, rep.Ways = *busy.Holder, busy.Error(), busy.Ways()
		}
		sn, err := st.Read(ctx, p6ID)
		if err != nil {
			return rep, err
		}
		if len(sn.Damage) > 0 || len(sn.Lost) > 0 {
			return rep, fmt.Errorf("a read while another writes finds damage: %+v %+v", sn.Damage, sn.Lost)
		}
		var evs []session.Event
		for ev, err := range sn.Prefix.Range(0, sn.Prefix.Len()) {
			if err != nil {
				return rep, err
			}
			evs = append(evs, ev)
		}
		if err := sn.Close(); err != nil {
			return rep, err
		}
		if len(evs) < len(last) {
			return rep, fmt.Errorf("a read has %d events, the one before it had %d", len(evs), len(last))
		}
		for i, ev := range last {
			if string(evs[i].Data) != string(ev.Data) || evs[i].Seq != session.Seq(i) || evs[i].Type != ev.Type {
				return rep, fmt.Errorf("event %d was %+v, and later %+v", i, ev, evs[i])
			}
		}
		if len(evs) > len(last) {
			rep.Grew++
		}
		last = evs
		rep.Reads++
	}
	for _, ev := range last {
		rep.Log = append(rep.Log, ev.Type+" "+string(ev.Data))
	}
	return rep, nil
}

func (rep rivalReport) check(t *testing.T, l storedLog, pid int) {
	t.Helper()
	host, _ := os.Hostname()
	h := rep.Holder
	if rep.Got != 0 || rep.Tries != 50 || rep.Reads != 50 {
		t.Errorf("a rival of a living writer got in %d times of %d, and read %d times", rep.Got, rep.Tries, rep.Reads)
	}
	if h.PID != pid || h.Host != host || h.Program != "scenario" || h.Since.IsZero() || time.Since(h.Since) > time.Hour {
		t.Errorf("the holder is told as %+v, want pid %d, host %s, program scenario and a start", h, pid, host)
	}
	for _, s := range []string{strconv.Itoa(pid), host, "scenario", h.Since.Format("2006-01-02")} {
		if !strings.Contains(rep.Message, s) {
			t.Errorf("the message %q does not say %q", rep.Message, s)
		}
	}
	ways := strings.Join(rep.Ways, "; ")
	for _, s := range []string{"tail", "take-over", "fork"} {
		if !strings.Contains(ways, s) {
			t.Errorf("the ways on are %q: no %s", ways, s)
		}
	}
	for i, s := range rep.Log {
		if i >= len(l.recs) || l.recs[i].Type+" "+string(l.recs[i].Data) != s {
			t.Errorf("a read had event %d as %s, which is not in the final log", i, s)
		}
	}
	t.Logf("slowest of 50 answers: %.1f ms; %d of 50 reads saw the log grow", rep.MaxAnswerMs, rep.Grew)
}

// TestP6_TwoProcessesOneSession: one process writes 200 records, rivals try to write and read all the time.
func TestP6_TwoProcessesOneSession(t *testing.T) {
	for _, rivals := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d rivals", rivals), func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			a := part(t, "p6-writer", b.store, b.ws, "1")
			a.until("acknowledged")
			var ps []*proc
			for range rivals {
				ps = append(ps, part(t, "p6-rival", b.store))
			}
			// One more through the command, which has its own words for it.
			checkBusy(b, p6ID, a.cmd.Process.Pid, "scenario")
			// Readers through the export, while it is written.
			var exports []string
			for range 5 {
				exports = append(exports, b.ok("export", p6ID, "--no-redact").out)
			}
			var reports []string
			for _, p := range ps {
				out, ok := p.next()
				if code := p.wait(); code != 0 || !ok {
					t.Fatalf("a rival ended with exit code %d: %s", code, p.errs)
				}
				reports = append(reports, out)
			}
			a.until("ready")
			l := b.log(p6ID)
			if len(l.recs) != 200 {
				t.Errorf("the log has %d records, want 200", len(l.recs))
			}
			for _, out := range reports {
				decode[rivalReport](t, out).check(t, l, a.cmd.Process.Pid)
			}
			had := -1
			for _, out := range append(exports, b.ok("export", p6ID, "--no-redact").out) {
				n := exportedPrefix(t, out, l)
				if n < had {
					t.Errorf("an export has %d records, the one before it had %d", n, had)
				}
				had = n
			}
			if had != 200 {
				t.Errorf("the last export has %d records, want 200", had)
			}
			a.kill()
			a.wait()
			// The next writer gets in at its first try.
			start := time.Now()
			next, err := resumeAuthor(b.store, p6ID, 1_700_000_100_000)
			if err != nil {
				t.Fatalf("after the death of the writer: %v", err)
			}
			t.Logf("open after the death of the writer: %v", time.Since(start))
			if err := next.add(titled("after")); err != nil {
				t.Error(err)
			}
			if err := next.close(); err != nil {
				t.Error(err)
			}
			if l := b.log(p6ID); len(l.recs) != 202 {
				t.Errorf("the log has %d records, want 200, a boundary and one more", len(l.recs))
			}
		})
	}
	t.Run("two handles in one process", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		a, err := createAuthor(b.store, p6ID, b.ws, 1_700_000_000_000)
		if err != nil {
			t.Fatal(err)
		}
		first, done := make(chan struct{}), make(chan error, 1)
		var once sync.Once
		go func() { done <- writeP6(a, 2, func(int) { once.Do(func() { close(first) }) }) }()
		<-first
		// The same store, and another one on the same directory.
		other, err := openStore(b.store)
		if err != nil {
			t.Fatal(err)
		}
		var reports []rivalReport
		for _, st := range []store.Store{a.st, other} {
			rep, err := rival(st)
			if err != nil {
				t.Error(err)
			}
			reports = append(reports, rep)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		l := b.log(p6ID)
		if len(l.recs) != 200 {
			t.Errorf("the log has %d records, want 200", len(l.recs))
		}
		for _, rep := range reports {
			rep.check(t, l, os.Getpid())
		}
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
		next, err := resumeAuthor(b.store, p6ID, 1_700_000_100_000)
		if err != nil {
			t.Fatalf("after the writer let go: %v", err)
		}
		if err := errors.Join(next.add(titled("after")), next.close(), other.Close()); err != nil {
			t.Error(err)
		}
	})
}

// exportedPrefix checks that an export is whole in itself and a prefix of the log, and returns its records' number.
func exportedPrefix(t *testing.T, out string, l storedLog) int {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	first := decode[struct {
		Events int `json:"events"`
	}](t, lines[0])
	n := 0
	for _, line := range lines[1:] {
		e, err := parseEntry([]byte(line))
		if err != nil {
			t.Errorf("an export while another process writes: %v", err)
			return n
		}
		if n >= len(l.recs) || e.event != l.recs[n].event || e.Chain[:16] != l.recs[n].Chain[:16] {
			t.Errorf("record %d of an export is %s, which is not in the final log", n, line)
			return n
		}
		n++
	}
	if n != first.Events {
		t.Errorf("an export has %d records, and promises %d", n, first.Events)
	}
	return n
}
