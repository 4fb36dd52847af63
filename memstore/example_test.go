package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A session is resumed with nothing but the core and a store: take the lease, fold what is stored, go on,
// write what is new.
func Example_resume() {
	ctx := context.Background()
	st := memstore.New(memstore.Options{Now: time.Now, Program: "example"})
	env := session.Env{Now: func() int64 { return time.Now().UnixMilli() }}
	say := func(s *session.Session, id, text string) error {
		_, err := s.Append(session.Draft{Type: session.TypeUserMessage, Data: message.User(id, text), Op: session.Append()})
		return err
	}

	// The first life writes one message and ends.
	h := session.Header{Format: session.Format, ID: "example-1", Kind: session.KindRoot, Cwd: "/work"}
	w, err := st.Create(ctx, h)
	check(err)
	s, err := session.New(h, session.Seed{}, env)
	check(err)
	check(say(s, "m1", "remember the tide"))
	write(ctx, w, s)

	// The second life resumes it.
	w, err = st.Open(ctx, "example-1")
	check(err)
	seed, err := store.Load(w.Opened(), session.Core())
	check(err)
	s, err = session.New(w.Header(), seed, env)
	check(err)
	check(say(s, "m2", "what did I say?"))
	messages, err := s.Messages()
	check(err)
	for _, m := range messages {
		fmt.Println(m.Role, m.PlainText())
	}
	pos := write(ctx, w, s)
	fmt.Println(pos.Next, "events; this life began at", s.FirstLiveSeq())
	// Output:
	// user remember the tide
	// user what did I say?
	// 3 events; this life began at 1
}

// write stores what the session has and the writer has not, then ends the life.
func write(ctx context.Context, w store.Writer, s *session.Session) store.Pos {
	events, _, err := s.From(w.Stored().Len())
	check(err)
	_, err = w.Append(ctx, events)
	check(err)
	pos, err := w.Flush(ctx)
	check(err)
	check(w.Close())
	return pos
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
