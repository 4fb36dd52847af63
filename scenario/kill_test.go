package scenario

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// tally counts where the kills landed and what they left.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *tally) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.n)) {
		fmt.Fprintf(&b, "%6d  %s\n", c.n[k], k)
	}
	return b.String()
}

func envInt(name string, def int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return def
}

// TestKillLoop is the main promise: a session that a scripted model and real tools work on is killed at
// random moments, several times in a row, also while it is being resumed. Nothing acknowledged is lost,
// every log opens at once, every view is legal, no call runs twice, and work goes on.
func TestKillLoop(t *testing.T) {
	seeds, from := envInt("STRANDLINE_KILL_SEEDS", 50), envInt("STRANDLINE_KILL_FROM", 1)
	c := &tally{n: map[string]int{}}
	start := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for i := range seeds {
			t.Run(strconv.Itoa(from+i), func(t *testing.T) {
				t.Parallel()
				killOne(t, uint64(from+i), c)
			})
		}
	})
	t.Logf("%d seeds, %v each:\n%v", seeds, (time.Since(start) / time.Duration(seeds)).Round(time.Millisecond), c)
	if seeds >= 50 && !t.Failed() {
		// A loop that never hits anything proves nothing.
		for _, want := range []string{"call left: unknown", "kill: while working", "lives: resumed over an open turn"} {
			if c.n[want] == 0 {
				t.Errorf("no kill led to %q: the loop misses what it is for", want)
			}
		}
	}
}

// victim is a session that is killed again and again.
type victim struct {
	*box
	r       *rand.Rand
	c       *tally
	id      string           // "" until it is stored
	printed map[int64]string // every event that some life printed as committed
	hadOpen bool             // a death left a call of unknown outcome

	provider string   // that drives it
	wire     *wireLog // what was asked over HTTP; nil: the script is played in process
	serving  *service // of this life
	seed     uint64
}

func killOne(t *testing.T, seed uint64, c *tally) {
	v := &victim{box: newBox(t), r: rand.New(rand.NewPCG(seed, 7)), c: c, printed: map[int64]string{}, provider: "script"}
	v.liveAndDie(func(k task) { v.killedLife(k) })
	v.openTwice()
	v.noLitter()
	c.add("sessions")
	if v.hadOpen {
		c.add("sessions: with a call of unknown outcome")
	}
}

// liveAndDie kills a session several times, each time in the way of killed, and lets it work to its end.
func (v *victim) liveAndDie(killed func(task)) {
	lives := 1 + v.r.IntN(4)
	var prompts []string
	for life := range lives {
		k := newTask(v.r, v.out, life)
		prompts = append(prompts, k.prompt)
		killed(k)
		v.check()
		if v.t.Failed() {
			return
		}
	}
	k := newTask(v.r, v.out, lives)
	prompts = append(prompts, k.prompt)
	v.lastLife(k)
	v.check()
	v.account(prompts)
}

// noLitter: what earlier lives of the session left half made is gone when a later one has worked.
func (v *victim) noLitter() {
	for name := range snap(v.t, filepath.Join(v.store, "sessions", v.id)) {
		if strings.HasPrefix(filepath.Base(name), ".") && name != "." {
			v.t.Errorf("%s is left", name)
		}
	}
}

func (v *victim) args(k task, output string) []string {
	var args []string
	if v.wire != nil {
		v.serving = v.serve(k.lines, v.address())
		args = v.wireArgs(v.serving, k.prompt, "--output", output)
	} else {
		args = v.runArgs(k.prompt, k.lines, "--output", output)
	}
	if v.id != "" {
		args = append(args, "--session", v.id)
	}
	return args
}

// killedLife runs a task and kills it after a random number of printed lines and a moment more.
func (v *victim) killedLife(k task) (killed bool) {
	if v.id != "" && len(v.log(v.id).openTurn()) > 0 {
		v.c.add("lives: resumed over an open turn")
	}
	p := v.start(v.args(k, "stream-json")...)
	last := "nothing"
	lines, delay := v.r.IntN(k.events*5/4), v.r.IntN(2_000_000) // a moment of up to about 3 ms
	if v.r.IntN(4) == 0 {
		lines, delay = 0, v.r.IntN(20_000_000) // while it starts, opens, and makes its first file
	}
	for range lines {
		l, ok := p.next()
		if !ok {
			break
		}
		last = v.take(l, last)
	}
	spin(delay)
	p.kill()
	return v.died(p, last)
}

// died takes in what a killed process left; false: it had ended before.
func (v *victim) died(p *proc, last string) bool {
	t := v.t
	code := p.wait()
	for _, l := range p.seen {
		v.take(l, "")
	}
	switch code {
	case -1:
		v.c.add("kill: after " + last)
		if last != "nothing" {
			v.c.add("kill: while working")
		} else {
			v.c.add("kill: before the first event")
		}
	case 0:
		v.c.add("kill: too late, the run had ended")
	default:
		t.Fatalf("the run ended with exit code %d before it was killed:\n%s", code, clip(p.errs.String()))
	}
	v.find()
	return code == -1
}

// find learns the id of the session, if it is stored.
func (v *victim) find() {
	t := v.t
	ids := v.sessionIDs()
	switch {
	case len(ids) == 0 && len(v.printed) == 0:
		v.c.add("kill: nothing was stored yet")
	case len(ids) != 1:
		t.Fatalf("%d events were printed, and there are the sessions %q", len(v.printed), ids)
	case v.id != "" && ids[0] != v.id:
		t.Fatalf("session %s is now %s", v.id, ids[0])
	default:
		v.id = ids[0]
	}
}

// take keeps a line that was printed as a committed event and returns its type; for other lines, typ.
func (v *victim) take(l, typ string) string {
	var head struct {
		Seq  *int64 `json:"seq"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal([]byte(l), &head); err != nil {
		v.t.Fatalf("stream-json printed what is no JSON: %v\n%s", err, l)
	}
	if head.Seq == nil {
		return typ
	}
	if old, ok := v.printed[*head.Seq]; ok && old != l {
		v.t.Errorf("seq %d was printed as\n%s\nand as\n%s", *head.Seq, old, l)
	}
	v.printed[*head.Seq] = l
	return head.Type
}

// openTurn returns the records from the start of the open turn, if any.
func (l storedLog) openTurn() []entry {
	for i := len(l.recs) - 1; i >= 0; i-- {
		switch l.recs[i].Type {
		case session.TypeTurnEnd:
			return nil
		case session.TypeTurnStart:
			return l.recs[i:]
		}
	}
	return nil
}

type statResult struct {
	ID        string `json:"id"`
	Events    int64  `json:"events"`
	State     string `json:"state"`
	Turns     int    `json:"turns"`
	Activity  string `json:"activity"`
	FirstLive *int64 `json:"firstLiveSeq"`
	Base      int64  `json:"base"`
	Brackets  []struct {
		Type  string `json:"type"`
		Seq   int64  `json:"seq"`
		State string `json:"state"`
	} `json:"brackets"`
	OpenCalls []struct {
		Seq   int64  `json:"seq"`
		Name  string `json:"name"`
		State string `json:"state"`
		Key   string `json:"idempotencyKey"`
	} `json:"openCalls"`
	Boundaries []int64         `json:"boundaries"`
	Holder     *jsontext.Value `json:"holder"`
}

func (b *box) stat(id string, args ...string) statResult {
	b.t.Helper()
	return decode[statResult](b.t, b.ok(append([]string{"show", id, "--stat", "--json"}, args...)...).out)
}

func (b *box) view(id string, args ...string) []message.Message {
	b.t.Helper()
	return b.viewFor("script", id, args...)
}

func (b *box) viewFor(provider, id string, args ...string) []message.Message {
	b.t.Helper()
	out := b.ok(append([]string{"show", id, "--view", provider, "--json"}, args...)...).out
	return decode[[]message.Message](b.t, out)
}

// check holds a session that nobody writes against what is promised after a death.
func (v *victim) check() {
	t := v.t
	if v.id == "" {
		return
	}
	l := v.log(v.id)
	for seq, want := range v.printed {
		if seq >= int64(len(l.recs)) {
			t.Errorf("seq %d was acknowledged and is lost: the log ends at %d\n%s", seq, len(l.recs), want)
		} else if got := l.recs[seq].whole(t); got != want {
			t.Errorf("seq %d was printed as\n%s\nthe log has\n%s", seq, want, got)
		}
	}
	if l.torn > 0 {
		v.c.add("log: torn tail")
	}
	for _, e := range l.recs {
		if e.event != e.whole(t) {
			v.c.add("log: record with a blob")
		}
	}

	// A child that the dead process was just starting has its locks until it has become another program.
	st := v.stat(v.id)
	for n := 0; st.Holder != nil && n < 100; n++ {
		if n == 0 {
			v.c.add("lock: outlived its process for a moment")
		}
		v.c.add("lock: seen once more after the death")
		st = v.stat(v.id)
	}
	if st.Holder != nil {
		t.Errorf("a dead process holds the session: %s", st.Holder)
	}
	if st.State != "ok" && st.State != "torn" || st.Events != int64(len(l.recs)) {
		t.Errorf("stat says %+v, the log has %d records", st, len(l.recs))
	}
	if open := len(l.openTurn()) > 0; open != (st.Activity == "interrupted" || st.Activity == "") && st.Activity != "" {
		t.Errorf("activity %q, open turn: %v", st.Activity, open)
	}
	for _, b := range st.Brackets {
		if b.State == "live" {
			t.Errorf("bracket %+v is called live, its owner is dead", b)
		}
	}
	open := l.openCalls(t)
	if len(open) != len(st.OpenCalls) {
		t.Errorf("the log has the open calls %+v, stat says %+v", open, st.OpenCalls)
	}
	for i, c := range open {
		want, seq := "not-started", c.asked
		if c.started >= 0 {
			want, seq = "unknown", c.started
		}
		v.c.add("call left: " + want)
		v.hadOpen = v.hadOpen || c.started >= 0
		if i < len(st.OpenCalls) {
			if g := st.OpenCalls[i]; g.State != want || g.Name != c.name || g.Seq != seq {
				t.Errorf("open call %+v is told as %+v", c, g)
			}
		}
	}

	ms := v.viewFor(v.provider, v.id)
	if err := checkViewFor(v.provider, ms); err != nil {
		t.Errorf("the view is not legal: %v", err)
	}
	for _, c := range open {
		text, ok := resultText(ms, c.id)
		if want := "not known"; c.started >= 0 && !strings.Contains(text, want) || !ok {
			t.Errorf("started call %+v reads %q in the view", c, text)
		}
		if want := "before it was recorded as started"; c.started < 0 && !strings.Contains(text, want) {
			t.Errorf("call %+v reads %q in the view", c, text)
		}
	}
	if n := len(l.recs); n > 0 {
		at := v.r.IntN(n)
		if err := checkViewFor(v.provider, v.viewFor(v.provider, v.id, "--at", strconv.Itoa(at))); err != nil {
			t.Errorf("the view as of seq %d is not legal: %v", at, err)
		}
	}
	v.doctor(v.id)
	v.checkTrace(l)
	v.checkBoundaries(l)
}

// doctor wants a session to be called healthy.
func (b *box) doctor(id string) {
	b.t.Helper()
	r := b.ok("doctor", id, "--json")
	for _, d := range decodeLines[struct {
		State    string           `json:"state"`
		Problems []map[string]any `json:"problems"`
	}](b.t, r.out) {
		if len(d.Problems) > 0 {
			b.t.Errorf("doctor finds problems in a healthy session: %v", d.Problems)
		}
	}
}

// checkTrace holds what tools left outside against the log: intent is durable before a body runs, so every
// line has a recorded start; and none is there twice.
func (v *victim) checkTrace(l storedLog) {
	started := map[string]bool{}
	for _, e := range l.recs {
		if e.Type == session.TypeToolCall {
			if _, after, ok := strings.Cut(data[session.ToolCall](v.t, e).Arguments, "echo L"); ok {
				label, _, _ := strings.Cut(after, " ")
				started["L"+label] = true
			}
		}
	}
	seen := map[string]bool{}
	trace, err := os.ReadFile(filepath.Join(v.out, "trace"))
	if err != nil && !os.IsNotExist(err) {
		v.t.Fatal(err)
	}
	for label := range strings.Lines(string(trace)) {
		label = strings.TrimSuffix(label, "\n")
		if seen[label] {
			v.t.Errorf("the call %s ran twice", label)
		}
		if !started[label] {
			v.t.Errorf("the call %s ran, and the log has no start of it", label)
		}
		seen[label] = true
	}
	for _, e := range l.recs {
		if e.Type != session.TypeToolResult {
			continue
		}
		text := message.Message{Content: data[session.ToolResult](v.t, e).Message.Content}.PlainText()
		if _, after, ok := strings.Cut(text, "did L"); ok {
			label, _, _ := strings.Cut(after, "\n")
			if !seen["L"+label] {
				v.t.Errorf("the log has the result of L%s, which left no trace", label)
			}
		}
	}
}

// checkBoundaries: each life but the first wrote one boundary, in its own file, before everything else it
// did but closers.
func (v *victim) checkBoundaries(l storedLog) {
	per := map[string]int{}
	for _, e := range l.recs {
		if e.Type == session.TypeInherited {
			per[filepath.Base(e.file)]++
		}
	}
	for i, s := range l.segments {
		want := 1
		if i == 0 {
			want = 0
		}
		if per[s] != want {
			v.t.Errorf("segment %s has %d boundaries, want %d", s, per[s], want)
		}
	}
}

// lastLife runs a task to its end: the session opens without a question and work goes on.
func (v *victim) lastLife(k task) {
	r := v.ok(v.args(k, "json")...)
	res := decode[runResult](v.t, r.out)
	if v.id == "" {
		v.id = res.SessionID
	}
	if res.SessionID != v.id || !strings.HasPrefix(res.Text, "answer ") {
		v.t.Errorf("the run after the kills gave %+v", res)
	}
	if left := v.log(v.id).openTurn(); len(left) > 0 {
		v.t.Errorf("the log ends in an open turn: %v", left)
	}
}

// account: every prompt that was accepted was worked on, once.
func (v *victim) account(prompts []string) {
	l := v.log(v.id)
	accepted, done := map[string]int{}, map[string]int{}
	for _, e := range l.recs {
		switch e.Type {
		case session.TypeInboxSpliced:
			for _, m := range data[session.InboxSpliced](v.t, e).Inserted {
				accepted[m.PlainText()]++
			}
		case session.TypeUserMessage:
			if m := data[message.Message](v.t, e); m.Source.Kind == message.SourceUser {
				done[m.PlainText()]++
			}
		}
	}
	for _, p := range prompts {
		if accepted[p] > 1 || done[p] != accepted[p] {
			v.t.Errorf("prompt %q was accepted %d times and worked on %d times", p, accepted[p], done[p])
		}
	}
	if last := prompts[len(prompts)-1]; done[last] != 1 {
		v.t.Errorf("the last prompt was worked on %d times", done[last])
	}
	for id, n := range l.results(v.t) {
		if n != 1 {
			v.t.Errorf("call %s has %d results", id, n)
		}
	}
	if open := l.openCalls(v.t); len(open) > 0 {
		v.t.Errorf("calls without a result at rest: %+v", open)
	}
	events := v.ok("show", v.id, "--events").out
	lines := strings.Split(strings.TrimSuffix(events, "\n"), "\n")
	if len(lines) != len(l.recs) {
		v.t.Fatalf("show --events prints %d lines, the log has %d records", len(lines), len(l.recs))
	}
	for i, e := range l.recs {
		if lines[i] != e.whole(v.t) {
			v.t.Errorf("show --events prints\n%s\nthe log has\n%s", lines[i], e.whole(v.t))
		}
	}
}

// openTwice: open and leave, twice, adds no byte.
func (v *victim) openTwice() {
	before := snap(v.t, v.store).only("sessions")
	for range 2 {
		if r := v.strandIn("", "chat", v.id, "--script", v.script(say("unused"))); r.code != 0 {
			v.t.Errorf("open and leave: %v", r)
		}
	}
	if d := before.diff(snap(v.t, v.store).only("sessions")); d != "" {
		v.t.Errorf("open and leave changed the session:\n%s", d)
	}
}
