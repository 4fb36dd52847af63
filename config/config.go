// Package config reads the two files that configure the program, and knows where each value comes from.
//
// The user's file may set everything. A project's file comes with whatever was checked out, so it can only
// ask for what harms nobody: a model of a provider that the user has chosen, fewer steps, a stricter approval.
// It cannot name an address, a key, a provider or a looser approval, nor send anything anywhere; that is an error, not a
// silence.
//
// Both are strict: a key that nobody knows is an error that names file and line. Nothing is read from the
// environment but the variables that providers name for their keys and the OTEL_* ones of telemetry, and these through
// Options.Getenv.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/strandline-dev/strandline/tool"
)

// Options says what to read.
type Options struct {
	User     string // path; "" = none
	Required bool   // the user's file must exist: somebody named it
	Project  string // path; "" = none

	Getenv func(string) string
	// Check says what is wrong with a provider, beyond what this package knows; may be nil.
	Check func(Provider) error
}

// Error says what is wrong with a file. It holds no value of it: that may be a key.
type Error struct {
	Path string
	Line int    // 0 when the whole file or a value is meant
	Key  string // dotted; "" when none is meant
	Why  string
	Hint string
	Err  error
}

func (e *Error) Error() string {
	s := e.Path
	if e.Line > 0 {
		s = fmt.Sprintf("%s:%d", s, e.Line)
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	return s + ": " + e.Why
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Value is a value and where it comes from; the zero Value is not set.
type Value[T any] struct {
	V      T
	Origin string // a path, or "built in"; "" = not set
}

// IsSet reports whether somebody gave the value.
func (v Value[T]) IsSet() bool { return v.Origin != "" }

// BuiltIn is the origin of what the program brings.
const BuiltIn = "built in"

// File is a file that was looked for.
type File struct {
	Role  string `json:"role"` // user, project
	Path  string `json:"path"`
	Found bool   `json:"found"`
}

// Model is what a user says of a model.
type Model struct {
	ContextWindow   Value[int]
	MaxOutputTokens Value[int]
	Price           Value[Price]
	Compaction      Compaction
}

// Config is what the files say. It is immutable and safe for concurrent use; nil says nothing.
type Config struct {
	Files []File
	Notes []string // worth knowing: what a project asked for and did not get, a key that others can read

	Model     Value[string] // PROVIDER/MODEL
	Suggested string        // the model that the project asked for and did not get
	Approval  Value[string] // of the user
	Stricter  Value[string] // the project's approval: it bounds the one in force
	MaxSteps  Value[int]    // of the user
	FewSteps  Value[int]    // the project's: it bounds the one in force
	Title     Value[string] // the user's: who is asked for the titles of sessions, TitleByModel or PROVIDER/MODEL; not set: nobody
	Subagents Value[bool]   // whether agents may hand work to subagents; not set: they may

	Compaction Compaction // of all models that do not say otherwise
	Telemetry  Telemetry

	providers map[string]Provider
	models    map[string]Model
}

type userFile struct {
	Model     *string                  `toml:"model"`
	Approval  *string                  `toml:"approval"`
	MaxSteps  *int                     `toml:"max_steps"`
	Title     *string                  `toml:"title"`
	Subagents *bool                    `toml:"subagents"`
	Providers map[string]providerTable `toml:"providers"`
	Models    map[string]modelTable    `toml:"models"`

	Compaction *compactionTable `toml:"compaction"`
	Telemetry  *telemetryTable  `toml:"telemetry"`
}

type projectFile struct {
	Model    *string `toml:"model"`
	Approval *string `toml:"approval"`
	MaxSteps *int    `toml:"max_steps"`
}

type providerTable struct {
	Kind    *string `toml:"kind"`
	BaseURL *string `toml:"base_url"`
	KeyEnv  *string `toml:"key_env"`
	Key     *string `toml:"key"`
	Dialect *string `toml:"dialect"`
	Idle    *string `toml:"idle_timeout"`
}

type modelTable struct {
	ContextWindow   *int             `toml:"context_window"`
	MaxOutputTokens *int             `toml:"max_output_tokens"`
	PriceInput      *float64         `toml:"price_input"`
	PriceOutput     *float64         `toml:"price_output"`
	PriceCacheRead  *float64         `toml:"price_cache_read"`
	PriceCacheWrite *float64         `toml:"price_cache_write"`
	Compaction      *compactionTable `toml:"compaction"`
}

// Load reads the files. Errors are *Error. A file that is not there says nothing, unless it is required.
func Load(o Options) (*Config, error) {
	c := &Config{providers: presets(o.Getenv), models: map[string]Model{}}
	var u userFile
	var p projectFile
	if !o.Required && outOfReach(o.User) {
		c.Notes = append(c.Notes, fmt.Sprintf("%s is in a directory that may not be entered here: no user's file is read", o.User))
		c.Files = append(c.Files, File{"user", o.User, false})
		o.User = ""
	}
	foundUser, err := read(o.User, &u, o.Required, func(string) (string, string) {
		return "there is no such key", "see strand help config"
	})
	if err != nil {
		return nil, err
	}
	foundProject, err := read(o.Project, &p, false, func(key string) (string, string) {
		if first, _, _ := strings.Cut(key, "."); first == "providers" || first == "models" || first == "compaction" || first == "telemetry" || first == "title" {
			return "a project may not set this: it comes with whatever is checked out", "put it into " + orElse(o.User, "the user's config file")
		}
		return "there is no such key in a project's file", "it knows model, approval and max_steps"
	})
	if err != nil {
		return nil, err
	}
	if o.User != "" {
		c.Files = append(c.Files, File{"user", o.User, foundUser})
	}
	if o.Project != "" {
		c.Files = append(c.Files, File{"project", o.Project, foundProject})
	}
	if foundUser {
		if err := c.user(o, u); err != nil {
			return nil, err
		}
	}
	if err := c.telemetry(o, u.Telemetry); err != nil {
		return nil, err
	}
	if foundProject {
		if err := c.project(o.Project, p, u); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// maxFile bounds a file, in bytes: nobody writes more.
const maxFile = 1 << 20

// outOfReach reports whether a directory on the way to path may not be entered: another user's home, then. That
// holds nothing that this user wrote. A file that is there and cannot be read is an error instead: it may be strict.
func outOfReach(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission)
}

// read decodes a file strictly. unknown says what is wrong with a key that has no place in it.
func read(path string, into any, required bool, unknown func(key string) (why, hint string)) (found bool, err error) {
	if path == "" {
		return false, nil
	}
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, &Error{Path: path, Why: "there is no such file", Hint: "give the path of a config file", Err: err}
	case err == nil && (!fi.Mode().IsRegular() || fi.Size() > maxFile):
		return false, &Error{Path: path, Why: "it is not a config file", Hint: "a config file is TOML of at most 1 MiB"}
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return false, &Error{Path: path, Why: "it cannot be read", Hint: "make it readable", Err: err}
	}
	err = toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(into)
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		first := strict.Errors[0]
		line, _ := first.Position()
		key := strings.Join(first.Key(), ".")
		why, hint := unknown(key)
		return false, &Error{Path: path, Line: line, Key: key, Why: why, Hint: hint}
	case errors.As(err, &decode):
		line, _ := decode.Position()
		key := strings.Join(decode.Key(), ".")
		if key != "" {
			return false, &Error{Path: path, Line: line, Key: key, Why: "the value is of the wrong kind", Hint: "see strand help config"}
		}
		return false, &Error{Path: path, Line: line, Why: "it is not TOML", Hint: "text stands in quotes: model = \"openai/gpt-5\""}
	}
	return false, &Error{Path: path, Why: "it is not TOML", Hint: "see strand help config"}
}

func set[T any](v *Value[T], p *T, origin string) {
	if p != nil {
		*v = Value[T]{*p, origin}
	}
}

func (c *Config) user(o Options, u userFile) error {
	bad := func(key, why, hint string) error { return &Error{Path: o.User, Key: key, Why: why, Hint: hint} }
	set(&c.Model, u.Model, o.User)
	set(&c.Approval, u.Approval, o.User)
	set(&c.MaxSteps, u.MaxSteps, o.User)
	set(&c.Title, u.Title, o.User)
	set(&c.Subagents, u.Subagents, o.User)
	if err := common(o.User, u.Model, u.Approval, u.MaxSteps); err != nil {
		return err
	}
	for _, name := range sorted(u.Providers) {
		key := "providers." + name
		if name == "" || name == "script" || strings.ContainsAny(name, "/ \t\n") {
			return bad(key, "this cannot be the name of a provider", "it is what stands before the / of a model")
		}
		p, preset := c.providers[name]
		if err := p.fill(name, u.Providers[name], preset, o); err != nil {
			return err
		}
		if o.Check != nil {
			if err := o.Check(p); err != nil {
				return &Error{Path: o.User, Key: key, Why: err.Error(), Hint: "see strand help config", Err: err}
			}
		}
		c.providers[name] = p
		if u.Providers[name].Key != nil {
			if fi, err := os.Stat(o.User); err == nil && fi.Mode().Perm()&0o077 != 0 {
				c.Notes = append(c.Notes, fmt.Sprintf("%s holds a key and others can read it; chmod 600 it, or use key_env", o.User))
			}
		}
	}
	var why string
	if c.Compaction, why = u.Compaction.read(o.User); why != "" {
		return bad("compaction", why, "leave it out for the default")
	}
	for _, name := range sorted(u.Models) {
		provider, model, ok := strings.Cut(name, "/")
		if !ok || provider == "" || model == "" {
			return bad("models."+name, "it is not of the form PROVIDER/MODEL", "write [models.\"openai/gpt-5\"]")
		}
		var m Model
		t := u.Models[name]
		set(&m.ContextWindow, t.ContextWindow, o.User)
		set(&m.MaxOutputTokens, t.MaxOutputTokens, o.User)
		if m.ContextWindow.V < 0 || m.MaxOutputTokens.V < 0 {
			return bad("models."+name, "a count of tokens is below 0", "leave it out if it is not known")
		}
		var why string
		if m.Price, why = t.price(o.User); why != "" {
			return bad("models."+name, why, "price_input and price_output are US dollars for a million tokens; leave both out if they are not known")
		}
		if m.Compaction, why = t.Compaction.read(o.User); why != "" {
			return bad("models."+name+".compaction", why, "leave it out for the default")
		}
		c.models[name] = m
	}
	titles := c.Title
	if p, m, ok := strings.Cut(titles.V, "/"); titles.V == TitleByModel {
		titles = Value[string]{}
	} else if titles.IsSet() && (!ok || p == "" || m == "") {
		return bad("title", "it is neither \"model\" nor of the form PROVIDER/MODEL", "leave it out if no model is to be asked for titles")
	}
	for _, v := range []struct {
		key string
		v   Value[string]
	}{{"model", c.Model}, {"title", titles}} {
		if p, _, _ := strings.Cut(v.v.V, "/"); v.v.IsSet() && c.providers[p].Name == "" {
			return bad(v.key, "there is no provider "+p, "name one of "+strings.Join(c.Names(), ", ")+", or add [providers."+p+"]")
		}
	}
	return nil
}

// common checks what both files may hold.
func common(path string, model, approval *string, steps *int) error {
	if model != nil {
		if p, m, ok := strings.Cut(*model, "/"); !ok || p == "" || m == "" {
			return &Error{Path: path, Key: "model", Why: "it is not of the form PROVIDER/MODEL", Hint: "for example model = \"openai/gpt-5\""}
		}
	}
	if approval != nil {
		if _, err := tool.ParsePolicy(*approval); err != nil {
			return &Error{Path: path, Key: "approval", Why: "there is no such policy", Hint: "it is one of ask, auto-edit, never-ask, yolo"}
		}
	}
	if steps != nil && *steps < 1 {
		return &Error{Path: path, Key: "max_steps", Why: "it is below 1", Hint: "leave it out for the default"}
	}
	return nil
}

func (c *Config) project(path string, p projectFile, u userFile) error {
	if err := common(path, p.Model, p.Approval, p.MaxSteps); err != nil {
		return err
	}
	if p.Approval != nil && tool.Stricter(tool.Policy(*p.Approval), tool.PolicyAsk) != tool.Policy(*p.Approval) {
		return &Error{Path: path, Key: "approval", Why: "a project may not allow calls: it comes with whatever is checked out",
			Hint: "a project can say ask or never-ask; say --approve yourself"}
	}
	set(&c.Stricter, p.Approval, path)
	set(&c.FewSteps, p.MaxSteps, path)
	if p.Model == nil {
		return nil
	}
	provider, _, _ := strings.Cut(*p.Model, "/")
	own, _, _ := strings.Cut(c.Model.V, "/")
	if _, chosen := u.Providers[provider]; chosen || c.Model.IsSet() && provider == own {
		c.Model = Value[string]{*p.Model, path}
		return nil
	}
	c.Suggested = *p.Model
	c.Notes = append(c.Notes, fmt.Sprintf("%s asks for the model %s, but you have not chosen that provider; --model %s does, or [providers.%s] in your own file", path, *p.Model, *p.Model, provider))
	return nil
}

// Policy returns the approval in force where def is the default: the user's word counts more than the
// default, and the project's can only make it stricter.
func (c *Config) Policy(def tool.Policy) tool.Policy {
	if c == nil {
		return def
	}
	if c.Approval.IsSet() {
		def = tool.Policy(c.Approval.V)
	}
	return tool.Stricter(def, tool.Policy(c.Stricter.V))
}

// TitleByModel is the Title that asks the session's own model.
const TitleByModel = "model"

// DefaultSteps is how many steps a turn has where nobody says so.
const DefaultSteps = 50

// Steps returns how many steps a turn may have.
func (c *Config) Steps() int {
	n := DefaultSteps
	if c != nil && c.MaxSteps.IsSet() {
		n = c.MaxSteps.V
	}
	if c != nil && c.FewSteps.IsSet() {
		n = min(n, c.FewSteps.V)
	}
	return n
}

// Delegates reports whether agents may hand work to subagents.
func (c *Config) Delegates() bool { return c == nil || !c.Subagents.IsSet() || c.Subagents.V }

func sorted[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
