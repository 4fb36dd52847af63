package compact

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
)

// Options is what a Compactor needs. NewID and After are required.
type Options struct {
	NewID func() string // unique
	// After calls f after d, unless stop is called before.
	After func(d time.Duration, f func()) (stop func() bool)
	// Settings returns the numbers for a model; nil: Defaults.
	Settings func(provider, model string) Settings
	// Restated are the source plugins of messages that are stated again when they are off the surface.
	Restated []string
}

// Compactor runs compactions. A process has one for all its sessions: that is how it knows which run is over. It is
// safe for concurrent use.
type Compactor struct {
	opts Options

	mu      sync.Mutex
	running map[session.ID]bool // guarded by mu
	said    map[session.ID]bool // guarded by mu: that the fixed part is too large
}

// New returns a Compactor.
func New(o Options) *Compactor {
	if o.Settings == nil {
		o.Settings = func(string, string) Settings { return Defaults }
	}
	return &Compactor{opts: o, running: map[session.ID]bool{}, said: map[session.ID]bool{}}
}

// Job is a session to be compacted, and what a request for it is made with. Everything is required but Sent, Tell
// and Remark. Whoever calls keeps turns and undo away while it works on the job.
type Job struct {
	Session  *session.Session
	Turn     int // the open turn; 0: none
	Provider llm.Provider
	Window   int         // tokens; 0: unknown
	Head     llm.Request // of a turn, as it would be sent; its messages do not matter
	Flush    func(context.Context) error
	// Sent is called with a request for a summary before it is sent: at is the length of the log that it was
	// made of, of the start of the compaction. It may set the request's Body.
	Sent         func(req *llm.Request, at, of session.Seq) error
	Tell, Remark func(text string)
}

func (j Job) tell(format string, args ...any) {
	if j.Tell != nil {
		j.Tell(fmt.Sprintf(format, args...))
	}
}

func (j Job) remark(format string, args ...any) {
	if j.Remark != nil {
		j.Remark(fmt.Sprintf(format, args...))
	}
}

func (j Job) turn() *int {
	if j.Turn == 0 {
		return nil
	}
	return &j.Turn
}

// look is the session as a compaction sees it at one moment.
type look struct {
	items    []session.Item
	st       session.State
	req      llm.Request
	gauge    meter.Gauge
	estimate int64 // of req, whatever was told
	set      Settings
	refused  int64 // so much of the conversation this model was last asked to sum up, and its service does not take it; 0: unknown
}

func (c *Compactor) look(j Job) (look, error) {
	items, st, err := j.Session.Surface()
	if err != nil {
		return look{}, err
	}
	name := j.Provider.Name()
	return View(name, j.Head, items, st, j.Session.Events(), c.opts.Settings(name, j.Head.Model)).look, nil
}

// Viewed is a stored view, for a preview.
type Viewed struct {
	Tokens int64
	look
}

// View looks at a log from outside, as a compaction would. req is what would be sent.
func View(provider string, req llm.Request, items []session.Item, st session.State, p session.Prefix, set Settings) Viewed {
	req.Messages = view.Build(items, st, provider).Messages
	l := look{items: items, st: st, req: req, set: set.Or(Defaults), gauge: meter.Measure(req, st, p), estimate: meter.Request(req)}
	l.refused = refused(st, p, provider, req.Model)
	return Viewed{l.gauge.Tokens, l}
}

// Plan returns the span that a person's Compact would replace.
func (v Viewed) Plan(window int, restated []string) Plan { return plan(v.look, window, true, restated) }

// share is a part of the window, or of the view where the window is not known.
func (l look) share(part float64, window int) int64 {
	of := float64(window)
	if window <= 0 {
		of = float64(l.estimate)
	}
	return int64(part * of)
}

func (l look) summaryTokens(window int) int {
	n := l.set.SummaryTokens
	if window > 0 {
		n = min(n, max(16, window/4))
	}
	return n
}

// plan selects the span.
func plan(l look, window int, manual bool, restated []string) Plan {
	most := int64(0)
	if window > 0 {
		most = max(1, int64(window)-meter.Fixed(l.req)-int64(l.summaryTokens(window))-meter.Text(instructions[instruction]))
	}
	if l.refused > 0 { // the window is unknown, or not what is said of it: half is tried
		half := max(1, l.refused/2)
		if most == 0 || half < most {
			most = half
		}
	}
	tail := l.share(l.set.Tail, window)
	p := Select(l.items, l.st, restated, tail, most)
	if manual && (p.Head+p.Kept <= tail || p.Tokens <= frameTokens()) { // all of it is in the tail: a person wants it smaller nevertheless
		p = Select(l.items, l.st, restated, int64(l.set.Tail*float64(meter.Messages(l.req.Messages))), most)
	}
	if p.Tokens <= frameTokens() { // nothing is smaller than what would stand for it
		return Plan{}
	}
	return p
}

// refused is what the newest request for a summary that the service of a model refused as too long told of the
// conversation; 0: there is none among the last compactions.
func refused(st session.State, p session.Prefix, provider, model string) int64 {
	for _, b := range st.LastClosed(Bracket, remembered) {
		ev, err := p.At(b.Close)
		if err != nil {
			return 0
		}
		end, err := session.DecodeData[End](ev)
		if err != nil || end.Provider != provider || end.Model != model || end.Error == nil || end.Error.Code != string(llm.CodeContextWindow) {
			continue
		}
		if ev, err = p.At(b.Open); err != nil {
			return 0
		}
		start, err := session.DecodeData[Start](ev)
		if err != nil {
			return 0
		}
		return start.Tokens
	}
	return 0
}

// remembered is how many compactions back a refusal counts.
const remembered = 32

// ErrNothing says that there is nothing that a compaction could replace.
var ErrNothing = errors.New("nothing to compact: there is no more than the newest part, which is kept")

// ErrCompacting says that a compaction of the session runs. It is a *BusyError.
var ErrCompacting = errors.New("a compaction is running")

// BusyError is ErrCompacting with its beginning.
type BusyError struct {
	Seq   session.Seq // its compact/start; None if that is not accepted yet
	Since int64       // Unix milliseconds; 0 if that is not known
}

func (e *BusyError) Error() string {
	if e.Since == 0 {
		return ErrCompacting.Error()
	}
	return fmt.Sprintf("%v since %s (seq %d)", ErrCompacting, time.UnixMilli(e.Since).UTC().Format(time.RFC3339), e.Seq)
}

// Unwrap returns ErrCompacting.
func (e *BusyError) Unwrap() error { return ErrCompacting }

// Report is what became of a compaction.
type Report struct {
	CompactionID  string
	Outcome       Outcome
	Before, After int64 // tokens of the view
	Start, End    session.Seq
	Err           error // why it failed
}

// take reserves the session for one run in this process.
func (c *Compactor) take(s *session.Session) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := s.ID()
	if c.running[id] {
		busy := &BusyError{Seq: session.None}
		if b, ok := s.State().OpenBracket(Bracket, s.FirstLiveSeq()); ok {
			busy.Seq = b.Open
			if ev, err := s.At(b.Open); err == nil {
				busy.Since = ev.Time
			}
		}
		return nil, busy
	}
	c.running[id] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, id)
	}, nil
}

// Compact makes a session's view smaller because a person asks for it: once, or as often as it takes until a turn can be
// sent again, where one summary has no room for all that is too much. command is what they said it with, if that has
// an id. Errors before anything is written: ErrNothing, *BusyError. A compaction that began is told in the report,
// failed or not; of several, the report is from the start of the first to the end of the last. One whose request is
// refused as too long is followed by another over half as much. The error is that of the end of ctx, or of a log that
// takes no more or cannot be saved.
func (c *Compactor) Compact(ctx context.Context, j Job, command string) (Report, error) {
	release, err := c.take(j.Session)
	if err != nil {
		return Report{}, err
	}
	defer release()
	var rep Report
	for refusals, rounds := 0, 0; ; {
		l, err := c.look(j)
		if err != nil {
			return rep, err
		}
		if rep.Outcome == Done && (rounds == mostRounds || !l.over(j.Window)) {
			return rep, nil
		}
		p := plan(l, j.Window, true, c.opts.Restated)
		switch {
		case p.Empty() && rep.Outcome == "":
			return rep, ErrNothing
		case p.Empty():
			return rep, nil // what was refused as too long cannot be made shorter: that is told
		}
		next, err := c.run(ctx, j, l, p, CauseManual, command)
		var failed *llm.Error
		did, again := next.Outcome == Done, errors.As(next.Err, &failed) && failed.Code == llm.CodeContextWindow
		if rep.Outcome == Done {
			next.Start, next.Before = rep.Start, rep.Before
			if !did {
				if !again {
					j.remark("what is left is still too long, and no further summary could be made of it: %v", next.Err)
				}
				next.Outcome, next.Err, next.After = Done, nil, rep.After
			}
		}
		switch rep = next; {
		case err != nil:
			return rep, err
		case again && refusals < mostRefused:
			refusals++
		case did:
			rounds++
		default:
			return rep, nil
		}
	}
}

const (
	// mostRefused is how often a person's request for a summary is made shorter after it was refused as too long:
	// each time by half, so that it fits at last whatever the window is.
	mostRefused = 8
	// mostRounds is how many summaries one asking makes at most. Each makes the view smaller.
	mostRounds = 16
)

// over reports whether the view is larger than what a turn can be sent with, as far as that is known.
func (l look) over(window int) bool {
	if window > 0 && l.gauge.Tokens > l.share(l.set.Threshold, window) {
		return true
	}
	return l.refused > 0 && l.estimate-meter.Fixed(l.req) > l.refused/2
}

// errMoved says that the surface is not what was selected from any more.
var errMoved = errors.New("the selected span changed meanwhile")

// run is one compaction, from the lock to the end. The session is taken.
func (c *Compactor) run(ctx context.Context, j Job, l look, p Plan, cause Cause, command string) (rep Report, err error) {
	at := l.st.Next()
	start := Start{
		CompactionID: c.opts.NewID(), Turn: j.turn(), SourceCommandID: command, Cause: cause,
		Range: &Range{l.items[p.From].Seq, l.items[p.To-1].Seq}, Tokens: p.Head, Fit: p.Fit,
		Instruction: instruction, MaxTokens: l.summaryTokens(j.Window),
	}
	if p.Fit > 0 {
		start.Tokens = p.Fit
	}
	rep = Report{CompactionID: start.CompactionID, Before: l.gauge.Tokens, After: l.gauge.Tokens, Start: session.None, End: session.None}
	evs, err := j.Session.AppendFunc(func(now session.State) ([]session.Draft, error) {
		drafts, err := orphans(now, j.Session.FirstLiveSeq())
		if err == nil && now.Generation() != l.st.Generation() {
			err = errMoved
		}
		return append(drafts, session.Draft{Type: TypeStart, Data: start}), err
	})
	if err != nil {
		return rep, err
	}
	rep.Start = evs[len(evs)-1].Seq
	defer j.tell("")
	var sum summary
	failed := guarded(func() (err error) {
		j.tell("compacting: %d messages are being summarised", p.To-p.From)
		if p.Fit > 0 {
			j.remark("the oldest part has about %d tokens, which is more than the model takes at once: it is summarised without the middle of its longest texts; the log keeps them", p.Head)
		}
		req, err := Request(j.Provider.Name(), j.Head, l.items, l.st, start)
		if err != nil {
			return err
		}
		if j.Sent != nil {
			if err := j.Sent(&req, at, rep.Start); err != nil {
				return err
			}
		}
		if err := j.Flush(ctx); err != nil {
			return err
		}
		sum, err = c.summarise(ctx, j, l.set, req, p.Tokens)
		return err
	})
	rep.Outcome, rep.Err = Done, failed
	if failed != nil {
		rep.Outcome = Failed
	}
	if errors.Is(failed, errNoGain) {
		rep.Outcome = NoGain
	}
	if err := c.conclude(j, l, p, &rep, sum); err != nil {
		return rep, err
	}
	if ctx.Err() != nil && rep.Outcome == Failed {
		return rep, context.Cause(ctx)
	}
	return rep, j.Flush(context.WithoutCancel(ctx))
}

// guarded calls f and returns its panic as an error.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the compaction crashed: %v", v)
		}
	}()
	return f()
}

// orphans are the ends that this life still owes: of runs that are over and could not write theirs.
func orphans(st session.State, first session.Seq) (drafts []session.Draft, err error) {
	for _, b := range st.Brackets(first) {
		if b.Name != Bracket || b.State != session.BracketLive {
			continue
		}
		var id string
		if err := json.Unmarshal([]byte(b.Key), &id); err != nil {
			return nil, fmt.Errorf("compact: the start at seq %d names no compaction: %w", b.Open, err)
		}
		drafts = append(drafts, session.Draft{Type: TypeEnd, Data: End{CompactionID: id, Outcome: Failed,
			Error: &session.ErrorInfo{Name: "CompactionFailed", Code: "INTERNAL", Message: "its end could not be written when it was over"}}})
	}
	return drafts, nil
}

// conclude writes what a run comes to: summary, replacement and end in one append, or the end alone.
func (c *Compactor) conclude(j Job, l look, p Plan, rep *Report, sum summary) error {
	end := End{CompactionID: rep.CompactionID, Turn: j.turn(), Outcome: rep.Outcome, Before: &l.gauge.Tokens, After: &l.estimate}
	if rep.Outcome == Done {
		repl := frame(c.opts.NewID(), rep.CompactionID, sum.text)
		framed := meter.Message(repl)
		left := l.estimate - p.Tokens + framed
		end.After = &left
		if framed >= p.Tokens {
			rep.Outcome, rep.Err = NoGain, errNoGain
		} else {
			evs, err := c.replace(j, l, p, rep, sum, repl, end)
			if err == nil {
				rep.After, rep.End = max(l.gauge.Tokens-p.Tokens+framed, framed), evs[len(evs)-1].Seq
				return nil
			}
			rep.Outcome, rep.Err = Failed, err
		}
		end.After, end.Outcome = &l.estimate, rep.Outcome
	}
	if rep.Outcome == Failed {
		end.Error = info(rep.Err)
	}
	if end.Usage = sum.usage; sum.usage != nil || end.Error != nil {
		end.Provider, end.Model = j.Provider.Name(), j.Head.Model
	}
	ev, err := j.Session.Append(session.Draft{Type: TypeEnd, Data: end})
	if err != nil {
		return errors.Join(rep.Err, err)
	}
	rep.End = ev.Seq
	return nil
}

func (c *Compactor) replace(j Job, l look, p Plan, rep *Report, sum summary, repl message.Message, end End) ([]session.Event, error) {
	span := l.items[p.From:p.To]
	shadowed := make([]session.Seq, len(span))
	for i, it := range span {
		shadowed[i] = it.Seq
	}
	r := Range{span[0].Seq, span[len(span)-1].Seq}
	return j.Session.AppendFunc(func(now session.State) ([]session.Draft, error) {
		if now.Generation() != l.st.Generation() {
			return nil, errMoved
		}
		cited := append([]session.Seq{rep.Start, now.Next()}, shadowed...)
		return []session.Draft{
			{Type: TypeSummary, Data: Summary{
				CompactionID: rep.CompactionID, Summary: []message.Block{message.TextBlock(sum.text)},
				ShadowedRange: r, ShadowedSeqs: shadowed, ShadowedTokens: p.Tokens,
				Provider: j.Provider.Name(), Model: j.Head.Model, Usage: sum.usage, ResponseID: sum.response,
			}},
			{Type: session.TypeUserMessage, Data: repl, Op: session.Replace(r.Start, r.End), Sources: session.Cite(cited...)},
			{Type: TypeEnd, Data: end},
		}, nil
	})
}

// info is an error as the log tells it.
func info(err error) *session.ErrorInfo {
	out := &session.ErrorInfo{Name: "CompactionFailed", Code: "INTERNAL", Message: err.Error()}
	var failed *llm.Error
	if errors.As(err, &failed) {
		out.Code, out.Message, out.Status = string(failed.Code), failed.Message, failed.Status
	}
	out.Message = validText(out.Message)
	return out
}
