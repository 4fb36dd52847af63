package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A person who is asked: what is printed meanwhile gets lines of its own, the question stands below it, and
// nothing says that the model is waited for.
func TestQuestionStandsAlone(t *testing.T) {
	var screen bytes.Buffer
	s := &spinner{w: &screen} // without its clock: the test draws
	long := func() {
		s.since = time.Time{}
		s.draw(0)
	}
	say := func(text string) { s.print(false, func() { fmt.Fprintln(&screen, text) }) }
	open := true
	s.wait("waiting for the model")
	long()
	s.question(func() bool {
		if open {
			fmt.Fprint(&screen, "may it run? ")
		}
		return open
	})
	long()
	say("· bash ls .")
	long()
	screen.WriteString("y\n") // the terminal shows what the person types
	s.answered(true)
	say("· bash: done")
	s.question(func() bool {
		if open {
			fmt.Fprint(&screen, "and this? ")
		}
		return open
	})
	open = false // the turn was stopped
	say("· stopped")
	s.answered(false)
	say("> ")
	want := "may it run? \n· bash ls .\nmay it run? y\n· bash: done\nand this? \n· stopped\n> \n"
	spin, got, _ := strings.Cut(screen.String(), "s\r\x1b[K")
	if !strings.HasPrefix(spin, "\r\x1b[K| waiting for the model ") || got != want {
		t.Errorf("the screen is %q, %q, want %q", spin, got, want)
	}
}
