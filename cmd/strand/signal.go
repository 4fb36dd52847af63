package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts hands signals to whoever works at the moment.
type interrupts struct {
	mu sync.Mutex
	f  func(os.Signal) // guarded by mu
	ch chan os.Signal
}

// trap begins to catch SIGINT, SIGTERM and, unless it is ignored as under nohup, SIGHUP: a terminal that is closed
// ends work as cleanly as Ctrl-C does. Unless a command takes them over, the first one ends the context and the
// second one the process. What it returns ends it.
func (c *cli) trap(cancel context.CancelFunc) (stop func()) {
	signals := make(chan os.Signal, 4)
	c.signals.ch = signals
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	n := 0
	c.signals.f = func(os.Signal) {
		if n++; n > 1 {
			os.Exit(exitFailed)
		}
		cancel()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sig := range signals {
			if sig == syscall.SIGPIPE && !readerGone() {
				continue
			}
			c.signals.mu.Lock()
			f := c.signals.f
			c.signals.mu.Unlock()
			f(sig)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

// onSignal makes f get the signals until the function that it returns is called. f must not block. It gets SIGPIPE,
// too, from then on: a reader that goes away must not kill what is at work, or leave a tool behind that runs on.
func (c *cli) onSignal(f func(os.Signal)) (restore func()) {
	signal.Notify(c.signals.ch, syscall.SIGPIPE)
	c.signals.mu.Lock()
	defer c.signals.mu.Unlock()
	old := c.signals.f
	c.signals.f = f
	return func() {
		c.signals.mu.Lock()
		defer c.signals.mu.Unlock()
		c.signals.f = old
	}
}
