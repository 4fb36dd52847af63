// Package telemetry tells an OpenTelemetry receiver what live sessions do: spans, metrics and log records, over HTTP.
//
// It reads the log and nothing else. A follower is a cursor over Session.From that begins at FirstLiveSeq: the seed of
// a life is never told again, the boundary is. It tells of an event once the event is synced, because only then no
// later life can write another event with the same seq; so an event is told at most once, whatever is killed, and what
// a killed life had not sent yet is not made up for. Trace and span ids are derived from session and seq, so that a
// child's link to its parent's span needs nothing but the child's header.
//
// Nothing here waits for the receiver but Close: the queues are those of the SDK, bounded, and what does not fit or
// does not arrive is counted and dropped. A batch is sent once.
//
// What leaves is what docs/telemetry.md lists. Content (what people, models and tools said, and the texts of errors)
// is not among it unless Options.Content says so, and then it passes Options.Redact, as every other text does.
//
// The files, in reading order:
//
//	telemetry.go  New, Follow, Close
//	follow.go     the cursor of one session
//	fold.go       from events to spans, metrics and records
//	spans.go      the spans that are open, and their ids
//	names.go      what everything is called
//	export.go     the SDK's exporters: batches over HTTP, counted
//	wire.go       what the SDK has, as OTLP
package telemetry

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	nolog "go.opentelemetry.io/otel/log/noop"
	"go.opentelemetry.io/otel/metric"
	nometric "go.opentelemetry.io/otel/metric/noop"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	notrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/strandline-dev/strandline/session"
)

// Target is where one signal goes.
type Target struct {
	URL     string // whole; "": the signal is off
	Headers map[string]string
	Timeout time.Duration // of one batch; 0: 10 s
	Gzip    bool
}

// Options says what is told, and to whom. Service, Instance, Registry and Client are required.
type Options struct {
	Traces, Metrics, Logs Target

	Service, Version string // service.name where OTEL_SERVICE_NAME does not say otherwise, and service.version
	Instance         string // service.instance.id: unique to this process
	Registry         *session.Registry
	// Client sends the batches. It should not follow redirects: the headers are meant for the target alone.
	Client *http.Client
	// Content lets out what people, models and tools said, and the texts of errors.
	Content bool
	// Redact is given every text that the log holds before it leaves; nil leaves content off.
	Redact func(string) string
}

// Telemetry follows sessions and sends what it learns. It is safe for concurrent use. Close it.
type Telemetry struct {
	opts   Options
	tracer trace.Tracer
	logger log.Logger
	meters meters
	sent   tally
	sinks  []sink // one per signal that is on

	stop context.Context // ends when nothing is sent any more
	kill context.CancelFunc

	mu        sync.Mutex
	closed    bool               // guarded by mu
	followers map[*Follower]bool // guarded by mu
	tasks     sync.WaitGroup     // the followers' goroutines
}

// sink is one signal's way out. It is shut down directly: a provider of the SDK whose context has ended leaves its
// processors running.
type sink struct {
	shutdown func(context.Context) error
	done     <-chan struct{} // closed when its exporter was shut down: nothing of it runs any more
}

// quiet takes the SDK's own errors: what is lost is counted here, and nothing is printed into a program's output.
var quiet = otel.ErrorHandlerFunc(func(error) {})

// New begins. Nothing is sent before the first event of a followed session. The SDK's own settings in the environment
// (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_*, OTEL_BLRP_*, OTEL_METRIC_EXPORT_INTERVAL,
// OTEL_TRACES_SAMPLER ..) hold; where batches go is what o says. The SDK reports its own failures to one place per
// process and prints them by default: New makes that place silent. It uses none of the SDK's global providers.
func New(o Options) (*Telemetry, error) {
	if o.Service == "" || o.Instance == "" || o.Registry == nil || o.Client == nil {
		return nil, errors.New("telemetry: Service, Instance, Registry and Client are required")
	}
	o.Content = o.Content && o.Redact != nil
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	otel.SetErrorHandler(quiet)
	otel.SetLogger(logr.Discard())
	t := &Telemetry{opts: o, followers: map[*Follower]bool{}}
	t.stop, t.kill = context.WithCancel(context.Background())
	res, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if res == nil {
		return nil, err
	} // an attribute of the environment that cannot be read is left out

	t.tracer, t.logger = notrace.NewTracerProvider().Tracer(scope), nolog.NewLoggerProvider().Logger(scope)
	var meter metric.Meter = nometric.NewMeterProvider().Meter(scope)
	if o.Traces.URL != "" {
		ex := t.newExporter(o.Traces)
		b := sdktrace.NewBatchSpanProcessor(spans{ex})
		p := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithIDGenerator(derived{}),
			sdktrace.WithSpanProcessor(countSpans{b, &t.sent}))
		t.tracer = p.Tracer(scope, trace.WithInstrumentationVersion(o.Version))
		t.sinks = append(t.sinks, sink{b.Shutdown, ex.done})
	}
	if o.Logs.URL != "" {
		ex := t.newExporter(o.Logs)
		b := sdklog.NewBatchProcessor(records{ex})
		p := sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(countRecords{b, &t.sent}))
		t.logger = p.Logger(scope, log.WithInstrumentationVersion(o.Version))
		t.sinks = append(t.sinks, sink{b.Shutdown, ex.done})
	}
	if o.Metrics.URL != "" {
		ex := t.newExporter(o.Metrics)
		b := sdkmetric.NewPeriodicReader(metrics{ex})
		p := sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter), sdkmetric.WithReader(b))
		meter = p.Meter(scope, metric.WithInstrumentationVersion(o.Version))
		t.sinks = append(t.sinks, sink{b.Shutdown, ex.done})
	}
	t.meters, err = newMeters(meter)
	return t, err
}

// Lost is what did not arrive.
type Lost struct {
	Items int64 // spans and log records that were not taken, and batches of metrics of which a part was not
	Of    int64 // spans, log records and batches of metrics in all
	Why   string
	// Remark is what a receiver said that took what was sent; "": nothing.
	Remark string
}

// Close ends the followers, sends what is left and returns what did not arrive in all. It waits for the receivers no
// longer than ctx lasts; when it returns nothing of it runs any more.
func (t *Telemetry) Close(ctx context.Context) Lost {
	t.mu.Lock()
	t.closed = true
	var left []*Follower
	for f := range t.followers {
		left = append(left, f)
	}
	t.mu.Unlock()
	for _, f := range left {
		f.End()
	}
	t.tasks.Wait()
	over := context.AfterFunc(ctx, t.kill) // whatever is on its way to a receiver
	var wg sync.WaitGroup
	for _, s := range t.sinks {
		wg.Go(func() {
			_ = s.shutdown(ctx) // what it lost is counted
			<-s.done
		})
	}
	wg.Wait()
	over()
	t.kill()
	if ctx.Err() != nil {
		t.sent.late()
	}
	t.opts.Client.CloseIdleConnections()
	return t.sent.lost()
}
