package subagent

import (
	"context"

	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
)

// Tree is what a session and all that it handed on have used.
type Tree struct {
	meter.Cost
	Sessions []session.ID // whose own logs are counted, the root first
	Children int          // sessions below the root
	Missing  int          // of them, those that cannot be read or are another's: what their ends tell is counted
}

// Look returns the folded state and the log of a stored session, and what frees them.
type Look func(ctx context.Context, id session.ID) (session.State, session.Prefix, func() error, error)

// TreeOf sums the tokens of a session and its children, and theirs: each session counts what it logged itself, so a
// prefix that a fork shares counts once, for the root with what it inherited. A child that is gone counts with what
// its end told.
func TreeOf(ctx context.Context, root session.ID, prices meter.Prices, look Look) (Tree, error) {
	var t Tree
	seen := map[session.ID]bool{root: true}
	var visit func(id, parent session.ID, end *End) error
	visit = func(id, parent session.ID, end *End) error {
		st, log, free, err := look(ctx, id)
		if err != nil && (id == root || ctx.Err() != nil) {
			return err
		}
		foreign := err == nil && id != root && !isChild(st.Header(), parent)
		if foreign {
			err = free()
		}
		if foreign || err != nil {
			t.Missing++
			if end != nil && end.Usage != nil {
				t.Add(prices, "", "", *end.Usage)
			}
			return nil
		}
		t.Sessions = append(t.Sessions, id)
		if id == root {
			t.Cost = meter.Total(st, prices)
		} else {
			t.AddOwn(prices, st)
		}
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
			if err := visit(p.id, id, p.end); err != nil {
				return err
			}
		}
		return nil
	}
	err := visit(root, "", nil)
	return t, err
}
