package telemetry

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// scope names what made a span, a metric or a record.
const scope = "github.com/strandline-dev/strandline/telemetry"

// The attributes of the GenAI semantic conventions that are used, and error.type.
const (
	keyOperation    = attribute.Key("gen_ai.operation.name")
	keyProvider     = attribute.Key("gen_ai.provider.name")
	keyAgent        = attribute.Key("gen_ai.agent.name")
	keyConversation = attribute.Key("gen_ai.conversation.id")
	keyRequestModel = attribute.Key("gen_ai.request.model")
	keyMaxTokens    = attribute.Key("gen_ai.request.max_tokens")
	keyTemperature  = attribute.Key("gen_ai.request.temperature")
	keyModel        = attribute.Key("gen_ai.response.model")
	keyResponse     = attribute.Key("gen_ai.response.id")
	keyFinish       = attribute.Key("gen_ai.response.finish_reasons")
	keyInput        = attribute.Key("gen_ai.usage.input_tokens")
	keyOutput       = attribute.Key("gen_ai.usage.output_tokens")
	keyCacheRead    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	keyCacheWrite   = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	keyTokenType    = attribute.Key("gen_ai.token.type")
	keyTool         = attribute.Key("gen_ai.tool.name")
	keyToolType     = attribute.Key("gen_ai.tool.type")
	keyCall         = attribute.Key("gen_ai.tool.call.id")
	keyArguments    = attribute.Key("gen_ai.tool.call.arguments") // content
	keyResult       = attribute.Key("gen_ai.tool.call.result")    // content
	keyOutputs      = attribute.Key("gen_ai.output.messages")     // content
	keyError        = attribute.Key("error.type")
)

// Our own.
const (
	keyKind    = attribute.Key("strandline.session.kind")
	keyDepth   = attribute.Key("strandline.session.depth")
	keyFirst   = attribute.Key("strandline.session.first_seq")
	keyTurn    = attribute.Key("strandline.turn")
	keyStep    = attribute.Key("strandline.step")
	keyPartial = attribute.Key("strandline.partial")
	keyReason  = attribute.Key("strandline.turn.reason")
	keyDetail  = attribute.Key("strandline.turn.cause")
	keyAttempt = attribute.Key("strandline.attempt")
	keyBracket = attribute.Key("strandline.key")
	keyOutcome = attribute.Key("strandline.outcome")
	keySeq     = attribute.Key("strandline.event.seq")
	keyType    = attribute.Key("strandline.event.type")
	keyBytes   = attribute.Key("strandline.event.bytes")
	keySurface = attribute.Key("strandline.event.surface")
)

// told are the members of a bracket's two events that leave: words of the owner's own, and counts.
var told = []string{"cause", "mode", "background", "verdict", "by", "before", "after", "depth", "limitMs"}

// eventName is the name of every log record.
const eventName = "strandline.session.event"

// The values that have a meaning elsewhere.
const (
	agentName   = "strandline"
	opAgent     = "invoke_agent"
	opChat      = "chat"
	opTool      = "execute_tool"
	typeSent    = "request/sent" // of package agent, which is not imported: a reader of the log needs no loop
	typeRetry   = "llm/retry"
	modelError  = "ModelError"
	bracketKid  = "subagent"
	bracketComp = "compaction"
)

// meters are the instruments.
type meters struct {
	tokens       metric.Int64Histogram
	duration     metric.Float64Histogram
	turns        metric.Int64Counter
	calls        metric.Int64Counter
	toolDuration metric.Float64Histogram
	compactions  metric.Int64Counter
	notSaved     metric.Int64Counter
}

// The bounds of the buckets that the conventions ask for.
var (
	tokenBounds  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	secondBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
)

func newMeters(m metric.Meter) (out meters, err error) {
	var errs [7]error
	out.tokens, errs[0] = m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of a request, by type"), metric.WithExplicitBucketBoundaries(tokenBounds...))
	out.duration, errs[1] = m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a request to the end of its answer"), metric.WithExplicitBucketBoundaries(secondBounds...))
	out.turns, errs[2] = m.Int64Counter("strandline.turns", metric.WithUnit("{turn}"), metric.WithDescription("Turns that ended, by reason"))
	out.calls, errs[3] = m.Int64Counter("strandline.tool.calls", metric.WithUnit("{call}"), metric.WithDescription("Tool calls that have their result"))
	out.toolDuration, errs[4] = m.Float64Histogram("strandline.tool.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the start of a tool call to its result"), metric.WithExplicitBucketBoundaries(secondBounds...))
	out.compactions, errs[5] = m.Int64Counter("strandline.compactions", metric.WithUnit("{compaction}"), metric.WithDescription("Compactions that ended, by outcome"))
	out.notSaved, errs[6] = m.Int64Counter("strandline.not_saved", metric.WithUnit("{failure}"), metric.WithDescription("Times that a log could not be saved"))
	return out, errors.Join(errs[:]...)
}
