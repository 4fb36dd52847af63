// Package otlptest is a receiver of OTLP over HTTP for tests: it decodes what comes with the protobuf types of
// the protocol, which share no code with what package telemetry writes, and remembers it.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that came.
type Span struct {
	Name              string
	Trace, ID, Parent string // hexadecimal; Parent "" for a root
	Kind              string
	Start, End        int64 // Unix milliseconds
	Attrs             map[string]string
	Links             []string // trace:span
	Failed            bool
	Message           string // of the status
}

// Record is a log record that came.
type Record struct {
	Name        string
	Trace, Span string
	Time        int64 // Unix milliseconds
	Attrs       map[string]string
	Body        string
}

// Point is the newest value of one series of one process.
type Point struct {
	Attrs map[string]string
	Count uint64 // of a histogram
	Value float64
}

// Receiver is a receiver on loopback. It is safe for concurrent use.
type Receiver struct {
	URL string
	// CA is the certificate, as PEM, that the receiver shows; nil: it speaks without TLS.
	CA []byte
	// Answer, if not nil, answers instead of a plain 200; what came is remembered nevertheless. Set it before anything
	// is sent.
	Answer http.HandlerFunc

	t  testing.TB
	mu sync.Mutex

	spans    []Span             // guarded by mu
	records  []Record           // guarded by mu
	points   map[string][]Point // guarded by mu: by name and process
	resource map[string]string  // guarded by mu: of the last batch
	raw      []byte             // guarded by mu: every body, decompressed
	requests []*http.Request    // guarded by mu: without bodies
	moved    chan struct{}      // guarded by mu: closed and replaced with each request
}

// New starts a receiver that lives as long as the test.
func New(t testing.TB) *Receiver {
	t.Helper()
	r := receiver(t)
	r.serveOn(httptest.NewServer)
	return r
}

// NewTLS starts a receiver that shows a certificate of its own.
func NewTLS(t testing.TB) *Receiver {
	t.Helper()
	r := receiver(t)
	s := r.serveOn(httptest.NewTLSServer)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // who does not trust it hangs up, which is what a test wants
	r.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return r
}

func receiver(t testing.TB) *Receiver {
	return &Receiver{t: t, points: map[string][]Point{}, moved: make(chan struct{})}
}

func (r *Receiver) serveOn(start func(http.Handler) *httptest.Server) *httptest.Server {
	s := start(http.HandlerFunc(r.serve))
	r.t.Cleanup(s.Close)
	r.URL = s.URL
	return s
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	if err := r.take(req); err != nil {
		r.t.Errorf("the receiver of %s: %v", req.URL.Path, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Answer != nil {
		r.Answer(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *Receiver) take(req *http.Request) error {
	if ct := req.Header.Get("Content-Type"); req.Method != http.MethodPost || ct != "application/x-protobuf" {
		return fmt.Errorf("%s of %q", req.Method, ct)
	}
	var in io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		in = z
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { close(r.moved); r.moved = make(chan struct{}) }()
	r.raw = append(r.raw, body...)
	r.requests = append(r.requests, req)
	// The body of a request is the same on the wire as the Data message of its signal.
	switch {
	case strings.HasSuffix(req.URL.Path, "/v1/traces"):
		var d tracepb.TracesData
		if err := proto.Unmarshal(body, &d); err != nil {
			return err
		}
		for _, rs := range d.ResourceSpans {
			r.resource = attrs(rs.Resource.GetAttributes())
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					r.spans = append(r.spans, spanOf(s))
				}
			}
		}
	case strings.HasSuffix(req.URL.Path, "/v1/logs"):
		var d logspb.LogsData
		if err := proto.Unmarshal(body, &d); err != nil {
			return err
		}
		for _, rl := range d.ResourceLogs {
			r.resource = attrs(rl.Resource.GetAttributes())
			for _, sl := range rl.ScopeLogs {
				for _, l := range sl.LogRecords {
					r.records = append(r.records, Record{l.EventName, hex.EncodeToString(l.TraceId), hex.EncodeToString(l.SpanId),
						int64(l.TimeUnixNano / 1e6), attrs(l.Attributes), l.Body.GetStringValue()})
				}
			}
		}
	case strings.HasSuffix(req.URL.Path, "/v1/metrics"):
		var d metricspb.MetricsData
		if err := proto.Unmarshal(body, &d); err != nil {
			return err
		}
		for _, rm := range d.ResourceMetrics {
			r.resource = attrs(rm.Resource.GetAttributes())
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					r.points[m.Name+"\n"+r.resource["service.instance.id"]] = points(m)
				}
			}
		}
	default:
		return fmt.Errorf("nothing is expected there")
	}
	return nil
}

func spanOf(s *tracepb.Span) Span {
	out := Span{Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Kind: s.Kind.String(), Start: int64(s.StartTimeUnixNano / 1e6), End: int64(s.EndTimeUnixNano / 1e6), Attrs: attrs(s.Attributes),
		Failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR, Message: s.Status.GetMessage()}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.TraceId)+":"+hex.EncodeToString(l.SpanId))
	}
	return out
}

func points(m *metricspb.Metric) (out []Point) {
	for _, p := range m.GetSum().GetDataPoints() {
		out = append(out, Point{attrs(p.Attributes), 0, float64(p.GetAsInt())})
	}
	for _, p := range m.GetHistogram().GetDataPoints() {
		out = append(out, Point{attrs(p.Attributes), p.Count, p.GetSum()})
	}
	return out
}

func attrs(kvs []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range kvs {
		switch v := kv.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[kv.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			out[kv.Key] = fmt.Sprint(v.BoolValue)
		case *commonpb.AnyValue_DoubleValue:
			out[kv.Key] = fmt.Sprint(v.DoubleValue)
		case *commonpb.AnyValue_ArrayValue:
			var s []string
			for _, e := range v.ArrayValue.Values {
				s = append(s, e.GetStringValue())
			}
			out[kv.Key] = strings.Join(s, ",")
		}
	}
	return out
}

// Spans returns the spans that came, in the order of their starts.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append([]Span(nil), r.spans...)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Start < out[j].Start })
	return out
}

// Records returns the log records that came.
func (r *Receiver) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Record(nil), r.records...)
}

// Metric returns the series of a metric, of all processes.
func (r *Receiver) Metric(name string) (out []Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, ps := range r.points {
		if n, _, _ := strings.Cut(k, "\n"); n == name {
			out = append(out, ps...)
		}
	}
	return out
}

// Names returns the name of every metric and attribute that came.
func (r *Receiver) Names() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]bool{}
	note := func(m map[string]string) {
		for k := range m {
			all[k] = true
		}
	}
	note(r.resource)
	for _, s := range r.spans {
		note(s.Attrs)
	}
	for _, l := range r.records {
		note(l.Attrs)
	}
	for k, ps := range r.points {
		n, _, _ := strings.Cut(k, "\n")
		all[n] = true
		for _, p := range ps {
			note(p.Attrs)
		}
	}
	for k := range all {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// Resource returns the attributes of the last resource that came.
func (r *Receiver) Resource() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resource
}

// Raw returns all bytes of all bodies.
func (r *Receiver) Raw() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.raw)
}

// Requests returns the requests that came, without their bodies, and a channel that is closed with the next one.
func (r *Receiver) Requests() ([]*http.Request, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.requests...), r.moved
}
