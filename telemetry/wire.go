package telemetry

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The SDK's own exporters link gRPC, which would nearly double the start of the program; the collector's data model
// writes the same bytes. All items of a batch have one resource and one scope.

func wireSpans(batch []sdktrace.ReadOnlySpan) ([]byte, error) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Spans().EnsureCapacity(len(batch))
	for i, s := range batch {
		if i == 0 {
			wireResource(rs.Resource(), s.Resource())
			wireScope(ss.Scope(), s.InstrumentationScope())
		}
		to := ss.Spans().AppendEmpty()
		to.SetTraceID(pcommon.TraceID(s.SpanContext().TraceID()))
		to.SetSpanID(pcommon.SpanID(s.SpanContext().SpanID()))
		to.SetParentSpanID(pcommon.SpanID(s.Parent().SpanID()))
		to.TraceState().FromRaw(s.SpanContext().TraceState().String())
		to.SetFlags(uint32(s.SpanContext().TraceFlags()))
		to.SetName(s.Name())
		to.SetKind(ptrace.SpanKindInternal)
		if s.SpanKind() == trace.SpanKindClient {
			to.SetKind(ptrace.SpanKindClient)
		}
		to.SetStartTimestamp(stamp(s.StartTime()))
		to.SetEndTimestamp(stamp(s.EndTime()))
		wireAttrs(to.Attributes(), s.Attributes())
		to.SetDroppedAttributesCount(uint32(s.DroppedAttributes()))
		for _, l := range s.Links() {
			link := to.Links().AppendEmpty()
			link.SetTraceID(pcommon.TraceID(l.SpanContext.TraceID()))
			link.SetSpanID(pcommon.SpanID(l.SpanContext.SpanID()))
			link.SetFlags(uint32(l.SpanContext.TraceFlags()))
			wireAttrs(link.Attributes(), l.Attributes)
		}
		if st := s.Status(); st.Code == codes.Error {
			to.Status().SetCode(ptrace.StatusCodeError)
			to.Status().SetMessage(st.Description)
		}
	}
	return (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
}

func wireRecords(batch []sdklog.Record) ([]byte, error) {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	sl.LogRecords().EnsureCapacity(len(batch))
	for i := range batch {
		r := &batch[i]
		if i == 0 {
			wireResource(rl.Resource(), r.Resource())
			wireScope(sl.Scope(), r.InstrumentationScope())
		}
		to := sl.LogRecords().AppendEmpty()
		to.SetEventName(r.EventName())
		to.SetTimestamp(stamp(r.Timestamp()))
		to.SetObservedTimestamp(stamp(r.ObservedTimestamp()))
		to.SetSeverityNumber(plog.SeverityNumber(r.Severity()))
		to.SetTraceID(pcommon.TraceID(r.TraceID()))
		to.SetSpanID(pcommon.SpanID(r.SpanID()))
		to.SetFlags(plog.LogRecordFlags(r.TraceFlags()))
		to.SetDroppedAttributesCount(uint32(r.DroppedAttributes()))
		if b := r.Body(); b.Type() != attribute.EMPTY {
			wireValue(to.Body(), b)
		}
		r.WalkAttributes(func(kv attribute.KeyValue) bool {
			wireValue(to.Attributes().PutEmpty(string(kv.Key)), kv.Value)
			return true
		})
	}
	return (&plog.ProtoMarshaler{}).MarshalLogs(ld)
}

func wireMetrics(rm *metricdata.ResourceMetrics) ([]byte, error) {
	md := pmetric.NewMetrics()
	to := md.ResourceMetrics().AppendEmpty()
	wireResource(to.Resource(), rm.Resource)
	for _, sm := range rm.ScopeMetrics {
		scope := to.ScopeMetrics().AppendEmpty()
		wireScope(scope.Scope(), sm.Scope)
		for _, m := range sm.Metrics {
			out := scope.Metrics().AppendEmpty()
			out.SetName(m.Name)
			out.SetDescription(m.Description)
			out.SetUnit(m.Unit)
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				sum := out.SetEmptySum()
				sum.SetIsMonotonic(d.IsMonotonic)
				sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
				for _, p := range d.DataPoints {
					dp := sum.DataPoints().AppendEmpty()
					dp.SetStartTimestamp(stamp(p.StartTime))
					dp.SetTimestamp(stamp(p.Time))
					dp.SetIntValue(p.Value)
					wireAttrs(dp.Attributes(), p.Attributes.ToSlice())
				}
			case metricdata.Histogram[int64]:
				wireHistogram(out.SetEmptyHistogram(), d)
			case metricdata.Histogram[float64]:
				wireHistogram(out.SetEmptyHistogram(), d)
			default:
				return nil, fmt.Errorf("telemetry: the metric %s is a %T, which is not one of ours", m.Name, d)
			}
		}
	}
	return (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
}

func wireHistogram[N int64 | float64](to pmetric.Histogram, d metricdata.Histogram[N]) {
	to.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for _, p := range d.DataPoints {
		dp := to.DataPoints().AppendEmpty()
		dp.SetStartTimestamp(stamp(p.StartTime))
		dp.SetTimestamp(stamp(p.Time))
		dp.SetCount(p.Count)
		dp.SetSum(float64(p.Sum))
		dp.ExplicitBounds().FromRaw(p.Bounds)
		dp.BucketCounts().FromRaw(p.BucketCounts)
		if v, ok := p.Min.Value(); ok {
			dp.SetMin(float64(v))
		}
		if v, ok := p.Max.Value(); ok {
			dp.SetMax(float64(v))
		}
		wireAttrs(dp.Attributes(), p.Attributes.ToSlice())
	}
}

func stamp(t time.Time) pcommon.Timestamp {
	if t.IsZero() {
		return 0
	}
	return pcommon.NewTimestampFromTime(t)
}

func wireResource(to pcommon.Resource, r *resource.Resource) {
	wireAttrs(to.Attributes(), r.Attributes())
}

func wireScope(to pcommon.InstrumentationScope, s instrumentation.Scope) {
	to.SetName(s.Name)
	to.SetVersion(s.Version)
}

func wireAttrs(to pcommon.Map, attrs []attribute.KeyValue) {
	to.EnsureCapacity(len(attrs))
	for _, kv := range attrs {
		wireValue(to.PutEmpty(string(kv.Key)), kv.Value)
	}
}

// wireValue knows the types that this package, and the environment, give to an attribute.
func wireValue(to pcommon.Value, v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		to.SetBool(v.AsBool())
	case attribute.INT64:
		to.SetInt(v.AsInt64())
	case attribute.FLOAT64:
		to.SetDouble(v.AsFloat64())
	case attribute.STRINGSLICE:
		list := to.SetEmptySlice()
		for _, s := range v.AsStringSlice() {
			list.AppendEmpty().SetStr(s)
		}
	default:
		to.SetStr(v.String())
	}
}
