// Package tool defines what a tool is and what happens around its body: arguments are copied and
// checked against the tool's schema, hooks and the approval policy decide, the body runs under a time
// limit, and whatever it does (return, fail, panic, run late, print a gigabyte) becomes one result of
// a bearable size.
//
// The package knows neither models nor sessions. The loop that owns a call walks it through
//
//	Set.Prepare -> Gate.Before -> (ask a person) -> Gate.Guard -> Prepared.Run
//
// and writes the log between the steps.
package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/message"
)

// Definition is one tool. It is a value: what the functions capture must be safe for concurrent use
// when Parallel is set.
type Definition struct {
	Name        string
	Description string         // written for the model
	Parameters  jsontext.Value // JSON Schema of the arguments, of type object; empty = no arguments are checked

	// Aliases are other names under which models give an argument, to the names of Parameters.
	Aliases map[string]string

	Parallel   bool // calls may overlap with other calls that say so
	ReadOnly   bool // changes nothing outside the harness; allowed under every policy
	Idempotent bool // a repeated call does no harm

	// Command says that Subject is a shell command: prefix rules that allow then match simple commands only.
	Command bool

	// Timeout is the limit for one run of the body; 0 means none but the context's.
	Timeout time.Duration

	// Subject is what approval rules and people look at: the command, the path, the URL. It is total;
	// the arguments have passed the schema. Nil means that there is nothing more to say than the name.
	Subject func(args jsontext.Value) string

	// Edits reports whether a call with these arguments does nothing but change files inside the
	// workspace, which the policy auto-edit allows. Nil means no.
	Edits func(args jsontext.Value) bool

	// Run is the body. It returns soon after ctx ends, because it is always waited for. An error is a
	// result too: its text goes to the model, its code is taken from an *Error.
	Run func(ctx context.Context, c Call) (Result, error)
}

// Call is what a body gets.
type Call struct {
	ID, Name       string
	IdempotencyKey string         // stable over restarts; for services that take one
	Arguments      jsontext.Value // the body's own copy
	Progress       func(string)   // shows a line to whoever watches; never nil, not logged

	// Waiting says that the body waits for a person from now on, or no longer: meanwhile nothing is done
	// here. Never nil.
	Waiting func(bool)
}

// Decode reads the arguments into v, a pointer to a struct.
func (c Call) Decode(v any) error {
	if err := json.Unmarshal(c.Arguments, v, whole); err != nil {
		return Errorf(CodeInvalidArgs, "invalid arguments: %w", err)
	}
	return nil
}

// whole reads integers as JSON Schema does, to which 10, 10.0 and 1e1 are the same: some models write all
// numbers as fractions.
var whole = json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *int) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported // what it is then is told by the ordinary decoding
	}
	text, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(string(text)); err == nil {
		*v = n
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return fmt.Errorf("%s is not an integer that can be used here", text)
	}
	*v = int(f)
	return nil
}))

// Result is the outcome of a call.
type Result struct {
	Content []message.Block
	IsError bool
	Code    string         // one of the codes when IsError, or a tool's own
	Meta    jsontext.Value // facts for programs; not sent to the model

	// Records are further log events that the tool wants written right before its result, Closing right
	// behind it: what they say is then only in the log together with the result.
	Records, Closing []Record

	release func() // of what Spill kept
}

// Drop gives up what was kept of r beside it. Whoever does not record r, which names it, calls it, once.
func (r Result) Drop() {
	if r.release != nil {
		r.release()
	}
}

// Record is an event that a tool asks the loop to write.
type Record struct {
	Type string
	Data jsontext.Value
}

// The codes of results that are errors.
const (
	CodeUnknownTool = "UNKNOWN_TOOL"
	CodeInvalidArgs = "INVALID_ARGS"
	CodeDenied      = "DENIED"
	CodePanic       = "PANIC"
	CodeTimeout     = "TOOL_TIMEOUT"
	CodeAborted     = "ABORTED"
	CodeFailed      = "TOOL_FAILED" // the body returned an error without a code
)

// Text returns a result of one text block.
func Text(s string) Result { return Result{Content: []message.Block{message.TextBlock(s)}} }

// Failure returns an error result. The text is for the model: what went wrong, what to do now.
func Failure(code, format string, args ...any) Result {
	r := Text(fmt.Sprintf(format, args...))
	r.IsError, r.Code = true, code
	return r
}

// Denied returns the error result of a call that v did not allow.
func Denied(name string, v Verdict) Result {
	reason := v.Reason
	if reason == "" {
		reason = "no reason was given"
	}
	return Failure(CodeDenied, "The call of %q was denied and did not run: %s", name, reason)
}

// Error is an error with a code for the result.
type Error struct {
	Code string
	Err  error
}

// Errorf returns an *Error with a formatted text.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }

// Spec is a tool as a model sees it; it converts to the model seam's type.
type Spec struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
}

// Set is an immutable set of tools with unique names. The zero Set is empty. It is safe for
// concurrent use.
type Set struct {
	tools  []*entry
	byName map[string]*entry
}

type entry struct {
	def    Definition
	schema *schema // nil when there is none
}

// NewSet returns the set of defs, in that order. It refuses a name that is empty, not acceptable to
// models (letters, digits, _ and -, at most 64) or used twice, a body that is missing, and a schema
// that is not one.
func NewSet(defs ...Definition) (Set, error) {
	s := Set{byName: make(map[string]*entry, len(defs))}
	for _, d := range defs {
		switch {
		case !validName(d.Name):
			return Set{}, fmt.Errorf("tool: %q is not a usable tool name", d.Name)
		case s.byName[d.Name] != nil:
			return Set{}, fmt.Errorf("tool: two tools are called %q", d.Name)
		case d.Run == nil:
			return Set{}, fmt.Errorf("tool: %q has no body", d.Name)
		}
		d.Parameters = d.Parameters.Clone()
		e := &entry{def: d}
		if len(d.Parameters) > 0 {
			var err error
			if e.schema, err = compile(d.Parameters); err != nil {
				return Set{}, fmt.Errorf("tool: schema of %q: %w", d.Name, err)
			}
		}
		s.tools = append(s.tools, e)
		s.byName[d.Name] = e
	}
	return s, nil
}

func validName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}) < 0
}

// Specs returns what the model is told, in the order of the set.
func (s Set) Specs() []Spec {
	specs := make([]Spec, len(s.tools))
	for i, e := range s.tools {
		specs[i] = Spec{e.def.Name, e.def.Description, e.def.Parameters}
	}
	return specs
}

// Len returns the number of tools.
func (s Set) Len() int { return len(s.tools) }

// Lookup returns the tool of that name.
func (s Set) Lookup(name string) (Definition, bool) {
	if e := s.byName[name]; e != nil {
		return e.def, true
	}
	return Definition{}, false
}

// With returns the set with further tools behind its own. Errors are those of NewSet.
func (s Set) With(defs ...Definition) (Set, error) {
	all := make([]Definition, 0, len(s.tools)+len(defs))
	for _, e := range s.tools {
		all = append(all, e.def)
	}
	return NewSet(append(all, defs...)...)
}

// Filter returns the tools for which keep is true, in the same order.
func (s Set) Filter(keep func(Definition) bool) Set {
	out := Set{byName: map[string]*entry{}}
	for _, e := range s.tools {
		if keep(e.def) {
			out.tools = append(out.tools, e)
			out.byName[e.def.Name] = e
		}
	}
	return out
}

// Prepared is a call whose tool exists and whose arguments fit its schema. It is immutable.
type Prepared struct {
	id   string
	args jsontext.Value
	def  Definition
}

// ID returns the call's id as the model gave it.
func (p Prepared) ID() string { return p.id }

// Name returns the tool's name.
func (p Prepared) Name() string { return p.def.Name }

// Definition returns the tool.
func (p Prepared) Definition() Definition { return p.def }

// Arguments returns a copy of the arguments.
func (p Prepared) Arguments() jsontext.Value { return p.args.Clone() }

// Subject returns what the call is about, for rules and people: "" when the tool has nothing to say.
func (p Prepared) Subject() string {
	if p.def.Subject == nil {
		return ""
	}
	return p.def.Subject(p.Arguments())
}

// Edits reports whether the call does nothing but change files inside the workspace.
func (p Prepared) Edits() bool {
	return p.def.Edits != nil && p.def.Edits(p.Arguments())
}

// maxSchemaEcho bounds the schema that an error repeats to the model, in bytes.
const maxSchemaEcho = 2 << 10

// Prepare makes a call of what a model wrote. When the tool does not exist or the arguments do not
// fit, the second value is the error result that tells the model what to do, and nothing may run.
// Empty arguments and null count as {}.
func (s Set) Prepare(callID, name, rawArguments string) (Prepared, *Result) {
	e := s.byName[name]
	if e == nil {
		names := make([]string, len(s.tools))
		for i, e := range s.tools {
			names[i] = e.def.Name
		}
		known := "There are no tools in this session; answer without one."
		if len(names) > 0 {
			known = "The tools are: " + strings.Join(names, ", ") + ". Use one of these."
		}
		r := Failure(CodeUnknownTool, "There is no tool called %q, nothing was run. %s", clip(name, 100), known)
		return Prepared{}, &r
	}
	args := jsontext.Value(bytes.TrimSpace([]byte(rawArguments)))
	if len(args) == 0 || string(args) == "null" {
		args = jsontext.Value("{}")
	}
	args = e.def.canonical(args)
	if err := e.check(args); err != nil {
		hint := ""
		if n := len(e.def.Parameters); n > 0 && n <= maxSchemaEcho {
			hint = " The schema is " + string(e.def.Parameters)
		}
		r := Failure(CodeInvalidArgs, "The arguments for %q are invalid, nothing was run: %s. Correct them and call the tool again.%s",
			name, clip(err.Error(), 1000), hint)
		return Prepared{}, &r
	}
	return Prepared{id: callID, args: args, def: e.def}, nil
}

func (e *entry) check(args jsontext.Value) error {
	var v any
	if err := json.Unmarshal(args, &v); err != nil {
		var syntax *jsontext.SyntacticError
		if errors.As(err, &syntax) {
			return fmt.Errorf("not valid JSON (%s at byte %d)", syntax.Err, syntax.ByteOffset)
		}
		return fmt.Errorf("not usable JSON (%s)", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, ok := v.(map[string]any); !ok {
		return errors.New("they have to be one JSON object")
	}
	if e.schema == nil {
		return nil
	}
	return e.schema.check(v)
}

// clip shortens s to about n bytes on a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:runeStart(s, n)] + " ..."
}
