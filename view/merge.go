package view

import (
	"slices"

	"github.com/strandline-dev/strandline/message"
)

// merger joins neighbouring messages of one role, and keeps what it joined.
type merger struct {
	out    []message.Message
	from   []int // out[i] begins with message from[i]
	shared int   // out[:shared] was handed out
}

// update returns msgs merged for provider; those below dirty are the ones of the last call.
func (g *merger) update(msgs []message.Message, dirty int, provider string) []message.Message {
	n := len(g.out)
	for n > 0 && g.from[n-1] >= dirty {
		n--
	}
	if n > 0 && dirty < len(msgs) {
		n-- // the group may end elsewhere now
	}
	at := 0
	if n < len(g.out) {
		at = g.from[n]
	} else if n > 0 {
		at = len(msgs)
	}
	if n < g.shared && at < len(msgs) {
		g.out = slices.Clone(g.out[:n])
	}
	g.out, g.from = g.out[:n], g.from[:n]
	for i := at; i < len(msgs); {
		j := i + 1
		for j < len(msgs) && msgs[j].Role == msgs[i].Role {
			j++
		}
		m := msgs[i]
		if j > i+1 {
			m.Content = nil
			for _, part := range msgs[i:j] {
				m.Content = append(m.Content, part.Content...)
				if m.Source.Provider != provider && part.Source.Provider == provider {
					m.Source = part.Source
				}
			}
			m.Source.ReplayState = nil // it stands for one message, not for the joined one
		}
		g.out, g.from = append(g.out, m), append(g.from, i)
		i = j
	}
	g.shared = len(g.out)
	return g.out
}
