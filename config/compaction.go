package config

import (
	"fmt"
	"math"
	"time"
)

// Price is what a user says that a million tokens cost, in US dollars. Reading and writing a cache cost what input
// costs where nothing else is said.
type Price struct{ Input, Output, CacheRead, CacheWrite float64 }

// Compaction is what a user says of it. What is not set has a default.
type Compaction struct {
	Auto          Value[bool]
	Threshold     Value[float64] // share of the context window
	Tail          Value[float64]
	Growth        Value[float64]
	PruneOver     Value[int] // signs
	PruneHead     Value[int]
	PruneTail     Value[int]
	Timeout       Value[time.Duration]
	SummaryTokens Value[int]
	Attempts      Value[int]
}

type compactionTable struct {
	Auto          *bool    `toml:"auto"`
	Threshold     *float64 `toml:"threshold"`
	Tail          *float64 `toml:"tail"`
	Growth        *float64 `toml:"growth"`
	PruneOver     *int     `toml:"prune_over"`
	PruneHead     *int     `toml:"prune_head"`
	PruneTail     *int     `toml:"prune_tail"`
	Timeout       *string  `toml:"timeout"`
	SummaryTokens *int     `toml:"summary_tokens"`
	Attempts      *int     `toml:"attempts"`
}

// read takes over what a table says; why tells what is wrong with it.
func (t *compactionTable) read(origin string) (c Compaction, why string) {
	if t == nil {
		return c, ""
	}
	for _, v := range []struct {
		name string
		v    *float64
		to   *Value[float64]
	}{{"threshold", t.Threshold, &c.Threshold}, {"tail", t.Tail, &c.Tail}, {"growth", t.Growth, &c.Growth}} {
		if set(v.to, v.v, origin); v.v != nil && !(*v.v > 0 && *v.v <= 1) {
			return c, v.name + " is not a share above 0 and up to 1"
		}
	}
	for _, v := range []struct {
		name string
		v    *int
		to   *Value[int]
	}{{"prune_over", t.PruneOver, &c.PruneOver}, {"prune_head", t.PruneHead, &c.PruneHead}, {"prune_tail", t.PruneTail, &c.PruneTail},
		{"summary_tokens", t.SummaryTokens, &c.SummaryTokens}, {"attempts", t.Attempts, &c.Attempts}} {
		if set(v.to, v.v, origin); v.v != nil && *v.v < 1 {
			return c, v.name + " is below 1"
		}
	}
	set(&c.Auto, t.Auto, origin)
	if t.Timeout != nil {
		d, err := time.ParseDuration(*t.Timeout)
		if err != nil || d <= 0 {
			return c, "timeout is not a length of time above 0"
		}
		c.Timeout = Value[time.Duration]{d, origin}
	}
	return c, ""
}

func (t modelTable) price(origin string) (v Value[Price], why string) {
	for _, p := range []*float64{t.PriceInput, t.PriceOutput, t.PriceCacheRead, t.PriceCacheWrite} {
		if p != nil && !(*p >= 0 && *p <= math.MaxFloat64) {
			return v, "a price is no number of 0 or more"
		}
	}
	switch {
	case t.PriceInput == nil && t.PriceOutput == nil && t.PriceCacheRead == nil && t.PriceCacheWrite == nil:
		return v, ""
	case t.PriceInput == nil || t.PriceOutput == nil:
		return v, "it has a price, but not both price_input and price_output"
	}
	p := Price{*t.PriceInput, *t.PriceOutput, *t.PriceInput, *t.PriceInput}
	if t.PriceCacheRead != nil {
		p.CacheRead = *t.PriceCacheRead
	}
	if t.PriceCacheWrite != nil {
		p.CacheWrite = *t.PriceCacheWrite
	}
	return Value[Price]{p, origin}, ""
}

// settings lists what is set, under a name that begins with at.
func (c Compaction) settings(at string, add func(key, value, origin string)) {
	if c.Auto.IsSet() {
		add(at+"auto", fmt.Sprint(c.Auto.V), c.Auto.Origin)
	}
	for _, v := range []struct {
		key string
		v   Value[float64]
	}{{"threshold", c.Threshold}, {"tail", c.Tail}, {"growth", c.Growth}} {
		if v.v.IsSet() {
			add(at+v.key, fmt.Sprint(v.v.V), v.v.Origin)
		}
	}
	for _, v := range []struct {
		key string
		v   Value[int]
	}{{"prune_over", c.PruneOver}, {"prune_head", c.PruneHead}, {"prune_tail", c.PruneTail}, {"summary_tokens", c.SummaryTokens}, {"attempts", c.Attempts}} {
		if v.v.IsSet() {
			add(at+v.key, fmt.Sprint(v.v.V), v.v.Origin)
		}
	}
	if c.Timeout.IsSet() {
		add(at+"timeout", c.Timeout.V.String(), c.Timeout.Origin)
	}
}

// CompactionOf returns what is said of one model: its own word, else that of all.
func (c *Config) CompactionOf(provider, model string) Compaction {
	if c == nil {
		return Compaction{}
	}
	m, all := c.models[provider+"/"+model].Compaction, c.Compaction
	prefer(&m.Auto, all.Auto)
	prefer(&m.Threshold, all.Threshold)
	prefer(&m.Tail, all.Tail)
	prefer(&m.Growth, all.Growth)
	prefer(&m.PruneOver, all.PruneOver)
	prefer(&m.PruneHead, all.PruneHead)
	prefer(&m.PruneTail, all.PruneTail)
	prefer(&m.Timeout, all.Timeout)
	prefer(&m.SummaryTokens, all.SummaryTokens)
	prefer(&m.Attempts, all.Attempts)
	return m
}

func prefer[T any](v *Value[T], other Value[T]) {
	if !v.IsSet() {
		*v = other
	}
}
