package meter

import (
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Prices finds what a model costs; false when that is not known, which is not free.
type Prices func(provider, model string) (llm.Price, bool)

// Cost is what was spent.
type Cost struct {
	Usage *message.Usage // nil: no answer told any
	USD   *float64       // of the models whose prices are known; nil: of none
	// Unpriced counts the tokens of models without a price: USD does not hold them.
	Unpriced int64
}

// Total returns what the whole log spent: what a fork inherited is in it.
func Total(st session.State, prices Prices) Cost { return cost(prices, st, nil) }

// Tree returns what a session and its descendants spent together. What one inherited from another counts once:
// of the root the whole log, of each other what it logged itself.
func Tree(prices Prices, root session.State, descendants ...session.State) Cost {
	return cost(prices, root, descendants)
}

func cost(prices Prices, root session.State, others []session.State) (c Cost) {
	add := func(sp session.Spent, u message.Usage) {
		if c.Usage != nil {
			sum := c.Usage.Add(u)
			c.Usage = &sum
		} else {
			c.Usage = &u
		}
		p, ok := prices(sp.Provider, sp.Model)
		if !ok {
			c.Unpriced += Tokens(u)
			return
		}
		usd := p.Cost(u)
		if c.USD != nil {
			usd += *c.USD
		}
		c.USD = &usd
	}
	for _, sp := range root.Spent() {
		add(sp, sp.Total)
	}
	for _, st := range others {
		for _, sp := range st.Spent() {
			if sp.Own != nil {
				add(sp, *sp.Own)
			}
		}
	}
	return c
}
