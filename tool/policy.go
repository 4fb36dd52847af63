package tool

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Action is what shall happen to a call. The empty Action has no opinion.
type Action string

// The actions.
const (
	Allow Action = "allow"
	Deny  Action = "deny"
	Ask   Action = "ask"
)

// Verdict is an action with its reason. The zero Verdict has no opinion.
type Verdict struct {
	Action Action
	Reason string // for people and the model; says what would change a denial when that is known
}

// Hook is a pair of functions around a body; either may be nil. They are called for one call at a
// time, for parallel calls concurrently. A hook that panics denies the call.
type Hook struct {
	Name   string
	Before func(ctx context.Context, p Prepared) Verdict
	After  func(ctx context.Context, p Prepared, r Result) Result
}

// Guard may deny a call, and nothing can undo that: neither a policy nor a person. Any other action
// is ignored. A guard that panics denies the call.
type Guard func(ctx context.Context, p Prepared) Verdict

// Policy says what happens to calls that no hook and no rule decides.
type Policy string

// The policies.
const (
	PolicyAsk      Policy = "ask"       // ask a person
	PolicyAutoEdit Policy = "auto-edit" // allow edits of files inside the workspace, ask for the rest
	PolicyNeverAsk Policy = "never-ask" // deny what ask would ask about
	PolicyYolo     Policy = "yolo"      // allow everything
)

// strictness orders the policies, the strictest first.
var strictness = []Policy{PolicyNeverAsk, PolicyAsk, PolicyAutoEdit, PolicyYolo}

// Stricter returns the one of two policies that allows less. "" stands for no limit.
func Stricter(a, b Policy) Policy {
	if a == "" || b != "" && slices.Index(strictness, b) < slices.Index(strictness, a) {
		return b
	}
	return a
}

// ParsePolicy returns the policy of that name.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case PolicyAsk, PolicyAutoEdit, PolicyNeverAsk, PolicyYolo:
		return p, nil
	}
	return "", fmt.Errorf("unknown approval policy %q: use ask, auto-edit, never-ask or yolo", s)
}

// Rule decides the calls of one tool whose subject begins with a prefix.
//
// A prefix ends at a word of a command ("git status" fits "git status -s", not "git statusx") or at
// an element of a path. A rule that allows a command fits only a simple one: no operator, redirection,
// substitution, pattern or line break, so that "git status; rm -rf ." is not allowed by "git status".
// A rule that denies or asks fits when any part of the command begins with the prefix; it is a help
// against accidents, not a wall: a shell knows many ways to write one thing.
type Rule struct {
	Tool   string `json:"tool"`             // a name, or a beginning followed by *
	Prefix string `json:"prefix,omitzero"`  // "" fits every call
	Action Action `json:"action"`           // Allow, Deny or Ask
	Reason string `json:"reason,omitempty"` // of a denial
}

// Validate reports what is wrong with r.
func (r Rule) Validate() error {
	switch r.Action {
	case Allow, Deny, Ask:
	default:
		return fmt.Errorf("approval rule for %q: action %q is none of allow, deny, ask", r.Tool, r.Action)
	}
	if r.Tool == "" {
		return fmt.Errorf("approval rule without a tool; use * for all")
	}
	return nil
}

// ParseRule reads the short form TOOL or TOOL:PREFIX, e.g. "bash:git status", "write:docs/" or "mcp_*".
func ParseRule(action Action, s string) (Rule, error) {
	name, prefix, cut := strings.Cut(s, ":")
	r := Rule{Tool: strings.TrimSpace(name), Prefix: strings.TrimSpace(prefix), Action: action}
	if cut && r.Prefix == "" {
		return r, fmt.Errorf("approval rule %q: nothing follows the colon", s)
	}
	if strings.ContainsAny(r.Tool, " \t\n") || strings.Contains(strings.TrimSuffix(r.Tool, "*"), "*") {
		return r, fmt.Errorf("approval rule %q: want TOOL or TOOL:PREFIX", s)
	}
	return r, r.Validate()
}

// String is the form that ParseRule reads.
func (r Rule) String() string {
	if r.Prefix == "" {
		return r.Tool
	}
	return r.Tool + ":" + r.Prefix
}

// Fits reports whether the rule decides about the call.
func (r Rule) Fits(p Prepared) bool {
	return fitsName(r.Tool, p.Name()) && r.fits(p.Subject(), p.def.Command)
}

// Gate decides about calls. It is immutable and safe for concurrent use when its hooks and guards are.
type Gate struct {
	Hooks  []Hook
	Guards []Guard
	Policy Policy // "" means PolicyAsk
	Rules  []Rule
}

// Before decides about a call before a person is asked: Allow, Deny or Ask. Hooks come first: a denial
// of any of them stands, an Ask wins over an Allow. Without an opinion of theirs Decide is asked. What
// a guard denies is denied here already, so that nobody is asked in vain.
func (g Gate) Before(ctx context.Context, p Prepared) Verdict {
	var v Verdict
	for _, h := range g.Hooks {
		if h.Before == nil {
			continue
		}
		switch w := protect(ctx, p, "hook "+h.Name, h.Before); w.Action {
		case Deny:
			return w
		case Ask:
			v = w
		case Allow:
			if v.Action == "" {
				v = w
			}
		}
	}
	switch v.Action {
	case "":
		v = Decide(g.Policy, g.Rules, p)
	case Allow:
		if d := match(g.Rules, p); d.Action == Deny {
			v = d
		}
	case Ask:
		v = g.Policy.question(p, v.Reason)
	}
	if v.Action == Deny {
		return v
	}
	if d := g.Guard(ctx, p); d.Action == Deny {
		return d
	}
	return v
}

// Guard asks the guards: Deny, or Allow. Call it right before the body, after a person has answered.
func (g Gate) Guard(ctx context.Context, p Prepared) Verdict {
	for _, guard := range g.Guards {
		if v := protect(ctx, p, "guard", guard); v.Action == Deny {
			return v
		}
	}
	return Verdict{Action: Allow}
}

func protect(ctx context.Context, p Prepared, what string, f func(context.Context, Prepared) Verdict) (v Verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = Verdict{Deny, fmt.Sprintf("%s crashed: %v", what, r)}
		}
	}()
	return f(ctx, p)
}

// Decide applies rules and policy to a call: Allow, Deny or Ask. Of the rules that fit, a denial wins
// over a question and a question over a permission; a rule's denial holds under every policy. Without
// a rule, what only reads is allowed, and the policy decides the rest.
func Decide(policy Policy, rules []Rule, p Prepared) Verdict {
	v := match(rules, p)
	switch v.Action {
	case Deny, Allow:
		return v
	case Ask:
		return policy.question(p, "a rule asks for it")
	}
	switch {
	case p.def.ReadOnly:
		return Verdict{Action: Allow}
	case policy == PolicyAutoEdit && p.Edits():
		return Verdict{Action: Allow}
	}
	return policy.question(p, "")
}

// question is what becomes of a call that needs a person's word.
func (policy Policy) question(p Prepared, reason string) Verdict {
	what := p.Name()
	if s := p.Subject(); s != "" {
		what += " (" + clip(s, 200) + ")"
	}
	if reason != "" {
		reason = ": " + reason
	}
	switch policy {
	case PolicyYolo:
		return Verdict{Action: Allow}
	case PolicyNeverAsk:
		flag := "`--approve yolo` allows everything"
		if p.Edits() {
			flag = "`--approve auto-edit` allows edits inside the workspace, `--approve yolo` everything"
		}
		return Verdict{Deny, fmt.Sprintf("%s needs approval%s, and the policy never-ask denies what needs approval; %s.", what, reason, flag)}
	}
	return Verdict{Ask, what + " needs approval" + reason}
}

func match(rules []Rule, p Prepared) Verdict {
	var best Verdict
	for _, r := range rules {
		if !r.Fits(p) {
			continue
		}
		switch r.Action {
		case Deny:
			reason := r.Reason
			if reason == "" {
				reason = strings.TrimSpace("a rule denies " + r.Tool + " " + r.Prefix)
			}
			return Verdict{Deny, reason}
		case Ask:
			best = Verdict{Action: Ask}
		case Allow:
			if best.Action == "" {
				best = Verdict{Action: Allow}
			}
		}
	}
	return best
}

func fitsName(pattern, name string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, head)
	}
	return pattern == name
}

func (r Rule) fits(subject string, command bool) bool {
	prefix := strings.TrimSpace(r.Prefix)
	switch {
	case prefix == "":
		return true
	case command && r.Action == Allow:
		return simple(subject) && wordPrefix(subject, prefix)
	case command:
		for _, part := range strings.FieldsFunc(subject, func(c rune) bool { return strings.ContainsRune(";&|\n\r()`{}$", c) }) {
			if wordPrefix(part, prefix) {
				return true
			}
		}
		return false
	case r.Action == Allow && climbs(subject):
		return false
	}
	rest, ok := strings.CutPrefix(subject, prefix)
	return ok && (rest == "" || strings.HasSuffix(prefix, "/") || strings.HasPrefix(rest, "/"))
}

// simple reports whether a shell runs exactly the one command that the text begins with.
func simple(command string) bool {
	return !strings.ContainsFunc(command, func(c rune) bool {
		return c < ' ' && c != '\t' || c == 0x7f || strings.ContainsRune(";&|<>()$`\\*?[]{}~!#", c)
	})
}

func wordPrefix(command, prefix string) bool {
	have, want := strings.Fields(command), strings.Fields(prefix)
	if len(have) < len(want) {
		return false
	}
	for i := range want {
		if have[i] != want[i] {
			return false
		}
	}
	return true
}

func climbs(path string) bool {
	for _, e := range strings.Split(path, "/") {
		if e == ".." {
			return true
		}
	}
	return false
}
