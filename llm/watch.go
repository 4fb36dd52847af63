package llm

import (
	"context"
	"iter"
	"time"
)

// AfterFunc runs f on its own goroutine after d, unless stop is called before; time.AfterFunc with its
// Stop method, or a test's hand.
type AfterFunc func(d time.Duration, f func()) (stop func() bool)

// Watch returns p with an idle watchdog: when no chunk comes for the time idle, the request is ended
// and its failure is TIMEOUT; idle 0 or less means that it may take its time. The time that the reader takes does not count. Beside that it holds p to
// its contract: every failure becomes an *Error (AsError), and an end without a finish STREAM_CLOSED.
func Watch(p Provider, idle time.Duration, after AfterFunc) Provider {
	if idle <= 0 {
		after = func(time.Duration, func()) func() bool { return func() bool { return true } }
	}
	return &watched{p, idle, after}
}

type watched struct {
	Provider
	idle  time.Duration
	after AfterFunc
}

// Unwrap returns the watched provider, for Find.
func (w *watched) Unwrap() Provider { return w.Provider }

func (w *watched) Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		inner, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		bark := func() {
			cancel(Errorf(CodeTimeout, "the model sent nothing for %v", w.idle))
		}
		// The provider ends its request because its context ended: no goroutine stands between it
		// and the reader, and none can be left behind.
		stop := w.after(w.idle, bark)
		defer func() { stop() }()
		for c, err := range w.Provider.Stream(inner, req) {
			stop()
			if err != nil {
				yield(Chunk{}, AsError(inner, err))
				return
			}
			if !yield(c, nil) || c.Type == ChunkFinish {
				return
			}
			stop = w.after(w.idle, bark)
		}
		if inner.Err() != nil {
			yield(Chunk{}, ended(inner, inner.Err()))
			return
		}
		yield(Chunk{}, Errorf(CodeStreamClosed, "the answer ended before it was complete"))
	}
}
