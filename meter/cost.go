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
func Total(st session.State, prices Prices) (c Cost) {
	for _, sp := range st.Spent() {
		c.Add(prices, sp.Provider, sp.Model, sp.Total)
	}
	return c
}

// AddOwn adds what a session spent without what it inherited: of several sessions that hand on to each other, a shared
// prefix then counts once.
func (c *Cost) AddOwn(prices Prices, st session.State) {
	for _, sp := range st.Spent() {
		if sp.Own != nil {
			c.Add(prices, sp.Provider, sp.Model, *sp.Own)
		}
	}
}

// Add adds u, which the model was asked for; of a model that nobody knows, "", the price is not known.
func (c *Cost) Add(prices Prices, provider, model string, u message.Usage) {
	sum := u
	if c.Usage != nil {
		sum = c.Usage.Add(u)
	}
	c.Usage = &sum
	p, ok := prices(provider, model)
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
