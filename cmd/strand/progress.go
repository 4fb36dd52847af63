package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/brief"
)

// spinner keeps one line on a terminal that says what is waited for, once nothing else was printed for a
// second, and takes it away before anything else is printed. While a person is asked it shows nothing, and what is
// printed meanwhile gets lines of its own, with the question again below it. A nil spinner shows nothing.
type spinner struct {
	w    io.Writer
	done chan struct{}
	idle chan struct{}
	mute bool // nobody watches: it only keeps those who print apart

	mu    sync.Mutex
	under bool        // guarded by mu: a person may type while it is shown, in the line below it
	rows  int         // guarded by mu: how many lines were ended there since it is shown
	text  string      // guarded by mu; "": nothing is waited for
	since time.Time   // guarded by mu: of the last output
	begun time.Time   // guarded by mu: of the wait
	shown bool        // guarded by mu
	held  bool        // guarded by mu: the cursor stands in a line of somebody else's
	ask   func() bool // guarded by mu: prints the question that a person is asked, if it is still open; may be nil
}

// newSpinner starts a spinner if a person watches stderr; else it is nil.
func (c *cli) newSpinner() *spinner {
	if !c.errTerm || c.quiet || c.json {
		return nil
	}
	now := time.Now()
	s := &spinner{w: c.err, done: make(chan struct{}), idle: make(chan struct{}), since: now, begun: now}
	go s.loop()
	return s
}

func (s *spinner) loop() {
	defer close(s.idle)
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.draw(n)
		}
	}
}

func (s *spinner) draw(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const frames = `|/-\`
	now := time.Now()
	if s.text == "" || s.held || s.ask != nil || now.Sub(s.since) < time.Second {
		return
	}
	line := fmt.Sprintf("%c %s %ds", frames[n%len(frames)], brief.Clip(safeLine(s.text), 60), int(now.Sub(s.begun).Seconds()))
	switch {
	case !s.under:
		fmt.Fprint(s.w, "\r\x1b[K"+line)
	case !s.shown: // a line is made below (the screen may scroll), and what is typed so far moves into it with the cursor
		fmt.Fprint(s.w, "\x1bD\x1b[A\x1b7\x1b[L\r"+line+"\x1b8\x1b[B")
	case s.rows == 0:
		fmt.Fprint(s.w, "\x1b7\x1b[A\r\x1b[K"+line+"\x1b8")
	}
	s.shown = true
}

// typedUnder says whether a person may type while it is shown.
func (s *spinner) typedUnder(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under = on
}

// entered says that the person ended a line.
func (s *spinner) entered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		s.rows++
	}
}

// wait says what is waited for now; "" for nothing.
func (s *spinner) wait(format string, args ...any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.text, s.begun = fmt.Sprintf(format, args...), time.Now()
}

// print runs f, which prints, with the line taken away. held: f leaves the cursor within a line.
func (s *spinner) print(held bool, f func()) {
	if s == nil {
		f()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	if s.ask != nil && s.held && !s.mute {
		fmt.Fprintln(s.w)
	}
	f()
	s.since, s.held = time.Now(), held
	if s.ask != nil && !held && !s.mute {
		s.held = s.ask()
	}
}

// question prints a question, with f, that stands until answered is called. f leaves the cursor within a line and
// reports true, or prints nothing as the question is not open any more.
func (s *spinner) question(f func() bool) {
	if s == nil {
		f()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.ask, s.held = f, f()
}

// answered ends the question. newLine: the cursor stands at the begin of a line, for the person ended theirs.
func (s *spinner) answered(newLine bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ask != nil && s.held && !newLine && !s.mute {
		fmt.Fprintln(s.w)
	}
	s.since, s.held, s.ask = time.Now(), false, nil
}

func (s *spinner) clear() {
	switch {
	case s.shown && s.under: // what was typed below it moves up
		fmt.Fprintf(s.w, "\x1b7\x1b[%dA\x1b[M\x1b8\x1b[A", 1+s.rows)
	case s.shown:
		fmt.Fprint(s.w, "\r\x1b[K")
	}
	s.shown, s.rows = false, 0
}

// stop takes the line away for good.
func (s *spinner) stop() {
	if s == nil {
		return
	}
	if s.mute {
		return
	}
	close(s.done)
	<-s.idle
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}
