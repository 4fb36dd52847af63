package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// report is a line that a child prints. What it says of an event was synced before.
type report struct {
	Session session.ID  `json:"session,omitzero"`
	Seq     session.Seq `json:"seq"`            // of an event, else -1
	Type    string      `json:"type,omitzero"`  // of the event
	Event   string      `json:"event,omitzero"` // the event as it is stored
	Shown   string      `json:"shown,omitzero"` // what a running tool printed

	// What the second child finds when it has picked the session up, before it does anything.
	FirstLive session.Seq          `json:"firstLive,omitzero"`
	Bracket   session.BracketState `json:"bracket,omitzero"` // of the first child's bracket
	Done      bool                 `json:"done,omitzero"`
}

// reporter prints reports, one at a time.
type reporter struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *reporter) tell(p report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := json.Marshal(p)
	if err == nil {
		r.w.Write(append(b, '\n')) // whoever is not listened to any more is about to end
	}
}

// Part is what a child does.
type Part string

// The parts, in order: work on a new session; go on with what was left; compact, and be killed; compact again.
const (
	PartWork         Part = "work"
	PartGoOn         Part = "go-on"
	PartCompact      Part = "compact"
	PartCompactAgain Part = "compact-again"
)

// Child is the process that plays a part in dir: on a new session, or on the one that another child left.
func Child(ctx context.Context, dir string, part Part, id session.ID, w io.Writer) (err error) {
	out := &reporter{w: w}
	a, err := app.Open(app.Options{Store: filepath.Join(dir, storeDir), Kinds: [][]session.Kind{Kinds()}})
	if err != nil {
		return err
	}
	defer a.Close()
	file := map[Part]string{PartWork: firstFile, PartGoOn: secondFile, PartCompact: halfFile, PartCompactAgain: wholeFile}[part]
	play, err := script.Load(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	o := app.WorkOptions{Session: id, Script: play, Approve: tool.PolicyYolo, Default: tool.PolicyNeverAsk}
	if id == "" {
		o.Cwd = filepath.Join(dir, workDir)
	}
	work, err := a.Begin(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := work.Close(context.WithoutCancel(ctx)); err == nil {
			err = cerr
		}
	}()
	s := work.Agent.Session()
	found := report{Session: s.ID(), Seq: session.None, FirstLive: s.FirstLiveSeq()}
	for _, b := range s.State().Brackets(s.FirstLiveSeq()) {
		if b.Type == TypeStart || b.Type == compact.TypeStart {
			found.Bracket = b.State
		}
	}
	out.tell(found)

	finish := work.Watch(app.Watcher{
		Event: func(ev session.Event) {
			out.tell(report{Seq: ev.Seq, Type: ev.Type, Event: string(app.AppendEvent(nil, ev))})
		},
		Notice: func(n agent.Notice) {
			if n.Kind == agent.NoticeProgress {
				out.tell(report{Seq: session.None, Shown: n.Text})
			}
		},
	})
	switch part {
	case PartWork:
		err = inBracket(ctx, work, firstPrompt)
	case PartGoOn:
		err = inBracket(ctx, work, secondPrompt)
	default:
		var made app.Compacted
		if made, err = work.Compact(ctx); err == nil && made.Outcome != string(compact.Done) {
			err = errors.Join(fmt.Errorf("the compaction: %s", made.Outcome), made.Err)
		}
	}
	finish()
	if err == nil {
		out.tell(report{Seq: session.None, Done: true})
	}
	return err
}

// inBracket does the work between demo/start and demo/end. The bracket is a lock that lives in the log: it is
// taken only if no bracket of this life is open, whatever a life before left behind.
func inBracket(ctx context.Context, work *app.Work, prompt string) error {
	s := work.Agent.Session()
	_, err := s.AppendAll(func(st session.State) error {
		if b, ok := st.OpenBracket(Bracket, s.FirstLiveSeq()); ok {
			return fmt.Errorf("it runs already, since seq %d", b.Open)
		}
		return nil
	}, session.Draft{Type: TypeStart, Data: struct{}{}})
	if err != nil {
		return err
	}
	if _, err := work.Agent.Followup(ctx, agent.Text(prompt)); err != nil {
		return err
	}
	if err := work.Agent.WhenIdle(ctx); err != nil {
		return err
	}
	if err := work.Outcome(); err != nil {
		return err
	}
	_, err = s.Append(session.Draft{Type: TypeEnd, Data: struct{}{}})
	return err
}
