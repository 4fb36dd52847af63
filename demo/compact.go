package demo

import (
	"bytes"
	"context"
	"errors"
	"os"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/session"
)

// seen is what the model would be sent, and the state of the newest compaction.
func (r *run) seen(ctx context.Context) (view []byte, last app.Bracket, err error) {
	ins, err := r.a.Inspect(ctx, r.out.Session, nil)
	if err != nil {
		return nil, last, err
	}
	defer ins.Close()
	ms, err := ins.View("script")
	if err != nil {
		return nil, last, err
	}
	for _, b := range ins.Brackets() {
		if b.Type == compact.TypeStart {
			last = b
		}
	}
	view, err = json.Marshal(ms)
	return view, last, err
}

// killedCompacting: the third child compacts, and is killed while the model writes the summary.
func (r *run) killedCompacting(ctx context.Context) error {
	view, _, err := r.seen(ctx)
	if err != nil {
		return err
	}
	r.view = view
	var live app.Bracket
	err = r.child(ctx, PartCompact, func(p report, _ *os.Process) (bool, error) {
		if p.Type != compact.TypeStart {
			return true, nil
		}
		_, b, err := r.seen(ctx)
		live = b
		return false, err
	})
	if err != nil {
		return err
	}
	view, dead, err := r.seen(ctx)
	if err := errors.Join(err,
		must(live.State == session.BracketLive, "while it compacts the bracket is live: %v", live),
		must(dead.Seq == live.Seq && dead.State == session.BracketDead, "now it is dead: %v", dead),
		must(bytes.Equal(view, r.view), "the model sees what it saw before"),
	); err != nil {
		return err
	}
	r.claim("compacting", []session.Seq{dead.Seq},
		"A third process began to compact the session (seq %d, live) and was killed while the model wrote the summary.\n"+
			"The compaction is dead, nobody waits for it, and the model would see exactly what it saw before.", dead.Seq)
	return nil
}

// compacts: the fourth child compacts at once, and nothing is lost.
func (r *run) compacts(ctx context.Context) error {
	var found report
	err := r.child(ctx, PartCompactAgain, func(p report, _ *os.Process) (bool, error) {
		if p.Session != "" {
			found = p
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	view, b, err := r.seen(ctx)
	if err := errors.Join(err,
		must(found.Bracket == session.BracketDead, "the next process finds a dead compaction: %v", found.Bracket),
		must(b.State == session.BracketClosed, "its own one is closed: %v", b),
		must(len(view) < len(r.view), "the model sees less: %d bytes of %d", len(view), len(r.view)),
		must(bytes.Contains(view, []byte("v1 was deployed once; CHANGES.md says so")), "the summary is in the view"),
	); err != nil {
		return err
	}
	r.claim("compacted", []session.Seq{b.Seq, *b.Close},
		"The next process compacted it at once (seq %d to %d): what the model sees went from %d bytes to %d, and the log keeps every word.",
		b.Seq, *b.Close, len(r.view), len(view))
	return nil
}
