package compact

import (
	"context"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
)

// Pressure looks at the request that is about to be sent, or was refused as too long (overflow), and makes the view
// smaller when it must be. It reports whether the surface changed. That no summary could be made is no error: the
// view is as it was and the request goes out. Errors: the end of ctx, and a log that takes no more or cannot be saved.
func (c *Compactor) Pressure(ctx context.Context, j Job, overflow bool) (changed bool, err error) {
	l, err := c.look(j)
	if err != nil {
		return false, err
	}
	if l.set.Off || j.Window <= 0 && !overflow {
		return false, nil
	}
	high := l.share(l.set.Threshold, j.Window)
	if !overflow && l.gauge.Tokens <= high {
		return false, nil
	}
	if j.Window > 0 {
		if fixed := meter.Fixed(l.req) + restatedTokens(l.items, c.opts.Restated); fixed > high {
			c.sayFixed(j, fixed)
			return false, nil
		}
	}
	release, err := c.take(j.Session)
	if err != nil {
		return false, nil // another run is at it
	}
	defer release()
	if changed, err = c.prune(j, l); err != nil {
		return false, err
	}
	if changed {
		if l, err = c.look(j); err != nil {
			return changed, err
		}
		if j.Window > 0 && l.gauge.Tokens <= high {
			j.remark("old tool results were shortened: the view has about %d tokens now", l.gauge.Tokens)
			return changed, nil
		}
	}
	if ok, err := c.mayTry(j, l, overflow); err != nil || !ok {
		return changed, err
	}
	window := j.Window
	if overflow && window > 0 { // a service that refuses the request has a smaller one
		window = min(window, int(l.estimate))
	}
	p := plan(l, window, false, c.opts.Restated)
	if p.Empty() {
		return changed, nil
	}
	cause := CausePressure
	if overflow {
		cause = CauseOverflow
	}
	rep, err := c.run(ctx, j, l, p, cause, "")
	if err != nil {
		return changed || rep.Outcome == Done, err
	}
	switch rep.Outcome {
	case Done:
		j.remark("compacted: about %d tokens became %d; the log keeps everything, strand compact --undo brings it back", rep.Before, rep.After)
		return true, nil
	case NoGain:
		j.remark("no gain: the summary is no smaller than the %d tokens that it would replace; the view stays as it was", p.Tokens)
	case Failed:
		j.remark("compaction failed: %v; the view stays as it was", rep.Err)
	}
	return changed, nil
}

// sayFixed says once that the fixed part of every request is what fills the window.
func (c *Compactor) sayFixed(j Job, fixed int64) {
	c.mu.Lock()
	said := c.said[j.Session.ID()]
	c.said[j.Session.ID()] = true
	c.mu.Unlock()
	if !said {
		j.remark("system prompt, tools and project instructions alone have about %d tokens of a context window of %d: "+
			"compaction cannot help; name a model with a larger window, or shorten the instructions", fixed, j.Window)
	}
}

// prune shortens old results, if there are any.
func (c *Compactor) prune(j Job, l look) (bool, error) {
	p := Select(l.items, l.st, c.opts.Restated, l.share(l.set.Tail, j.Window), 0)
	drafts, err := PruneDrafts(l.items, p.To, l.set, j.turn(), c.opts.NewID(), j.Session.At)
	if err != nil || len(drafts) == 0 {
		return false, err
	}
	_, err = j.Session.AppendAll(func(now session.State) error {
		if now.Generation() != l.st.Generation() {
			return errMoved
		}
		return nil
	}, drafts...)
	return err == nil, err
}

// mayTry holds a compaction that begins by itself to progress: the view must have grown since the last attempt, and
// so many in a row need a completed answer between them. The log alone decides, so a new life is held to it as well.
func (c *Compactor) mayTry(j Job, l look, overflow bool) (bool, error) {
	past := l.st.LastClosed(Bracket, max(l.set.Attempts, 4))
	if len(past) == 0 {
		return true, nil
	}
	p := j.Session.Events()
	if n := l.set.Attempts; len(past) >= n {
		answered, err := answeredSince(p, past[n-1].Close)
		if err != nil || !answered {
			return false, err
		}
	}
	if overflow {
		return true, nil
	}
	var after int64
	growth := l.share(l.set.Growth, j.Window)
	for i, b := range past {
		ev, err := p.At(b.Close)
		if err != nil {
			return false, err
		}
		end, err := session.DecodeData[End](ev)
		if err != nil || end.After == nil || end.Error != nil && end.Error.Code == string(llm.CodeAborted) {
			if i == 0 {
				return true, nil // another program's, or a person ended it
			}
			break
		}
		if i == 0 {
			after = *end.After
		}
		if end.Outcome == Done {
			break
		}
		if i > 0 { // one that did not help after another: what will not work is tried ever more rarely
			growth *= 5
		}
	}
	return l.estimate >= after+growth, nil
}

// answeredSince reports whether a model completed an answer behind seq. Answers are frequent: it looks from the tail.
func answeredSince(p session.Prefix, seq session.Seq) (bool, error) {
	for q := p.Len() - 1; q > seq; q-- {
		ev, err := p.At(q)
		if err != nil {
			return false, err
		}
		if ev.Type != session.TypeAssistantMessage {
			continue
		}
		if a, err := session.DecodeData[session.AssistantMessage](ev); err == nil && !a.Interrupted {
			return true, nil
		}
	}
	return false, nil
}
