package telemetry

import (
	"context"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/strandline-dev/strandline/session"
)

// traceOf is the trace of a session: one for all its lives.
func traceOf(id session.ID) (out trace.TraceID) {
	sum := sha256.Sum256([]byte("strandline/trace\n" + id))
	copy(out[:], sum[:])
	return out
}

// spanOf is the span of what stands at key in a session.
func spanOf(id session.ID, what, key string) (out trace.SpanID) {
	sum := sha256.Sum256([]byte("strandline/span\n" + string(id) + "\n" + what + "\n" + key))
	copy(out[:], sum[:])
	return out
}

// ids are those of the span that is about to be started, in its context.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

type idsKey struct{}

// derived gives a span the ids that its context says.
type derived struct{}

func (derived) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	v, _ := ctx.Value(idsKey{}).(ids)
	return v.trace, v.span
}

func (derived) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	v, _ := ctx.Value(idsKey{}).(ids)
	return v.span
}

// open is a span that has begun. Nil is none.
type open struct {
	span  trace.Span
	ctx   context.Context // of what happens inside
	start int64
	name  string // of a tool
}

// begin starts a span inside another one. what and key make its id.
func (f *fold) begin(in *open, what, key, name string, at int64, kind trace.SpanKind, attrs []attribute.KeyValue, links ...trace.Link) *open {
	ctx := context.Background()
	if in != nil {
		ctx = in.ctx
	}
	ctx = context.WithValue(ctx, idsKey{}, ids{traceOf(f.id), spanOf(f.id, what, key)})
	ctx, span := f.t.tracer.Start(ctx, name, trace.WithTimestamp(time.UnixMilli(at)), trace.WithSpanKind(kind), trace.WithLinks(links...),
		trace.WithAttributes(keyConversation.String(string(f.id))), trace.WithAttributes(attrs...))
	return &open{span: span, ctx: ctx, start: at}
}

func (o *open) set(attrs ...attribute.KeyValue) {
	if o != nil {
		o.span.SetAttributes(attrs...)
	}
}

// fail marks a failure. text is "" unless content may leave.
func (o *open) fail(kind, text string) {
	if o != nil {
		o.span.SetAttributes(keyError.String(kind))
		o.span.SetStatus(codes.Error, text)
	}
}

// end ends a span. The clock of a log may go backwards: no span ends before it began.
func (o *open) end(at int64) {
	if o != nil {
		o.span.End(trace.WithTimestamp(time.UnixMilli(max(at, o.start))))
	}
}

// seconds is how long it has been.
func (o *open) seconds(at int64) float64 { return float64(max(at-o.start, 0)) / 1000 }
