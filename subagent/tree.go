package subagent

import (
	"context"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Tree is what a session and all that it handed on have used.
type Tree struct {
	Usage    *message.Usage // nil: no answer told any, which is not zero
	Children int            // sessions below the root
	Missing  int            // of them, those that cannot be read: what their ends tell is counted
}

// Look returns the folded state and the log of a stored session, and what frees them.
type Look func(ctx context.Context, id session.ID) (session.State, session.Prefix, func() error, error)

// TreeOf sums the tokens of a session and its children, and theirs: each session counts what it logged itself, so a
// prefix that a fork shares counts once, for the root with what it inherited. A child that is gone counts with what
// its end told.
func TreeOf(ctx context.Context, root session.ID, look Look) (Tree, error) {
	var t Tree
	seen := map[session.ID]bool{root: true}
	add := func(u *message.Usage) {
		if u == nil {
			return
		}
		if t.Usage != nil {
			sum := t.Usage.Add(*u)
			u = &sum
		}
		t.Usage = u
	}
	var visit func(id session.ID, end *End) error
	visit = func(id session.ID, end *End) error {
		st, log, free, err := look(ctx, id)
		if err != nil {
			if id == root || ctx.Err() != nil {
				return err
			}
			t.Missing++
			if end != nil {
				add(end.Usage)
			}
			return nil
		}
		total, mine := st.Usage()
		if id == root {
			mine = total
		}
		add(mine)
		type part struct {
			id  session.ID
			end *End
		}
		var parts []part
		all := Brackets(st)
		for _, b := range all {
			ev, err := log.At(b.Open)
			if err != nil {
				break // what is behind it cannot be read either
			}
			p := part{}
			if s, err := session.DecodeData[Start](ev); err == nil {
				p.id = s.ChildID
			}
			if b.Close != session.None {
				if ev, err := log.At(b.Close); err == nil {
					if e, err := session.DecodeData[End](ev); err == nil {
						p.end = &e
					}
				}
			}
			parts = append(parts, p)
		}
		if err := free(); err != nil {
			return err
		}
		for _, p := range parts {
			if seen[p.id] {
				continue
			}
			seen[p.id] = true
			t.Children++
			if err := visit(p.id, p.end); err != nil {
				return err
			}
		}
		return nil
	}
	return t, visit(root, nil)
}
