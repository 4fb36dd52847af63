package message_test

import (
	"testing"

	"github.com/strandline-dev/strandline/message"
)

func TestTitle(t *testing.T) {
	long := "0123456789012345678901234567890123456789012345678901234567890123456789"
	for in, want := range map[string]string{
		"fix the bug":                   "fix the bug",
		"  a\n\tb \u202e c\x00d \u200b": "a b cd",
		long:                            long[:59] + "…",
		"word " + long:                  "word…",
		"":                              "",
		"\u202e\u200f":                  "",
		long[:60]:                       long[:60],
		long[:55] + " abcd":             long[:55] + " abcd",
		long[:55] + " abcde":            long[:55] + "…",
	} {
		if got := message.User("u", in).Title(); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if n := len([]rune(want)); n > 60 {
			t.Errorf("%q has %d runes", want, n)
		}
	}
	if m := (message.Message{Role: message.RoleUser, Content: message.User("u", "said").Content}); m.Title() != "" {
		t.Error("what nobody said names a session")
	}
}
