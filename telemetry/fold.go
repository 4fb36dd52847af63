package telemetry

import (
	"context"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// fold makes spans, metrics and records of one life's events. All times are those of the events.
type fold struct {
	t      *Telemetry
	id     session.ID
	header session.Header
	first  session.Seq

	agent, turn, step, chat *open
	turnN, stepN            int
	calls                   map[string]*open  // by call id, of the open step
	brackets                map[string]*owned // by name and key

	provider, model string
	request         []attribute.KeyValue // of the header in force: what every request has

	last  int64  // time of the last event
	asked int64  // since when the model has all it needs
	ended int64  // time of a step/end whose turn may end with the next event
	reply *reply // the answer of the open step, whose finish the next event tells
}

// owned is an open bracket of a package.
type owned struct {
	*open
	member, key string // what pairs its ends
}

// reply is an answer that was logged.
type reply struct {
	at int64
	m  session.AssistantMessage
}

func newFold(t *Telemetry, s *session.Session) *fold {
	f := &fold{t: t, id: s.ID(), header: s.Header(), first: s.FirstLiveSeq(), calls: map[string]*open{}, brackets: map[string]*owned{}}
	st := s.State()
	if n, open := st.Turn(); open { // it waits for a person since an earlier life
		f.turnN = n
		f.stepN, _ = st.Step()
	}
	rc := st.RequestContext()
	f.provider, f.model = rc.Provider, rc.Model
	return f
}

// event folds the next one.
func (f *fold) event(ev session.Event) {
	if f.agent == nil {
		f.born(ev)
	}
	if f.ended != 0 && ev.Type != session.TypeTurnEnd {
		f.endStep(nil)
	}
	f.record(ev)
	f.last = ev.Time
	k, known := f.t.opts.Registry.Lookup(ev.Type)
	switch {
	case known && (k.Opens != "" || k.Closes != ""):
		f.bracket(ev, k)
	case known && k.Usage:
		f.spent(ev)
	}
	switch ev.Type {
	case session.TypeTurnStart:
		d, _ := session.DecodeData[session.TurnStart](ev)
		f.turnN, f.stepN = d.Turn, 0
		f.beginTurn(ev, false)
	case session.TypeTurnEnd:
		f.endTurn(ev)
	case session.TypeStepStart:
		d, _ := session.DecodeData[session.StepRef](ev)
		f.stepN = d.Step
		f.beginStep(ev, false)
	case session.TypeStepEnd:
		f.ended = ev.Time
	case session.TypeRequestHeader:
		f.head(ev)
	case typeSent:
		if purpose, ok := session.Field(ev.Data, "purpose"); !ok || string(purpose) == `""` {
			f.asked = ev.Time
		}
	case session.TypeUserMessage, session.TypeRequestContext:
		f.asked = ev.Time
	case session.TypeAssistantChunk:
		f.beginChat(ev)
	case typeRetry:
		f.retry(ev)
	case session.TypeAssistantMessage:
		f.beginChat(ev)
		if d, err := session.DecodeData[session.AssistantMessage](ev); err == nil && f.chat != nil {
			f.reply = &reply{ev.Time, d}
		}
	case session.TypeToolCall:
		f.beginCall(ev)
	case session.TypeToolResult:
		if ev.Op.Kind == session.OpAppend { // a replacement shortens an older result
			f.endCall(ev)
		}
	}
}

// born begins the life with its first event.
func (f *fold) born(ev session.Event) {
	attrs := []attribute.KeyValue{keyOperation.String(opAgent), keyAgent.String(agentName), keyKind.String(string(f.header.Kind)),
		keyDepth.Int(f.header.Depth), keyFirst.Int64(int64(f.first))}
	var links []trace.Link
	if p := f.header.Parent; p != nil && f.header.Kind == session.KindSubagent {
		key, _ := json.Marshal(f.id)
		links = append(links, trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: traceOf(p.ID), SpanID: spanOf(p.ID, bracketKid, string(key)), TraceFlags: trace.FlagsSampled, Remote: true,
		})})
	}
	f.agent = f.begin(nil, "agent", f.first.String(), opAgent+" "+agentName, ev.Time, trace.SpanKindInternal, attrs, links...)
	if f.turnN > 0 {
		f.beginTurn(ev, true)
	}
	if f.stepN > 0 {
		f.beginStep(ev, true)
	}
	f.asked = ev.Time
}

func (f *fold) beginTurn(ev session.Event, partial bool) {
	f.turn = f.begin(f.agent, "turn", ev.Seq.String(), "turn "+strconv.Itoa(f.turnN), ev.Time, trace.SpanKindInternal, nil)
	f.turn.set(keyTurn.Int(f.turnN))
	if partial {
		f.turn.set(keyPartial.Bool(true))
	}
}

func (f *fold) beginStep(ev session.Event, partial bool) {
	f.step = f.begin(f.inner(f.turn), "step", ev.Seq.String(), "step "+strconv.Itoa(f.stepN), ev.Time, trace.SpanKindInternal, nil)
	f.step.set(keyTurn.Int(f.turnN), keyStep.Int(f.stepN))
	if partial {
		f.step.set(keyPartial.Bool(true))
	}
	f.asked = ev.Time
}

// inner is the first of the spans that is open, the agent's else.
func (f *fold) inner(of ...*open) *open {
	for _, o := range of {
		if o != nil {
			return o
		}
	}
	return f.agent
}

// head reads the part of a request that stays the same.
func (f *fold) head(ev session.Event) {
	d, _ := session.DecodeData[session.RequestHeader](ev)
	var c struct {
		Provider        string   `json:"provider"`
		Model           string   `json:"model"`
		MaxOutputTokens int64    `json:"maxOutputTokens"`
		Temperature     *float64 `json:"temperature"`
	}
	if json.Unmarshal(d.Header.Config, &c) != nil {
		return
	}
	f.provider, f.model, f.request, f.asked = c.Provider, c.Model, nil, ev.Time
	if c.MaxOutputTokens > 0 {
		f.request = append(f.request, keyMaxTokens.Int64(c.MaxOutputTokens))
	}
	if c.Temperature != nil {
		f.request = append(f.request, keyTemperature.Float64(*c.Temperature))
	}
}

// beginChat begins the span of a request with the first sign of its answer: it was sent when the model had all it
// needs.
func (f *fold) beginChat(ev session.Event) {
	if f.reply != nil { // it failed after it had told what it cost, and was asked for again
		f.endChat(nil)
	}
	if f.chat != nil || f.step == nil {
		return
	}
	f.chat = f.begin(f.step, "chat", ev.Seq.String(), opChat+" "+f.text(f.model), f.asked, trace.SpanKindClient, f.request)
	f.chat.set(keyOperation.String(opChat), keyProvider.String(f.text(f.provider)), keyRequestModel.String(f.text(f.model)))
}

// asks are the attributes of the metrics of a request.
func (f *fold) asks(provider, model string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, keyOperation.String(opChat), keyProvider.String(f.text(provider)), keyRequestModel.String(f.text(model)))...)
}

// endChat ends the request of the open step. why is how its turn ended, if it did with the step.
func (f *fold) endChat(why *session.Reason) {
	c, r := f.chat, f.reply
	f.chat, f.reply = nil, nil
	if c == nil {
		return
	}
	if failed := refused(why); r == nil || failed != nil { // an answer that broke off
		kind, text, at := "aborted", "", f.last
		if failed != nil {
			kind, text = code(failed), f.content(failed.Message)
		}
		if r != nil {
			f.usage(c, r.m.Usage, f.provider, f.model)
			at = r.at
		}
		f.failChat(c, at, kind, text)
		return
	}
	if p := r.m.Message.Source.Provider; p != "" {
		f.provider = p
	}
	calls := len(r.m.Message.Calls()) > 0
	finish := "stop"
	switch {
	case r.m.Interrupted:
		finish = "aborted"
	case why != nil && why.Kind == session.ReasonMaxTokens:
		finish = "length"
	case why != nil && why.Kind == session.ReasonBlocked && !calls:
		finish = "content_filter"
	case calls:
		finish = "tool_calls"
	}
	c.set(keyFinish.StringSlice([]string{finish}), keyModel.String(f.text(orElse(r.m.Message.Source.Model, f.model))))
	if r.m.ResponseID != "" {
		c.set(keyResponse.String(f.text(r.m.ResponseID)))
	}
	if f.t.opts.Content {
		c.set(keyOutputs.String(f.raw(r.m.Message.Content)))
	}
	f.usage(c, r.m.Usage, f.provider, f.model)
	var failed []attribute.KeyValue
	if r.m.Interrupted {
		c.fail("aborted", "")
		failed = append(failed, keyError.String("aborted"))
	}
	f.t.meters.duration.Record(context.Background(), c.seconds(r.at), f.asks(f.provider, f.model, failed...))
	c.end(r.at)
}

// refused is the failure of a request that ended its turn, nil if none did.
func refused(why *session.Reason) *session.ErrorInfo {
	if why == nil || why.Error == nil || why.Error.Name != modelError {
		return nil
	}
	return why.Error
}

func (f *fold) failChat(c *open, at int64, kind, text string) {
	c.fail(f.text(kind), text)
	f.t.meters.duration.Record(context.Background(), c.seconds(at), f.asks(f.provider, f.model, keyError.String(f.text(kind))))
	c.end(at)
}

// usage tells what a request cost, on its span and as metrics. Nil is unknown, which is not zero.
func (f *fold) usage(on *open, u *message.Usage, provider, model string) {
	if u == nil {
		return
	}
	in := u.InputTokens
	if u.CacheReadTokens != nil {
		in += *u.CacheReadTokens
		on.set(keyCacheRead.Int64(*u.CacheReadTokens))
	}
	if u.CacheWriteTokens != nil {
		in += *u.CacheWriteTokens
		on.set(keyCacheWrite.Int64(*u.CacheWriteTokens))
	}
	on.set(keyInput.Int64(in), keyOutput.Int64(u.OutputTokens))
	f.t.meters.tokens.Record(context.Background(), in, f.asks(provider, model, keyTokenType.String("input")))
	f.t.meters.tokens.Record(context.Background(), u.OutputTokens, f.asks(provider, model, keyTokenType.String("output")))
}

// retry ends an attempt that failed; the next one begins after the delay.
func (f *fold) retry(ev session.Event) {
	var d struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Attempt int    `json:"attempt"`
		DelayMs int64  `json:"delayMs"`
	}
	if json.Unmarshal(ev.Data, &d) != nil {
		return
	}
	if f.reply == nil {
		f.beginChat(ev)
	}
	if c, r := f.chat, f.reply; c != nil {
		f.chat, f.reply = nil, nil
		c.set(keyAttempt.Int(d.Attempt))
		if r != nil {
			f.usage(c, r.m.Usage, f.provider, f.model)
		}
		f.failChat(c, ev.Time, d.Code, f.content(d.Message))
	}
	f.asked = ev.Time + d.DelayMs
}

func (f *fold) endStep(why *session.Reason) {
	f.endChat(why)
	for id, c := range f.calls {
		c.fail("no_result", "")
		c.end(f.ended)
		delete(f.calls, id)
	}
	f.step.end(f.ended)
	f.step, f.ended = nil, 0
}

func (f *fold) endTurn(ev session.Event) {
	d, _ := session.DecodeData[session.TurnEnd](ev)
	if f.chat == nil && refused(&d.Reason) != nil {
		f.beginChat(ev) // a request that was refused for good leaves no event of its own
	}
	if f.ended == 0 {
		f.ended = ev.Time
	}
	f.endStep(&d.Reason)
	if f.turn == nil { // it began in another life, which this one has not seen
		f.turnN = d.Turn
		f.beginTurn(ev, true)
	}
	f.turn.set(keyReason.String(f.text(d.Reason.Kind)))
	attrs := []attribute.KeyValue{keyReason.String(f.text(d.Reason.Kind))}
	if d.Reason.Cause != "" {
		f.turn.set(keyDetail.String(f.text(d.Reason.Cause)))
	}
	if e := d.Reason.Error; e != nil {
		f.turn.fail(f.text(code(e)), f.content(e.Message))
		attrs = append(attrs, keyError.String(f.text(code(e))))
	}
	f.turn.end(ev.Time)
	f.turn, f.turnN, f.stepN = nil, 0, 0
	f.t.meters.turns.Add(context.Background(), 1, metric.WithAttributes(attrs...))
}

func code(e *session.ErrorInfo) string { return orElse(orElse(e.Code, e.Name), "_OTHER") }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (f *fold) beginCall(ev session.Event) {
	f.endChat(nil)
	d, err := session.DecodeData[session.ToolCall](ev)
	if err != nil {
		return
	}
	name := f.text(d.Name)
	c := f.begin(f.inner(f.step, f.turn), "call", ev.Seq.String(), opTool+" "+name, ev.Time, trace.SpanKindInternal,
		[]attribute.KeyValue{keyOperation.String(opTool), keyTool.String(name), keyToolType.String("function"), keyCall.String(f.text(d.CallID))})
	c.name = name
	if f.t.opts.Content {
		c.set(keyArguments.String(f.content(d.Arguments)))
	}
	f.calls[d.CallID] = c
}

func (f *fold) endCall(ev session.Event) {
	f.asked = ev.Time
	d, err := session.DecodeData[session.ToolResult](ev)
	if err != nil || len(d.Message.Content) != 1 {
		return
	}
	b := d.Message.Content[0]
	c, started := f.calls[b.ToolCallID]
	delete(f.calls, b.ToolCallID)
	var attrs []attribute.KeyValue
	if d.Error != nil {
		attrs = append(attrs, keyError.String(f.text(code(d.Error))))
	} else if b.IsError {
		attrs = append(attrs, keyError.String("_OTHER"))
	}
	if !started { // refused, denied or never begun: no span, and a name that may be anything
		f.t.meters.calls.Add(context.Background(), 1, metric.WithAttributes(attrs...))
		return
	}
	if len(attrs) > 0 {
		c.fail(attrs[0].Value.AsString(), "")
	}
	if f.t.opts.Content {
		c.set(keyResult.String(f.raw(b.Content)))
	}
	attrs = append(attrs, keyTool.String(c.name))
	f.t.meters.calls.Add(context.Background(), 1, metric.WithAttributes(attrs...))
	f.t.meters.toolDuration.Record(context.Background(), c.seconds(ev.Time), metric.WithAttributes(attrs...))
	c.end(ev.Time)
}

// bracket begins or ends the span of a bracket that a package has declared: a compaction, a child, a question. One
// that an earlier life opened has no span here.
func (f *fold) bracket(ev session.Event, k session.Kind) {
	key := ""
	if k.Key != "" {
		v, _ := session.Field(ev.Data, k.Key)
		key = string(v)
	}
	if name := k.Opens; name != "" {
		at := orElse(key, ev.Seq.String())
		in := f.inner(f.step, f.turn)
		if v, ok := session.Field(ev.Data, "callId"); ok && f.calls[plain(v)] != nil {
			in = f.calls[plain(v)]
		}
		o := &owned{f.begin(in, name, at, name, ev.Time, trace.SpanKindInternal, nil), k.Key, key}
		if key != "" {
			o.set(keyBracket.String(f.text(plain(jsontext.Value(key)))))
		}
		o.set(f.told(ev.Data)...)
		f.brackets[name+"\n"+key] = o
		return
	}
	outcome := ""
	for _, m := range []string{"outcome", "verdict"} {
		if v, ok := session.Field(ev.Data, m); ok {
			outcome = f.text(plain(v))
		}
	}
	if k.Closes == bracketComp {
		f.t.meters.compactions.Add(context.Background(), 1, metric.WithAttributes(keyOutcome.String(outcome)))
		f.asked = ev.Time
	}
	if k.Usage {
		f.spent(ev)
	}
	o := f.brackets[k.Closes+"\n"+key]
	if o == nil {
		return
	}
	delete(f.brackets, k.Closes+"\n"+key)
	o.set(f.told(ev.Data)...)
	if outcome != "" {
		o.set(keyOutcome.String(outcome))
	}
	var d struct {
		Error *session.ErrorInfo `json:"error"`
	}
	if json.Unmarshal(ev.Data, &d) == nil && d.Error != nil {
		o.fail(f.text(code(d.Error)), f.content(d.Error.Message))
	}
	o.end(ev.Time)
}

// told are the members of an event's data that leave without being asked for.
func (f *fold) told(data jsontext.Value) (out []attribute.KeyValue) {
	for _, m := range told {
		v, ok := session.Field(data, m)
		if !ok || len(v) == 0 {
			continue
		}
		k := attribute.Key("strandline." + m)
		switch v.Kind() {
		case '"':
			out = append(out, k.String(f.text(plain(v))))
		case '0':
			if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				out = append(out, k.Int64(n))
			}
		case 't', 'f':
			out = append(out, k.Bool(v.Kind() == 't'))
		}
	}
	return out
}

// spent counts a request of a package.
func (f *fold) spent(ev session.Event) {
	var d struct {
		Usage    *message.Usage `json:"usage"`
		Provider string         `json:"provider"`
		Model    string         `json:"model"`
	}
	if json.Unmarshal(ev.Data, &d) != nil || d.Usage == nil {
		return
	}
	var on *open
	for _, o := range f.brackets {
		if v, ok := session.Field(ev.Data, o.member); ok && string(v) == o.key {
			on = o.open
		}
	}
	on.set(keyProvider.String(f.text(d.Provider)), keyRequestModel.String(f.text(d.Model)))
	f.usage(on, d.Usage, d.Provider, d.Model)
}

// record tells of an event as a log record.
func (f *fold) record(ev session.Event) {
	var r log.Record
	r.SetEventName(eventName)
	r.SetTimestamp(time.UnixMilli(ev.Time))
	r.SetObservedTimestamp(time.UnixMilli(ev.Time)) // the log observed it
	r.SetSeverity(log.SeverityInfo)
	r.AddAttributes(keyConversation.String(string(f.id)), keySeq.Int64(int64(ev.Seq)), keyType.String(f.text(ev.Type)), keyBytes.Int(len(ev.Data)))
	if f.turnN > 0 {
		r.AddAttributes(keyTurn.Int(f.turnN))
	}
	if ev.Op.Kind != session.OpNone {
		r.AddAttributes(keySurface.String([...]string{"", "append", "replace", "restore"}[ev.Op.Kind]))
	}
	if f.t.opts.Content {
		r.SetBody(attribute.StringValue(f.content(string(ev.Data))))
	}
	f.t.logger.Emit(f.inner(f.step, f.turn).ctx, r)
}

// text is a short text of the log that is not content: a name, an id, a code. It passes the redactor, too.
func (f *fold) text(s string) string { return cut(f.t.opts.Redact(s), 256) }

// maxContent bounds one text of content, in bytes.
const maxContent = 32 << 10

// content is a text that leaves only if that was asked for.
func (f *fold) content(s string) string {
	if !f.t.opts.Content {
		return ""
	}
	return cut(f.t.opts.Redact(s), maxContent)
}

func (f *fold) raw(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return f.content(string(b))
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// plain is the text of a JSON string or number.
func plain(v jsontext.Value) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// close ends the life: what is open goes on in another one, or nowhere.
func (f *fold) close() {
	if f.agent == nil {
		return
	}
	if f.ended != 0 {
		f.endStep(nil)
	}
	f.endChat(nil)
	left := []*open{f.step, f.turn}
	for _, o := range f.brackets {
		left = append(left, o.open)
	}
	for _, c := range f.calls {
		left = slices.Insert(left, 0, c)
	}
	for _, o := range left {
		o.set(keyPartial.Bool(true))
		o.end(f.last)
	}
	f.agent.end(f.last)
}
