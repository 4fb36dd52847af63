// Package script plays a model's part from a file: for tests, demonstrations and work without a
// network, through the same seam as the real drivers.
//
// A script is JSON Lines, one reply per line, used in order. A line with a purpose serves only
// requests of that purpose, and is preferred for them; a line without one serves any request. A purpose
// may have a part behind a slash, as subagent/tests: then lines of "subagent/tests" come before those of
// "subagent". Each process starts its script at the first line.
package script

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

// Line is one reply. All fields are optional; a line of {} is a reply without content, which the
// harness sees as EMPTY_RESPONSE. Content comes first, then Error, Fault or Hang, if any. Fields that
// speak of HTTP matter only over a wire (package llm/fake).
type Line struct {
	Text      string         `json:"text,omitzero"`
	Reasoning string         `json:"reasoning,omitzero"`
	ToolCalls []ToolCall     `json:"toolCalls,omitzero"`
	Usage     *message.Usage `json:"usage,omitzero"`

	HeadersMs int64 `json:"headersMs,omitzero"` // before the headers of the answer
	DelayMs   int64 `json:"delayMs,omitzero"`   // between the headers and the first chunk
	ChunkMs   int64 `json:"chunkMs,omitzero"`   // between chunks, which are then a word long
	PingMs    int64 `json:"pingMs,omitzero"`    // between the keep-alive comments of a stream that waits; 0 = none

	Finish llm.FinishReason `json:"finish,omitzero"` // default: tool-calls with calls, else stop
	Error  *Failure         `json:"error,omitzero"`
	Hang   bool             `json:"hang,omitzero"`  // says no more, until the request is ended
	Fault  Fault            `json:"fault,omitzero"` // breaks the wire after the content

	Purpose string `json:"purpose,omitzero"`

	Number int `json:"-"` // of the line in its file, from 1
}

// ToolCall is a call that a reply makes.
type ToolCall struct {
	ID   string `json:"id,omitzero"` // default: one that is new in the conversation
	Name string `json:"name"`

	// Arguments is an object, or a string that is sent as it is: for arguments that are not valid.
	Arguments jsontext.Value `json:"arguments,omitzero"`
}

// Failure is an error that the model service answers with.
type Failure struct {
	Code         llm.Code `json:"code,omitzero"` // default: what fits Status, or SERVER
	Status       int      `json:"status,omitzero"`
	RetryAfterMs int64    `json:"retryAfterMs,omitzero"`
	Message      string   `json:"message,omitzero"`

	// InStream sends the error as an event of a stream that began well (HTTP 200), as after content.
	InStream bool `json:"inStream,omitzero"`
	// HTML makes the body a page for people, as of a proxy that stands before the service.
	HTML bool `json:"html,omitzero"`
}

// Fault is a way in which a connection breaks.
type Fault string

// The faults. Over a wire they are what they say; in process they are the failure that a driver
// makes of them.
const (
	FaultReset     Fault = "reset"      // the connection is reset, before the headers if there is no content: TRANSPORT
	FaultStall     Fault = "stall"      // nothing more is sent, the connection stays open: as Hang
	FaultHalfEvent Fault = "half-event" // the connection is closed in the middle of an event: STREAM_CLOSED
	FaultMalformed Fault = "malformed"  // an event that is not JSON: MALFORMED_RESPONSE
	FaultNoEnd     Fault = "no-end"     // the body ends without a finish and a terminator: STREAM_CLOSED
	FaultCut       Fault = "cut"        // the body ends, as if it were whole, in the middle of an event: STREAM_CLOSED
	FaultWrongType Fault = "wrong-type" // HTTP 200 with a web page: MALFORMED_RESPONSE
)

// Script is a parsed script and the place where it stands. It is safe for concurrent use.
type Script struct {
	name   string
	lines  []Line
	repeat bool

	mu   sync.Mutex
	used []bool // guarded by mu
	n    int    // requests served or refused; guarded by mu
}

// Load reads the script in a file.
func Load(path string) (*Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	defer f.Close()
	return Parse(path, f)
}

// Parse reads a script; name is for messages. Blank lines are skipped. An error names file and line.
func Parse(name string, r io.Reader) (*Script, error) {
	s := &Script{name: name}
	in := bufio.NewReader(r)
	for number := 1; ; number++ {
		raw, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("script: %s:%d: %w", name, number, err)
		}
		if number == 1 {
			raw = bytes.TrimPrefix(raw, []byte("\uFEFF"))
		}
		if text := bytes.TrimSpace(raw); len(text) > 0 {
			line, perr := parseLine(text)
			if perr != nil {
				return nil, fmt.Errorf("script: %s:%d: %w", name, number, perr)
			}
			line.Number = number
			s.lines = append(s.lines, line)
		}
		if err == io.EOF {
			break
		}
	}
	s.used = make([]bool, len(s.lines))
	return s, nil
}

func parseLine(text []byte) (Line, error) {
	var l Line
	if err := json.Unmarshal(text, &l, json.RejectUnknownMembers(true)); err != nil {
		var sem *json.SemanticError
		if errors.As(err, &sem) && errors.Is(err, json.ErrUnknownName) {
			return l, fmt.Errorf("unknown field %s", sem.JSONPointer)
		}
		return l, err
	}
	if l.Usage != nil {
		var told struct {
			Usage map[string]jsontext.Value `json:"usage"`
		}
		if err := json.Unmarshal(text, &told); err == nil && len(told.Usage) == 0 {
			l.Usage = nil // what is not told is not zero
		}
	}
	if l.Usage != nil && len(l.Usage.Extra) > 0 {
		return l, fmt.Errorf("unknown fields in usage: %s", l.Usage.Extra)
	}
	switch l.Finish = llm.FinishReason(strings.ReplaceAll(string(l.Finish), "_", "-")); l.Finish {
	case llm.FinishStop, llm.FinishToolCalls, llm.FinishLength, llm.FinishContentFilter, llm.FinishOther:
	case "":
		l.Finish = llm.FinishStop
		if len(l.ToolCalls) > 0 {
			l.Finish = llm.FinishToolCalls
		}
	default:
		return l, fmt.Errorf("unknown finish %q", l.Finish)
	}
	switch l.Fault {
	case "", FaultReset, FaultStall, FaultHalfEvent, FaultMalformed, FaultNoEnd, FaultCut, FaultWrongType:
	default:
		return l, fmt.Errorf("unknown fault %q", l.Fault)
	}
	if min(l.HeadersMs, l.DelayMs, l.ChunkMs, l.PingMs) < 0 {
		return l, errors.New("a delay is negative")
	}
	if e := l.Error; e != nil {
		if e.Status != 0 && (e.Status < 400 || e.Status > 599) {
			return l, fmt.Errorf("error.status %d is no status of an error", e.Status)
		}
		if e.Code == "" {
			e.Code = llm.CodeServer
			if e.Status != 0 {
				e.Code = llm.CodeForStatus(e.Status)
			}
		}
		if !e.Code.Known() {
			return l, fmt.Errorf("unknown error code %q", e.Code)
		}
	}
	for i, c := range l.ToolCalls {
		switch {
		case c.Name == "":
			return l, fmt.Errorf("toolCalls[%d] has no name", i)
		case len(c.Arguments) == 0:
			l.ToolCalls[i].Arguments = jsontext.Value("{}")
		case c.Arguments.Kind() != '{' && c.Arguments.Kind() != '"':
			return l, fmt.Errorf("toolCalls[%d].arguments is neither an object nor a string", i)
		}
	}
	return l, nil
}

// Len returns the number of replies in the script.
func (s *Script) Len() int { return len(s.lines) }

// Repeat makes the script begin again whenever it is used up. Call it before the first Next.
func (s *Script) Repeat() { s.repeat = true }

// Serves reports whether a line is for requests of that purpose alone.
func (s *Script) Serves(purpose string) bool {
	return slices.ContainsFunc(s.lines, func(l Line) bool { return l.Purpose == purpose })
}

// Next takes the reply for a request of that purpose: the first unused line that names it, else the
// first unused line of its part before a slash, else the first without a purpose. When there is none the error says that the script is used up.
func (s *Script) Next(purpose string) (Line, error) {
	if purpose == "" {
		purpose = llm.PurposeTurn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	found := s.find(purpose)
	if found < 0 && s.repeat {
		clear(s.used)
		found = s.find(purpose)
	}
	if found < 0 {
		return Line{}, llm.Errorf(llm.CodeInvalidRequest,
			"the script %s is used up: it has %d lines and none is left for request %d (purpose %q); add a line to it",
			s.name, len(s.lines), s.n, purpose)
	}
	s.used[found] = true
	return s.lines[found], nil
}

// find returns the index of the line that is next for a purpose, or -1. The caller holds mu.
func (s *Script) find(purpose string) int {
	general, _, _ := strings.Cut(purpose, "/")
	best := -1
	for i, l := range s.lines {
		switch {
		case s.used[i]:
		case l.Purpose == purpose:
			return i
		case l.Purpose == general && (best < 0 || s.lines[best].Purpose == ""):
			best = i
		case l.Purpose == "" && best < 0:
			best = i
		}
	}
	return best
}
