package tool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/tool"
)

const pathSchema = `{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}`

func body(f func(context.Context, tool.Call) (tool.Result, error)) tool.Definition {
	return tool.Definition{Name: "t", Parameters: jsontext.Value(pathSchema), Run: f}
}

func prepare(t *testing.T, d tool.Definition, args string) tool.Prepared {
	t.Helper()
	s, err := tool.NewSet(d)
	if err != nil {
		t.Fatal(err)
	}
	p, bad := s.Prepare("c1", d.Name, args)
	if bad != nil {
		t.Fatalf("prepare: %s", text(*bad))
	}
	return p
}

func text(r tool.Result) string { return message.Message{Content: r.Content}.PlainText() }

func never(context.Context, tool.Call) (tool.Result, error) { panic("must not run") }

func TestPrepareRefuses(t *testing.T) {
	s, err := tool.NewSet(body(never))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, tool, args, code, says string }{
		{"unknown tool", "nope", `{}`, tool.CodeUnknownTool, "The tools are: t."},
		{"missing property", "t", `{}`, tool.CodeInvalidArgs, `missing properties: ["path"]`},
		{"empty is an object", "t", ``, tool.CodeInvalidArgs, `missing properties: ["path"]`},
		{"null is an object", "t", `null`, tool.CodeInvalidArgs, `missing properties: ["path"]`},
		{"wrong type", "t", `{"path":3}`, tool.CodeInvalidArgs, "/properties/path"},
		{"not an integer", "t", `{"path":"a","n":1.5}`, tool.CodeInvalidArgs, "/properties/n"},
		{"unknown property", "t", `{"path":"a","x":1}`, tool.CodeInvalidArgs, "x"},
		{"half JSON", "t", `{"path":"a`, tool.CodeInvalidArgs, "not valid JSON"},
		{"duplicate name", "t", `{"path":"a","path":"b"}`, tool.CodeInvalidArgs, "duplicate"},
		{"not an object", "t", `["a"]`, tool.CodeInvalidArgs, "one JSON object"},
		{"two values", "t", `{"path":"a"}{"path":"b"}`, tool.CodeInvalidArgs, "not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r := s.Prepare("id", c.tool, c.args)
			if r == nil {
				t.Fatal("accepted")
			}
			if !r.IsError || r.Code != c.code || !strings.Contains(text(*r), c.says) {
				t.Errorf("got %s %q, want %s with %q", r.Code, text(*r), c.code, c.says)
			}
		})
	}
}

func TestNewSetRefuses(t *testing.T) {
	ok := body(never)
	with := func(f func(*tool.Definition)) tool.Definition { d := ok; f(&d); return d }
	for name, defs := range map[string][]tool.Definition{
		"twice":      {ok, ok},
		"no body":    {with(func(d *tool.Definition) { d.Run = nil })},
		"bad name":   {with(func(d *tool.Definition) { d.Name = "a b" })},
		"bad schema": {with(func(d *tool.Definition) { d.Parameters = jsontext.Value(`{"type":7}`) })},
		"no schema":  {with(func(d *tool.Definition) { d.Parameters = jsontext.Value(`[]`) })},
	} {
		if _, err := tool.NewSet(defs...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// What a body does to its arguments is seen by nobody else.
func TestArgumentsAreCopies(t *testing.T) {
	p := prepare(t, body(func(_ context.Context, c tool.Call) (tool.Result, error) {
		clear(c.Arguments)
		return tool.Text("ok"), nil
	}), `{"path":"a"}`)
	p.Run(t.Context(), tool.RunOptions{})
	if got := string(p.Arguments()); got != `{"path":"a"}` {
		t.Errorf("arguments are now %q", got)
	}
}

func TestRunOutcomes(t *testing.T) {
	cancelled := func(t *testing.T) (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }
	for _, c := range []struct {
		name    string
		timeout time.Duration
		run     func(ctx context.Context, cancel func()) (tool.Result, error)
		code    string
		says    string
	}{
		{"success", 0, func(context.Context, func()) (tool.Result, error) { return tool.Text("fine"), nil }, "", "fine"},
		{"nothing", 0, func(context.Context, func()) (tool.Result, error) { return tool.Result{}, nil }, "", "(no output)"},
		{"error", 0, func(context.Context, func()) (tool.Result, error) { return tool.Result{}, errors.New("boom") }, tool.CodeFailed, "boom"},
		{"coded error", 0, func(context.Context, func()) (tool.Result, error) {
			return tool.Text("more"), fmt.Errorf("x: %w", tool.Errorf("MINE", "boom"))
		}, "MINE", "x: boom\nmore"},
		{"panic", 0, func(context.Context, func()) (tool.Result, error) { panic("ouch") }, tool.CodePanic, "ouch"},
		{"runtime panic", 0, func(context.Context, func()) (tool.Result, error) {
			return tool.Text(strings.Fields("a")[len(pathSchema)]), nil
		}, tool.CodePanic, "out of range"},
		{"time limit", time.Millisecond, func(ctx context.Context, _ func()) (tool.Result, error) {
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}, tool.CodeTimeout, "time limit of 1ms"},
		{"late success without cancel", time.Millisecond, func(ctx context.Context, _ func()) (tool.Result, error) {
			<-ctx.Done()
			return tool.Text("made it"), nil
		}, "", "made it"},
		{"cancel, then error", 0, func(ctx context.Context, cancel func()) (tool.Result, error) {
			cancel()
			return tool.Result{}, ctx.Err()
		}, tool.CodeAborted, "cancelled while it ran"},
		{"cancel, then success", 0, func(ctx context.Context, cancel func()) (tool.Result, error) {
			cancel()
			return tool.Text("secret of success"), nil
		}, tool.CodeAborted, "reported success"},
		{"cancel, then an error result of its own", 0, func(ctx context.Context, cancel func()) (tool.Result, error) {
			cancel()
			return tool.Failure("OWN", "half done"), nil
		}, "OWN", "half done"},
		{"invalid UTF-8", 0, func(context.Context, func()) (tool.Result, error) { return tool.Text("a\xffb"), nil }, "", "a\uFFFDb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := cancelled(t)
			defer cancel()
			d := body(func(ctx context.Context, _ tool.Call) (tool.Result, error) { return c.run(ctx, cancel) })
			d.Timeout = c.timeout
			r := prepare(t, d, `{"path":"a"}`).Run(ctx, tool.RunOptions{})
			if r.Code != c.code || r.IsError != (c.code != "") || !strings.Contains(text(r), c.says) {
				t.Errorf("got isError=%v %s %q, want %s with %q", r.IsError, r.Code, text(r), c.code, c.says)
			}
		})
	}
}

func TestCancelledBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := prepare(t, body(never), `{"path":"a"}`).Run(ctx, tool.RunOptions{})
	if r.Code != tool.CodeAborted {
		t.Errorf("got %s %q", r.Code, text(r))
	}
}

func TestAfterHooks(t *testing.T) {
	d := body(func(context.Context, tool.Call) (tool.Result, error) {
		r := tool.Text("a")
		r.Records = []tool.Record{{Type: "todo/write"}}
		return r, nil
	})
	p := prepare(t, d, `{"path":"a"}`)
	add := func(s string) tool.Hook {
		return tool.Hook{After: func(_ context.Context, _ tool.Prepared, r tool.Result) tool.Result {
			r.Content = append(r.Content, message.TextBlock(s))
			return r
		}}
	}
	if got := text(p.Run(t.Context(), tool.RunOptions{Hooks: []tool.Hook{add("b"), {}, add("c")}})); got != "a\nb\nc" {
		t.Errorf("got %q", got)
	}
	bad := tool.Hook{After: func(context.Context, tool.Prepared, tool.Result) tool.Result { panic("hook") }}
	r := p.Run(t.Context(), tool.RunOptions{Hooks: []tool.Hook{bad}})
	if r.Code != tool.CodePanic || len(r.Records) != 1 {
		t.Errorf("a hook's panic: %s, %d records", r.Code, len(r.Records))
	}
}

func TestLargeResult(t *testing.T) {
	full := strings.Repeat("日本語\n", 20_000)
	d := body(func(context.Context, tool.Call) (tool.Result, error) {
		r := tool.Text(full[:100_000])
		r.Content = append(r.Content, message.Block{Type: message.Image, URL: "data:,"}, message.TextBlock(full[100_000:]))
		return r, nil
	})
	p := prepare(t, d, `{"path":"a"}`)
	var spilt string
	r := p.Run(t.Context(), tool.RunOptions{Spill: func(_ context.Context, s string) (string, func(), error) { spilt = s; return "blob:1", nil, nil }})
	got := r.Content[0].Text
	if len(r.Content) != 2 || r.Content[1].Type != message.Image {
		t.Fatalf("blocks: %d", len(r.Content))
	}
	if len(got) > tool.DefaultLimit+300 || !utf8.ValidString(got) || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if !strings.HasPrefix(got, "日本語\n") || !strings.HasSuffix(got, "日本語\n") || !strings.Contains(got, "blob:1") {
		t.Errorf("head, tail or reference missing")
	}
	if len(spilt) < len(full) {
		t.Errorf("spilt %d of %d bytes", len(spilt), len(full))
	}

	r = p.Run(t.Context(), tool.RunOptions{Limit: 50, Spill: func(context.Context, string) (string, func(), error) { return "", nil, errors.New("full") }})
	if !strings.Contains(r.Content[0].Text, "could not be kept") {
		t.Errorf("got %q", r.Content[0].Text)
	}
}

func FuzzCut(f *testing.F) {
	f.Add("héllo wörld", 5)
	f.Add("日本語日本語", 7)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = 1 + abs(n)%200
		s = strings.ToValidUTF8(s, "?")
		got := tool.Cut(s, n, "note")
		if !utf8.ValidString(got) {
			t.Fatalf("cut %q at %d: %q is not valid", s, n, got)
		}
		if len(s) <= n && got != s {
			t.Fatalf("a short text was cut")
		}
		if len(got) > n+200 {
			t.Fatalf("%d bytes of %d", len(got), n)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
