package tool_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
	"pgregory.net/rapid"
)

func subject(args jsontext.Value) string {
	var a struct{ Path string }
	_ = json.Unmarshal(args, &a, json.MatchCaseInsensitiveNames(true))
	return a.Path
}

func call(t testing.TB, kind, about string) tool.Prepared {
	d := tool.Definition{Name: kind, Run: never, Subject: subject}
	switch kind {
	case "bash":
		d.Command = true
	case "read":
		d.ReadOnly = true
	case "write":
		d.Edits = func(args jsontext.Value) bool { return !strings.HasPrefix(subject(args), "/") }
	}
	s, err := tool.NewSet(d)
	if err != nil {
		t.Fatal(err)
	}
	args, err := json.Marshal(map[string]string{"path": about})
	if err != nil {
		t.Fatal(err)
	}
	p, bad := s.Prepare("id", kind, string(args))
	if bad != nil {
		t.Fatal(text(*bad))
	}
	return p
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy tool.Policy
		kind   string
		about  string
		want   tool.Action
		says   string
	}{
		{tool.PolicyAsk, "read", "a", tool.Allow, ""},
		{tool.PolicyAsk, "write", "a", tool.Ask, "write (a)"},
		{"", "write", "a", tool.Ask, ""},
		{tool.PolicyAsk, "bash", "ls", tool.Ask, "bash (ls)"},
		{tool.PolicyAutoEdit, "read", "a", tool.Allow, ""},
		{tool.PolicyAutoEdit, "write", "a", tool.Allow, ""},
		{tool.PolicyAutoEdit, "write", "/etc/passwd", tool.Ask, ""},
		{tool.PolicyAutoEdit, "bash", "ls", tool.Ask, ""},
		{tool.PolicyNeverAsk, "read", "a", tool.Allow, ""},
		{tool.PolicyNeverAsk, "write", "a", tool.Deny, "--approve auto-edit"},
		{tool.PolicyNeverAsk, "bash", "ls", tool.Deny, "--approve yolo"},
		{tool.PolicyYolo, "bash", "rm -rf /", tool.Allow, ""},
	} {
		v := tool.Decide(c.policy, nil, call(t, c.kind, c.about))
		if v.Action != c.want || !strings.Contains(v.Reason, c.says) {
			t.Errorf("%s, %s(%s): got %s %q, want %s", c.policy, c.kind, c.about, v.Action, v.Reason, c.want)
		}
	}
}

func TestRules(t *testing.T) {
	allow := func(prefix string) []tool.Rule {
		return []tool.Rule{{Tool: "bash", Prefix: prefix, Action: tool.Allow}}
	}
	deny := func(name, prefix string) []tool.Rule {
		return []tool.Rule{{Tool: name, Prefix: prefix, Action: tool.Deny}}
	}
	for _, c := range []struct {
		name   string
		policy tool.Policy
		rules  []tool.Rule
		kind   string
		about  string
		want   tool.Action
	}{
		{"whole command", "", allow("git status"), "bash", "git status", tool.Allow},
		{"with arguments", "", allow("git status"), "bash", "git  status -s 'a b'", tool.Allow},
		{"other word", "", allow("git status"), "bash", "git statusx", tool.Ask},
		{"other command", "", allow("git status"), "bash", "git push", tool.Ask},
		{"second command", "", allow("git status"), "bash", "git status; rm -rf .", tool.Ask},
		{"second line", "", allow("git status"), "bash", "git status\nrm -rf .", tool.Ask},
		{"background", "", allow("git status"), "bash", "git status & rm -rf .", tool.Ask},
		{"substitution", "", allow("git status"), "bash", "git status $(rm -rf .)", tool.Ask},
		{"quoted substitution", "", allow("git status"), "bash", "git status \"`rm -rf .`\"", tool.Ask},
		{"redirection", "", allow("git status"), "bash", "git status > .git/hooks/x", tool.Ask},
		{"escape", "", allow("git status"), "bash", "git status\\\nrm", tool.Ask},
		{"under never-ask", tool.PolicyNeverAsk, allow("git status"), "bash", "git status", tool.Allow},
		{"denied inside a list", tool.PolicyYolo, deny("bash", "rm -rf"), "bash", "ls && rm  -rf .", tool.Deny},
		{"denied inside a substitution", tool.PolicyYolo, deny("bash", "rm"), "bash", "echo $(rm x)", tool.Deny},
		{"denial wins over permission", "", append(allow("git"), deny("bash", "git push")...), "bash", "git push", tool.Deny},
		{"question wins over permission", "", append(allow("git"), tool.Rule{Tool: "bash", Prefix: "git push", Action: tool.Ask}), "bash", "git push", tool.Ask},
		{"question under never-ask", tool.PolicyNeverAsk, []tool.Rule{{Tool: "read", Action: tool.Ask}}, "read", "a", tool.Deny},
		{"read-only can be denied", "", deny("read", "secrets"), "read", "secrets/a", tool.Deny},
		{"at an element of the path", "", deny("read", "secrets"), "read", "secrets2", tool.Allow},
		{"a path that climbs is not allowed", "", []tool.Rule{{Tool: "write", Prefix: "docs/", Action: tool.Allow}}, "write", "docs/../x", tool.Ask},
		{"a path below", "", []tool.Rule{{Tool: "write", Prefix: "docs/", Action: tool.Allow}}, "write", "docs/x", tool.Allow},
		{"every tool", "", deny("*", ""), "read", "a", tool.Deny},
		{"beginning of a name", "", []tool.Rule{{Tool: "ba*", Action: tool.Allow}}, "bash", "a; b", tool.Allow},
	} {
		if v := tool.Decide(c.policy, c.rules, call(t, c.kind, c.about)); v.Action != c.want {
			t.Errorf("%s: got %s %q, want %s", c.name, v.Action, v.Reason, c.want)
		}
	}
}

// No command with an operator is ever allowed by a prefix.
func TestPrefixIsNotFooled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := rapid.StringMatching(`[a-z '"-]{0,8}`).Draw(rt, "before")
		op := rapid.SampledFrom([]string{";", "&", "|", "\n", "\r", "$(", "`", ">", "<", "(", "\\", "{"}).Draw(rt, "op")
		after := rapid.String().Draw(rt, "after")
		p := call(t, "bash", "git status "+before+op+after)
		v := tool.Decide(tool.PolicyAsk, []tool.Rule{{Tool: "bash", Prefix: "git status", Action: tool.Allow}}, p)
		if v.Action != tool.Ask {
			rt.Fatalf("%q was %s", p.Subject(), v.Action)
		}
	})
}

func TestGate(t *testing.T) {
	say := func(a tool.Action) tool.Hook {
		return tool.Hook{Name: string(a), Before: func(context.Context, tool.Prepared) tool.Verdict { return tool.Verdict{Action: a, Reason: "hook"} }}
	}
	crash := func(context.Context, tool.Prepared) tool.Verdict { panic("ouch") }
	denyAll := func(context.Context, tool.Prepared) tool.Verdict {
		return tool.Verdict{Action: tool.Deny, Reason: "guard"}
	}
	allowAll := func(context.Context, tool.Prepared) tool.Verdict { return tool.Verdict{Action: tool.Allow} }
	for _, c := range []struct {
		name string
		gate tool.Gate
		want tool.Action
		says string
	}{
		{"no opinion", tool.Gate{Hooks: []tool.Hook{say(""), {}}}, tool.Ask, ""},
		{"hook allows", tool.Gate{Hooks: []tool.Hook{say(tool.Allow)}}, tool.Allow, ""},
		{"hook asks", tool.Gate{Hooks: []tool.Hook{say(tool.Allow), say(tool.Ask)}}, tool.Ask, "hook"},
		{"hook asks under never-ask", tool.Gate{Policy: tool.PolicyNeverAsk, Hooks: []tool.Hook{say(tool.Ask)}}, tool.Deny, "never-ask"},
		{"hook denies", tool.Gate{Policy: tool.PolicyYolo, Hooks: []tool.Hook{say(tool.Allow), say(tool.Deny)}}, tool.Deny, "hook"},
		{"hook crashes", tool.Gate{Policy: tool.PolicyYolo, Hooks: []tool.Hook{{Name: "h", Before: crash}}}, tool.Deny, "hook h crashed"},
		{"hook cannot undo a rule's denial", tool.Gate{Hooks: []tool.Hook{say(tool.Allow)}, Rules: []tool.Rule{{Tool: "*", Action: tool.Deny}}}, tool.Deny, "rule"},
		{"guard denies", tool.Gate{Policy: tool.PolicyYolo, Guards: []tool.Guard{allowAll, denyAll}}, tool.Deny, "guard"},
		{"guard denies before anybody is asked", tool.Gate{Guards: []tool.Guard{denyAll}}, tool.Deny, "guard"},
		{"guard cannot allow", tool.Gate{Guards: []tool.Guard{allowAll}}, tool.Ask, ""},
		{"guard crashes", tool.Gate{Policy: tool.PolicyYolo, Guards: []tool.Guard{crash}}, tool.Deny, "crashed"},
	} {
		v := c.gate.Before(t.Context(), call(t, "bash", "ls"))
		if v.Action != c.want || !strings.Contains(v.Reason, c.says) {
			t.Errorf("%s: got %s %q, want %s %q", c.name, v.Action, v.Reason, c.want, c.says)
		}
	}
	r := tool.Denied("bash", tool.Verdict{Action: tool.Deny, Reason: "because"})
	if !r.IsError || r.Code != tool.CodeDenied || !strings.Contains(text(r), "because") {
		t.Errorf("denied result: %+v", r)
	}
}

func TestParsePolicy(t *testing.T) {
	for _, name := range []string{"ask", "auto-edit", "never-ask", "yolo"} {
		if p, err := tool.ParsePolicy(name); err != nil || string(p) != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tool.ParsePolicy("YOLO"); err == nil {
		t.Error("accepted")
	}
	if (tool.Rule{Tool: "a", Action: "alow"}).Validate() == nil || (tool.Rule{Action: tool.Deny}).Validate() == nil {
		t.Error("a bad rule is valid")
	}
	if err := (tool.Rule{Tool: "a", Action: tool.Deny}).Validate(); err != nil {
		t.Error(err)
	}
}
