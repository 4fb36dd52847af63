package openai

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// lenient reads what services send: a repeated name or a broken sign is not worth an answer.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// event is one event of an answer. Members whose form differs from service to service stay raw.
type event struct {
	ID      jsontext.Value `json:"id"`
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

type choice struct {
	Index        int            `json:"index"`
	Delta        *delta         `json:"delta"`
	Message      *delta         `json:"message"` // of services that do not stream
	FinishReason jsontext.Value `json:"finish_reason"`
}

type delta struct {
	Content          jsontext.Value   `json:"content"` // text, null, or a list of parts
	Refusal          jsontext.Value   `json:"refusal"`
	ReasoningContent jsontext.Value   `json:"reasoning_content"` // DeepSeek, llama.cpp, older vLLM
	Reasoning        jsontext.Value   `json:"reasoning"`         // OpenRouter, Ollama, vLLM
	Details          []jsontext.Value `json:"reasoning_details"` // OpenRouter
	ToolCalls        []toolDelta      `json:"tool_calls"`
}

type toolDelta struct {
	Index    *int           `json:"index"`
	ID       jsontext.Value `json:"id"`
	Function struct {
		Name      jsontext.Value `json:"name"`
		Arguments jsontext.Value `json:"arguments"` // text, an object, or null
	} `json:"function"`
}

// text reads a value as text: a string as what it says, null as nothing, a number as it is written.
func text(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		b, _ := jsontext.AppendUnquote(nil, v) // broken signs are replaced
		return string(b)
	case '0':
		return string(v)
	}
	return ""
}

// number reads a count, which some write as a fraction or as text; what is none is 0.
func number(v jsontext.Value) float64 {
	s := text(v)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != f || f < 0 || f > 1<<53 {
		return 0
	}
	return f
}

// parts reads content: text, or a list of parts of which some may be reasoning.
func parts(v jsontext.Value) (say, think string) {
	if v.Kind() != '[' {
		return text(v), ""
	}
	var list []struct {
		Type     string         `json:"type"`
		Text     jsontext.Value `json:"text"`
		Thinking jsontext.Value `json:"thinking"`
	}
	if json.Unmarshal(v, &list, lenient) != nil {
		return "", ""
	}
	for _, p := range list {
		if p.Type == "thinking" || p.Type == "reasoning" {
			t, _ := parts(p.Thinking)
			think += t + text(p.Text)
		} else {
			say += text(p.Text)
		}
	}
	return say, think
}

// arguments reads what a call's arguments are in a delta.
func (t toolDelta) arguments() string {
	if v := t.Function.Arguments; v.Kind() == '{' {
		return strings.ToValidUTF8(string(v), "\uFFFD")
	}
	return text(t.Function.Arguments)
}

type usage struct {
	Prompt     jsontext.Value `json:"prompt_tokens"`
	Completion jsontext.Value `json:"completion_tokens"`
	Hit        jsontext.Value `json:"prompt_cache_hit_tokens"` // DeepSeek
	Miss       jsontext.Value `json:"prompt_cache_miss_tokens"`
	In         struct {
		Cached jsontext.Value `json:"cached_tokens"`
		Write  jsontext.Value `json:"cache_write_tokens"` // OpenRouter
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning jsontext.Value `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// counts makes disjoint counts: here the prompt has its cached part in it.
func (u *usage) counts() *message.Usage {
	if u == nil || !told(u.Prompt) && !told(u.Completion) && !told(u.Hit) {
		return nil
	}
	known := func(vs ...jsontext.Value) *int64 {
		for _, v := range vs {
			if told(v) {
				n := int64(number(v))
				return &n
			}
		}
		return nil
	}
	out := &message.Usage{
		CacheReadTokens: known(u.In.Cached, u.Hit), CacheWriteTokens: known(u.In.Write),
		OutputTokens: int64(number(u.Completion)), ReasoningTokens: known(u.Out.Reasoning),
	}
	out.InputTokens = int64(number(u.Prompt))
	if !told(u.Prompt) {
		out.InputTokens = int64(number(u.Hit)) + int64(number(u.Miss))
	}
	for _, part := range []*int64{out.CacheReadTokens, out.CacheWriteTokens} {
		if part != nil {
			*part = min(*part, out.InputTokens)
			out.InputTokens -= *part
		}
	}
	if out.ReasoningTokens != nil {
		*out.ReasoningTokens = min(*out.ReasoningTokens, out.OutputTokens)
	}
	return out
}

func told(v jsontext.Value) bool { k := v.Kind(); return k == '0' || k == '"' }

// mergeDetails adds the parts of reasoning details that came in one delta to those before: texts of one
// entry grow, everything else is as it was told last.
func mergeDetails(have []map[string]jsontext.Value, more []jsontext.Value) []map[string]jsontext.Value {
	for _, v := range more {
		var d map[string]jsontext.Value
		if json.Unmarshal(v, &d, lenient) != nil || d == nil {
			continue
		}
		last := len(have) - 1
		if last < 0 || !sameDetail(have[last], d) {
			have = append(have, d)
			continue
		}
		for name, val := range d {
			switch {
			case val.Kind() == 'n':
			case name == "text" || name == "summary" || name == "data":
				joined, _ := jsontext.AppendQuote(nil, text(have[last][name])+text(val))
				have[last][name] = joined
			default:
				have[last][name] = val
			}
		}
	}
	return have
}

func sameDetail(a, b map[string]jsontext.Value) bool {
	return text(a["type"]) == text(b["type"]) && text(a["index"]) == text(b["index"]) &&
		(text(a["id"]) == text(b["id"]) || text(a["id"]) == "" || text(b["id"]) == "") &&
		!strings.HasSuffix(text(a["type"]), "encrypted")
}
