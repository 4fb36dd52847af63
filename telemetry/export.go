package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// tally counts what was to be sent and what arrived.
type tally struct {
	mu      sync.Mutex
	made    int64 // guarded by mu
	arrived int64 // guarded by mu
	why     error // guarded by mu: of the last failure
}

func (c *tally) add(made, arrived int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made += made
	c.arrived += arrived
	if err != nil {
		c.why = err
	}
}

var (
	errCrashed = errors.New("telling of a session crashed")
	errFull    = errors.New("they came faster than they could be sent")
)

// late says why what was never sent was not, if nothing else does.
func (c *tally) late() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		c.why = errOver
	}
}

func (c *tally) crashed() { c.add(1, 0, errCrashed) }

func (c *tally) lost() Lost {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := Lost{Items: c.made - c.arrived, Of: c.made}
	if l.Items > 0 {
		err := c.why
		if err == nil {
			err = errFull
		}
		l.Why = err.Error()
	}
	return l
}

// countSpans counts the spans that end, before a queue can drop them.
type countSpans struct {
	sdktrace.SpanProcessor
	sent *tally
}

func (c countSpans) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.sent.add(1, 0, nil)
	}
	c.SpanProcessor.OnEnd(s)
}

// countRecords counts the log records.
type countRecords struct {
	sdklog.Processor
	sent *tally
}

func (c countRecords) OnEmit(ctx context.Context, r *sdklog.Record) error {
	c.sent.add(1, 0, nil)
	return c.Processor.OnEmit(ctx, r)
}

// exporter posts the batches of one signal.
type exporter struct {
	t    *Telemetry
	to   Target
	once sync.Once
	done chan struct{}
}

func (t *Telemetry) newExporter(to Target) *exporter {
	if to.Timeout <= 0 {
		to.Timeout = 10 * time.Second
	}
	return &exporter{t: t, to: to, done: make(chan struct{})}
}

// shutdown is the last that a processor calls.
func (e *exporter) shutdown() error {
	e.once.Do(func() { close(e.done) })
	return nil
}

// send posts a batch of n items, once: what may have arrived is not sent again.
func (e *exporter) send(ctx context.Context, n int64, body []byte, err error) error {
	if err == nil {
		err = e.post(ctx, body)
	}
	if err != nil {
		e.t.sent.add(0, 0, err)
		return err
	}
	e.t.sent.add(0, n, nil)
	return nil
}

var (
	errLate = errors.New("no answer came in time")
	errOver = errors.New("the program ended before it answered")
)

func (e *exporter) post(ctx context.Context, body []byte) error {
	if e.t.stop.Err() != nil {
		return errOver
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.to.Timeout, errLate)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(e.t.stop, func() { end(errOver) })()
	if e.to.Gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		body = b.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.to.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("its address is none")
	}
	for k, v := range e.to.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if e.to.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := e.t.opts.Client.Do(req)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if own := (*url.Error)(nil); errors.As(err, &own) { // its text has the address, which may hold a password
		return own.Err
	} else if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered with HTTP %d", resp.StatusCode)
	}
	return nil
}

// spans, records and metrics are the exporters as the SDK wants them.
type spans struct{ e *exporter }

func (s spans) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	body, err := wireSpans(batch)
	return s.e.send(ctx, int64(len(batch)), body, err)
}

func (s spans) Shutdown(context.Context) error { return s.e.shutdown() }

type records struct{ e *exporter }

func (r records) Export(ctx context.Context, batch []sdklog.Record) error {
	if len(batch) == 0 {
		return nil
	}
	body, err := wireRecords(batch)
	return r.e.send(ctx, int64(len(batch)), body, err)
}

func (r records) ForceFlush(context.Context) error { return nil }
func (r records) Shutdown(context.Context) error   { return r.e.shutdown() }

type metrics struct{ e *exporter }

func (metrics) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (metrics) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (m metrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	if len(rm.ScopeMetrics) == 0 {
		return nil
	}
	body, err := wireMetrics(rm)
	m.e.t.sent.add(1, 0, nil)
	return m.e.send(ctx, 1, body, err)
}

func (metrics) ForceFlush(context.Context) error { return nil }
func (m metrics) Shutdown(context.Context) error { return m.e.shutdown() }
