package config

import (
	"fmt"
	"strings"
	"time"
)

// KindOpenAI is the kind of a provider that speaks OpenAI's chat completions; so far the only one.
const KindOpenAI = "openai"

// Provider is a model service. Printing it shows no key.
type Provider struct {
	Name    string
	Kind    Value[string]
	BaseURL Value[string]
	Dialect Value[string]
	KeyEnv  Value[string] // the variable that holds the key; not set: see Key
	// Idle is how long the service may say nothing before a request is given up; not set: as long as the program says.
	Idle   Value[time.Duration]
	key    Value[secret] // given in a file
	getenv func(string) string
}

// secret yields text that nothing prints: fmt cannot see into a function, also where it does not ask String.
type secret func() string

// MissingKeyError says that a provider's key is not there.
type MissingKeyError struct{ Provider, Variable string }

func (e *MissingKeyError) Error() string {
	return fmt.Sprintf("no key for %s: $%s is not set", e.Provider, e.Variable)
}

// Key returns the provider's key, "" for one that needs none; *MissingKeyError if its variable is not set.
func (p Provider) Key() (string, error) {
	switch {
	case p.key.IsSet():
		return p.key.V(), nil
	case !p.KeyEnv.IsSet():
		return "", nil
	}
	if k := strings.TrimSpace(p.getenv(p.KeyEnv.V)); k != "" {
		return k, nil
	}
	return "", &MissingKeyError{p.Name, p.KeyEnv.V}
}

// presets are the providers that need no configuration.
func presets(getenv func(string) string) map[string]Provider {
	out := map[string]Provider{}
	for _, p := range [][3]string{
		{"openai", "https://api.openai.com/v1", "OPENAI_API_KEY"},
		{"deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"},
		{"openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
		{"ollama", "http://localhost:11434/v1", ""},
	} {
		v := func(s string) Value[string] { return Value[string]{s, BuiltIn} }
		prov := Provider{Name: p[0], Kind: v(KindOpenAI), BaseURL: v(p[1]), Dialect: v(p[0]), getenv: getenv}
		if p[2] != "" {
			prov.KeyEnv = v(p[2])
		}
		out[p[0]] = prov
	}
	return out
}

// fill takes over what a file says of a provider.
func (p *Provider) fill(name string, t providerTable, preset bool, o Options) error {
	bad := func(key, why, hint string) error {
		return &Error{Path: o.User, Key: "providers." + name + key, Why: why, Hint: hint}
	}
	p.Name, p.getenv = name, o.Getenv
	set(&p.Kind, t.Kind, o.User)
	set(&p.BaseURL, t.BaseURL, o.User)
	set(&p.Dialect, t.Dialect, o.User)
	if t.Idle != nil {
		d, err := time.ParseDuration(*t.Idle)
		if err != nil || d <= 0 {
			return bad(".idle_timeout", "it is not a length of time above 0", "for example idle_timeout = \"90s\"")
		}
		p.Idle = Value[time.Duration]{d, o.User}
	}
	switch {
	case t.Key != nil && t.KeyEnv != nil:
		return bad("", "it has both key and key_env", "leave one of them out")
	case t.Key != nil && strings.TrimSpace(*t.Key) == "":
		return bad(".key", "it is empty", "leave it out for a service without a key")
	case t.Key != nil:
		key := strings.TrimSpace(*t.Key)
		p.key, p.KeyEnv = Value[secret]{func() string { return key }, o.User}, Value[string]{}
	case t.KeyEnv != nil && *t.KeyEnv == "":
		p.KeyEnv = Value[string]{} // a preset's service, without a key
	case t.KeyEnv != nil:
		if strings.ContainsAny(*t.KeyEnv, "=$ \t\n") {
			return bad(".key_env", "it is not the name of a variable", "for example key_env = \"MY_API_KEY\"")
		}
		set(&p.KeyEnv, t.KeyEnv, o.User)
	}
	switch {
	case !p.Kind.IsSet():
		return bad(".kind", "it is missing", "write kind = \"openai\"")
	case p.Kind.V != KindOpenAI:
		return bad(".kind", "there is no such kind", "it is openai: what speaks OpenAI's chat completions")
	case !p.BaseURL.IsSet():
		return bad(".base_url", "it is missing", "for example base_url = \"http://localhost:8000/v1\"")
	case !p.Dialect.IsSet():
		p.Dialect = Value[string]{"generic", BuiltIn}
	}
	if preset && t.BaseURL != nil && t.Key == nil && t.KeyEnv == nil && p.KeyEnv.IsSet() {
		return bad("", "it has another address and the key of the built-in one", "say which key is for it, with key_env or key; key_env = \"\" for none")
	}
	return nil
}

// Provider returns the provider of a name.
func (c *Config) Provider(name string) (Provider, bool) {
	if c == nil {
		return Provider{}, false
	}
	p, ok := c.providers[name]
	return p, ok
}

// Names lists the names of the providers.
func (c *Config) Names() []string {
	if c == nil {
		return nil
	}
	return sorted(c.providers)
}

// ModelNames lists the models of which something is said, as PROVIDER/MODEL.
func (c *Config) ModelNames() []string {
	if c == nil {
		return nil
	}
	return sorted(c.models)
}

// Models returns what is known about a provider's models, by their own names.
func (c *Config) Models(provider string) map[string]Model {
	out := map[string]Model{}
	if c == nil {
		return out
	}
	for name, m := range c.models {
		if p, model, _ := strings.Cut(name, "/"); p == provider {
			out[model] = m
		}
	}
	return out
}

// Setting is one value as a person sees it; a secret is not shown.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // "" = not set
	Origin string `json:"origin"`
}

// Settings lists every value with its origin, in a fixed order.
func (c *Config) Settings() []Setting {
	var out []Setting
	add := func(key, value, origin string) { out = append(out, Setting{key, value, origin}) }
	addText := func(key string, v Value[string]) { add(key, v.V, v.Origin) }
	addText("model", c.Model)
	switch {
	case c.Approval.IsSet() && string(c.Policy("")) == c.Approval.V:
		addText("approval", c.Approval)
	case c.Stricter.IsSet():
		add("approval", c.Stricter.V+" or stricter", c.Stricter.Origin)
	default:
		add("approval", "never-ask for run, ask for chat", BuiltIn)
	}
	steps := c.MaxSteps.Origin
	if c.FewSteps.IsSet() && c.FewSteps.V == c.Steps() {
		steps = c.FewSteps.Origin
	}
	if steps == "" {
		steps = BuiltIn
	}
	add("max_steps", fmt.Sprint(c.Steps()), steps)
	if c.Title.IsSet() {
		addText("title", c.Title)
	}
	c.Compaction.settings("compaction.", add)
	if c.Subagents.IsSet() {
		add("subagents", fmt.Sprint(c.Subagents.V), c.Subagents.Origin)
	}
	c.Telemetry.settings(add)
	for _, name := range c.Names() {
		p := c.providers[name]
		at := "providers." + name + "."
		addText(at+"kind", p.Kind)
		addText(at+"base_url", p.BaseURL)
		addText(at+"dialect", p.Dialect)
		if p.Idle.IsSet() {
			add(at+"idle_timeout", p.Idle.V.String(), p.Idle.Origin)
		}
		switch k, err := p.Key(); {
		case p.key.IsSet():
			add(at+"key", "set, hidden", p.key.Origin)
		case err != nil:
			add(at+"key", "", "$"+p.KeyEnv.V+", which is not set")
		case k != "":
			add(at+"key", "set, hidden", "$"+p.KeyEnv.V)
		default:
			add(at+"key", "none needed", p.Kind.Origin)
		}
	}
	for _, name := range sorted(c.models) {
		m := c.models[name]
		for _, v := range []struct {
			key string
			v   Value[int]
		}{{"context_window", m.ContextWindow}, {"max_output_tokens", m.MaxOutputTokens}} {
			if v.v.IsSet() {
				add(fmt.Sprintf("models.%q.%s", name, v.key), fmt.Sprint(v.v.V), v.v.Origin)
			}
		}
		if m.Price.IsSet() {
			add(fmt.Sprintf("models.%q.price", name), fmt.Sprintf("%v in, %v out", m.Price.V.Input, m.Price.V.Output), m.Price.Origin)
		}
		m.Compaction.settings(fmt.Sprintf("models.%q.compaction.", name), add)
	}
	return out
}
