// Package catalog knows context windows and prices of the models that are on the market, from a maintained table that
// the program carries with it: nothing is asked of a network. What a user configures comes first; that is wired by
// the application.
package catalog

import (
	"sync"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"

	"github.com/strandline-dev/strandline/llm"
)

// Catalog is the table. It is read when it is first asked. It is safe for concurrent use.
type Catalog struct {
	read func() map[key]llm.ModelInfo
}

type key struct{ provider, model string }

// New returns a catalogue that is not read yet.
func New() *Catalog { return &Catalog{sync.OnceValue(read)} }

// Model returns what is known of a provider's model, by their own names; false when nothing is.
func (c *Catalog) Model(provider, model string) (llm.ModelInfo, bool) {
	i, ok := c.read()[key{provider, model}]
	return i, ok
}

func read() map[key]llm.ModelInfo {
	out := map[key]llm.ModelInfo{}
	for _, p := range embedded.GetAll() {
		for _, m := range p.Models {
			out[key{string(p.ID), m.ID}] = info(m)
		}
	}
	return out
}

func info(m catwalk.Model) llm.ModelInfo {
	i := llm.ModelInfo{ContextWindow: int(max(0, m.ContextWindow)), MaxOutputTokens: int(max(0, m.DefaultMaxTokens))}
	if m.CostPer1MIn <= 0 && m.CostPer1MOut <= 0 {
		return i // the table writes 0 for what it does not know, and that is not free
	}
	p := &llm.Price{Input: m.CostPer1MIn, Output: m.CostPer1MOut, CacheRead: m.CostPer1MIn, CacheWrite: m.CostPer1MIn}
	// Entries do not agree on which cached price is which: reading is cheaper than plain input, writing is not.
	for _, c := range []float64{m.CostPer1MInCached, m.CostPer1MOutCached} {
		switch {
		case c <= 0:
		case c < p.Input:
			p.CacheRead = c
		default:
			p.CacheWrite = c
		}
	}
	i.Price = p
	return i
}
