package compact

import (
	"fmt"
	"time"
)

// Settings are the numbers of compaction. A zero field stands for its default.
type Settings struct {
	// Off: no compaction begins by itself. One that is asked for does.
	Off bool
	// Threshold is the share of the context window above which the view is made smaller. 0: 0.8
	Threshold float64
	// Tail is the share of the window that is kept as it is, at the end. 0: 0.16
	Tail float64
	// Growth is the share of the window by which the view must have grown since the last attempt. 0: 0.1
	Growth float64
	// Results with a text of more than PruneOver runes that are not in the tail keep their first PruneHead and their
	// last PruneTail. 0: 8192, 4096, 1024
	PruneOver, PruneHead, PruneTail int
	// Timeout ends a request for a summary. 0: 5 minutes
	Timeout time.Duration
	// SummaryTokens is the most that a summary may have. 0: 8192, and no more than a quarter of the window
	SummaryTokens int
	// Attempts is how many compactions may follow each other without a completed answer between them. 0: 2
	Attempts int
}

// Defaults are the settings where nobody says otherwise.
var Defaults = Settings{
	Threshold: 0.8, Tail: 0.16, Growth: 0.1, PruneOver: 8192, PruneHead: 4096, PruneTail: 1024,
	Timeout: 5 * time.Minute, SummaryTokens: 8192, Attempts: 2,
}

// Or returns s, with the fields of d where s has none.
func (s Settings) Or(d Settings) Settings {
	s.Off = s.Off || d.Off
	or(&s.Threshold, d.Threshold)
	or(&s.Tail, d.Tail)
	or(&s.Growth, d.Growth)
	or(&s.PruneOver, d.PruneOver)
	or(&s.PruneHead, d.PruneHead)
	or(&s.PruneTail, d.PruneTail)
	or(&s.Timeout, d.Timeout)
	or(&s.SummaryTokens, d.SummaryTokens)
	or(&s.Attempts, d.Attempts)
	return s
}

func or[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Check says which number makes no sense, by its name in a config file; nil if all do. Zero fields make sense, what is
// not a number does not.
func (s Settings) Check() error {
	full := s.Or(Defaults)
	for _, c := range []struct {
		name string
		bad  bool
		want string
	}{
		{"threshold", !(full.Threshold >= 0.05 && full.Threshold <= 1), "between 0.05 and 1"},
		{"tail", !(full.Tail >= 0 && full.Tail < full.Threshold), "above 0 and below threshold"},
		{"growth", !(full.Growth >= 0 && full.Growth <= 1), "between 0 and 1"},
		{"prune_head", full.PruneHead < 0 || full.PruneTail < 0 || full.PruneHead > full.PruneOver || full.PruneTail > full.PruneOver-full.PruneHead-markerRunes, "with prune_tail well below prune_over"},
		{"timeout", full.Timeout < 0, "above 0"},
		{"summary_tokens", full.SummaryTokens < 16, "16 or more"},
		{"attempts", full.Attempts < 0, "1 or more"},
	} {
		if c.bad {
			return fmt.Errorf("%s must be %s", c.name, c.want)
		}
	}
	return nil
}
