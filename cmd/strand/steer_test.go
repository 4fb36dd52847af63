package main

import (
	"fmt"
	"io"
	"testing"
)

// A line knows how many questions were there when it was ended: what was typed before a question never answers it.
func TestLinesKnowTheirQuestion(t *testing.T) {
	for _, steers := range []bool{true, false} {
		c := &chat{spin: &spinner{mute: true}, steers: steers}
		r, w := io.Pipe()
		lines := c.readLines(t.Context(), r)
		fmt.Fprintln(w, "y")
		early := <-lines
		q := c.asked.Add(1)
		fmt.Fprintln(w, "y")
		late := <-lines
		w.Close()
		if c.answers(early, q) == steers || !c.answers(late, q) {
			t.Errorf("on a terminal %t: %+v, %+v", steers, early, late)
		}
		if _, ok := <-lines; ok {
			t.Error("a line behind the end")
		}
	}
}
