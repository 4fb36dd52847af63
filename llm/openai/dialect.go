package openai

import (
	"fmt"
	"slices"
)

// Dialect names the deviations of a service from the wire. What an answer may look like does not depend
// on it: all of them are understood always. The body of a request does.
type Dialect string

// The dialects. Generic says nothing that only some services understand.
const (
	Generic    Dialect = "generic"
	OpenAI     Dialect = "openai"
	DeepSeek   Dialect = "deepseek"
	OpenRouter Dialect = "openrouter"
	Ollama     Dialect = "ollama"
	VLLM       Dialect = "vllm"
	LlamaCPP   Dialect = "llama.cpp"
)

// Dialects lists the dialects.
func Dialects() []Dialect {
	return []Dialect{Generic, OpenAI, DeepSeek, OpenRouter, Ollama, VLLM, LlamaCPP}
}

// habits are what a body depends on.
type habits struct {
	maxTokens string // member that bounds the answer
	// reasoning is the member in which a model's own reasoning is sent back; "" = it is not.
	reasoning string
	// needsReasoning: a message with calls must have the member, be it empty, or the request is refused.
	needsReasoning bool
	// details: what the service told in "reasoning_details" goes back as it came, to the same model.
	details bool
	// effortObject: the effort is {"reasoning":{"effort":".."}} and not "reasoning_effort".
	effortObject bool
}

var dialects = map[Dialect]habits{
	Generic:    {maxTokens: "max_tokens"},
	OpenAI:     {maxTokens: "max_completion_tokens"},
	DeepSeek:   {maxTokens: "max_tokens", reasoning: "reasoning_content", needsReasoning: true},
	OpenRouter: {maxTokens: "max_tokens", reasoning: "reasoning", details: true, effortObject: true},
	Ollama:     {maxTokens: "max_tokens", reasoning: "reasoning"},
	VLLM:       {maxTokens: "max_tokens", reasoning: "reasoning"},
	LlamaCPP:   {maxTokens: "max_tokens", reasoning: "reasoning_content"},
}

// encodingPrefix is followed by the dialect in the name of an encoding. The number changes when the bytes
// do: a body that was sent under an old name can then not be made again, and is not compared.
const encodingPrefix = "openai-chat/1/"

// Encoding makes the bodies of one dialect. It is safe for concurrent use if its blobs are.
type Encoding struct {
	dialect Dialect
	habits  habits
	blobs   func(name string) ([]byte, error)
}

// NewEncoding returns the encoding of a dialect ("" = Generic). blobs reads images; it may be nil.
func NewEncoding(d Dialect, blobs func(name string) ([]byte, error)) (Encoding, error) {
	if d == "" {
		d = Generic
	}
	h, ok := dialects[d]
	if !ok {
		return Encoding{}, fmt.Errorf("there is no dialect %q", string(d))
	}
	return Encoding{d, h, blobs}, nil
}

// EncodingNamed returns the encoding that EncodingName names; false if this version does not have it.
func EncodingNamed(name string, blobs func(name string) ([]byte, error)) (Encoding, bool) {
	i := slices.IndexFunc(Dialects(), func(d Dialect) bool { return name == encodingPrefix+string(d) })
	if i < 0 {
		return Encoding{}, false
	}
	e, err := NewEncoding(Dialects()[i], blobs)
	return e, err == nil
}

// EncodingName names the form of the bodies: bodies of one name do not change from version to version.
func (e Encoding) EncodingName() string { return encodingPrefix + string(e.dialect) }
