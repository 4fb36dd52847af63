package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// tally counts what was to be sent and what arrived.
type tally struct {
	mu      sync.Mutex
	made    int64  // guarded by mu
	arrived int64  // guarded by mu
	why     error  // guarded by mu: of the last failure
	remark  string // guarded by mu: the last that a receiver said which took everything
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

func (c *tally) remarked(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remark = s
}

func (c *tally) crashed() { c.add(1, 0, errCrashed) }

func (c *tally) lost() Lost {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := Lost{Items: c.made - c.arrived, Of: c.made, Remark: c.remark}
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
	var answer []byte
	if err == nil {
		answer, err = e.post(ctx, body)
	}
	if err != nil {
		e.t.sent.add(0, 0, err)
		return err
	}
	refused, said := partial(answer)
	said = e.clean(said)
	refused = min(max(refused, 0), n)
	switch {
	case refused > 0 && said != "":
		err = fmt.Errorf("it refused them: %s", said)
	case refused > 0:
		err = errRefused
	case said != "":
		e.t.sent.remarked(said)
	}
	e.t.sent.add(0, n-refused, err)
	return nil // the SDK has nothing to do about it
}

// partial reads the partial_success of an answer, which has the same form for every signal: how many items were
// refused, and what the receiver says of it. An answer that is none says nothing.
func partial(answer []byte) (refused int64, said string) {
	eachField(answer, func(num protowire.Number, _ uint64, b []byte) {
		if num != 1 {
			return
		}
		eachField(b, func(num protowire.Number, v uint64, b []byte) {
			switch num {
			case 1:
				refused = int64(v)
			case 2:
				said = string(b)
			}
		})
	})
	return refused, said
}

// eachField hands over the fields of a protobuf message, as far as it is one.
func eachField(b []byte, f func(num protowire.Number, v uint64, raw []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		var v uint64
		var raw []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			raw, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return
		}
		f(num, v, raw)
		b = b[n:]
	}
}

// maxSaid bounds what is repeated of a receiver's words, in bytes.
const maxSaid = 200

// clean makes a receiver's words fit for a line: short, and without a credential that it got from us.
func (e *exporter) clean(said string) string {
	for _, v := range e.to.Headers {
		for _, word := range append([]string{v}, strings.Fields(v)...) {
			if len(word) >= 4 {
				said = strings.ReplaceAll(said, word, "[redacted]")
			}
		}
	}
	said = strings.ToValidUTF8(e.t.opts.Redact(said), "\uFFFD")
	return strings.TrimSpace(cut(said, maxSaid))
}

var (
	errLate = errors.New("no answer came in time")
	errOver = errors.New("the program ended before it answered")

	errRefused = errors.New("it refused them")
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// post sends one request and returns what was answered, if that is protobuf.
func (e *exporter) post(ctx context.Context, body []byte) (answer []byte, err error) {
	if e.t.stop.Err() != nil {
		return nil, errOver
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
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		body = b.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.to.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its address is none")
	}
	for k, v := range e.to.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if e.to.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := e.t.opts.Client.Do(req)
	switch cause := context.Cause(ctx); {
	case err == nil || cause == nil:
	case errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded): // whoever closes waits no longer
		return nil, errOver
	default:
		return nil, cause
	}
	if own := (*url.Error)(nil); errors.As(err, &own) { // its text has the address, which may hold a password
		return nil, own.Err
	} else if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // to the end, so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("it answered with HTTP %d", resp.StatusCode)
	}
	if typ, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); typ != "application/x-protobuf" || err != nil {
		return nil, nil // it took the batch; what it says of that is not for us
	}
	return answer, nil
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
