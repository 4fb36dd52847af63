package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// ticker shows one line on a terminal while something takes longer than a second, and takes it away again.
type ticker struct {
	w    io.Writer
	mu   sync.Mutex
	text string // guarded by mu
	done chan struct{}
	idle chan struct{}
}

// startTicker begins to wait; nothing is shown within the first second.
func startTicker(w io.Writer, text string) *ticker {
	t := &ticker{w: w, text: text, done: make(chan struct{}), idle: make(chan struct{})}
	go t.loop()
	return t
}

func (t *ticker) loop() {
	defer close(t.idle)
	const frames = `|/-\`
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	shown := false
	for n := 0; ; n++ {
		select {
		case <-t.done:
			if shown {
				fmt.Fprint(t.w, "\r\x1b[K")
			}
			return
		case <-tick.C:
		}
		if s := time.Since(begun); s >= time.Second {
			t.mu.Lock()
			text := t.text
			t.mu.Unlock()
			shown = true
			fmt.Fprintf(t.w, "\r\x1b[K%c %s %ds", frames[n%len(frames)], clip(safeLine(text), 60), int(s.Seconds()))
		}
	}
}

func (t *ticker) set(text string) {
	t.mu.Lock()
	t.text = text
	t.mu.Unlock()
}

// stop takes the line away. It returns when nothing more is written. Idempotent by way of its callers' nil.
func (t *ticker) stop() {
	close(t.done)
	<-t.idle
}

// wait starts a ticker if a person watches stderr; what it returns ends it.
func (c *cli) wait(text string) (set func(string), stop func()) {
	if !c.errTerm || c.quiet || c.json {
		return func(string) {}, func() {}
	}
	t := startTicker(c.err, text)
	return t.set, sync.OnceFunc(t.stop)
}
