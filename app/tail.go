package app

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Tail follows a session, whoever writes it. It takes no lease and writes nothing. Close it.
type Tail struct {
	feed store.Feed
	from session.Seq // the first that is told
	t    teller
}

// TailNews is what a Tail tells: events, or that there are none.
type TailNews struct {
	Events []TailEvent
	Holder *Holder // when Events is empty: who writes the session now, nil for nobody
}

// TailEvent is an event and what it means to a person.
type TailEvent struct {
	session.Event
	Entries []Entry
	// Text of an answer that is on its way; it comes again, whole, as an entry.
	Text       string
	Turn, Step int
}

// namesBefore is how many events before the first that is told are looked at for the names of tools.
const namesBefore = 200

// Tail follows the session id from an event on; from nil: from the last events before its end, as many as last.
func (a *App) Tail(ctx context.Context, id session.ID, from *session.Seq, last int) (*Tail, error) {
	w, ok := a.Store.(store.Watcher)
	if !ok {
		return nil, errors.New("this store cannot be followed")
	}
	if from == nil {
		st, err := a.Store.Stat(ctx, id)
		if err != nil {
			return nil, err
		}
		n := max(0, st.Pos.Next-session.Seq(last))
		from = &n
	}
	feed, err := w.Watch(ctx, id, max(0, *from-namesBefore))
	if err != nil {
		return nil, err
	}
	return &Tail{feed: feed, from: *from, t: teller{reg: a.Registry, names: map[string]string{}}}, nil
}

// Next waits for something new. Errors are those of store.Feed.
func (t *Tail) Next(ctx context.Context) (TailNews, error) {
	for {
		news, err := t.feed.Next(ctx)
		if err != nil {
			return TailNews{}, err
		}
		if len(news.Events) == 0 {
			return TailNews{Holder: HolderOf(news.Holder)}, nil
		}
		var out []TailEvent
		for _, ev := range news.Events {
			e := TailEvent{Event: ev, Entries: t.t.entries(ev)}
			for i := range e.Entries {
				e.Entries[i].Seq, e.Entries[i].Time = ev.Seq, ev.Time
			}
			if ev.Type == session.TypeAssistantChunk {
				e.Turn, e.Step, e.Text = deltaOf(ev)
			}
			if ev.Seq >= t.from {
				out = append(out, e)
			}
		}
		if len(out) > 0 {
			return TailNews{Events: out}, nil
		}
	}
}

// deltaOf returns the text that a chunk adds to an answer.
func deltaOf(ev session.Event) (turn, step int, text string) {
	var c llm.Chunk
	d, err := session.DecodeData[session.AssistantChunk](ev)
	if err != nil || json.Unmarshal(d.Chunk, &c) != nil || c.Type != llm.ChunkTextDelta {
		return d.Turn, d.Step, ""
	}
	return d.Turn, d.Step, c.Text
}

// Close ends it.
func (t *Tail) Close() error { return t.feed.Close() }
