package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/catalog"
	"github.com/strandline-dev/strandline/llm/openai"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/session"
)

// ProjectConfig is the name of the config file at the root of a project.
const ProjectConfig = ".strandline.toml"

// LoadConfig reads the configuration that is in force in dir (the working directory when empty): that of the
// user, or file if it is not empty, and that of the project around dir. Errors are *config.Error.
func LoadConfig(file, dir string) (*config.Config, error) {
	o := config.Options{User: file, Required: file != "", Getenv: os.Getenv, Check: checkProvider}
	if file == "" {
		if base, err := configDir(); err == nil {
			o.User = filepath.Join(base, "strandline", "config.toml")
		}
	}
	if dir == "" {
		dir, _ = os.Getwd() // a directory that is gone has no project file
	}
	if dir != "" {
		o.Project = filepath.Join(ProjectOf(dir).Tree, ProjectConfig)
	}
	cfg, err := config.Load(o)
	if err == nil {
		err = checkCompaction(o.User, cfg)
	}
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// configDir is the platform's directory for what a user configures.
func configDir() (string, error) {
	if d := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) && runtime.GOOS != "darwin" {
		return d, nil
	}
	home, err := os.UserHomeDir()
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support"), err
	}
	return filepath.Join(home, ".config"), err
}

func checkProvider(p config.Provider) error {
	if err := openai.CheckBaseURL(p.BaseURL.V); err != nil {
		return err
	}
	_, err := openai.NewEncoding(openai.Dialect(p.Dialect.V), nil)
	return err
}

// ModelError says that no model can be called as things are: nothing was done.
type ModelError struct {
	Code            llm.Code // MISSING_CREDENTIAL; "" = the use is wrong
	What, Why, Hint string
}

func (e *ModelError) Error() string { return e.What + ": " + e.Why + "; " + e.Hint }

// Unwrap returns the failure as a request would have it.
func (e *ModelError) Unwrap() error {
	code := e.Code
	if code == "" {
		code = llm.CodeInvalidRequest
	}
	return &llm.Error{Code: code, Message: e.Why + "; " + e.Hint}
}

// models finds the providers of a life: a script plays whichever is asked for, else the configuration knows.
type models struct {
	script *script.Script
	cfg    *config.Config
	client *http.Client
	blobs  func(string) ([]byte, error)
	table  *catalog.Catalog
}

// newModels returns the models, and what frees their connections.
func (a *App) newModels(ctx context.Context, o WorkOptions) (models, func()) {
	m := models{script: o.Script, cfg: o.Config, blobs: a.blobs(ctx), table: a.catalog}
	transport := http.DefaultTransport.(*http.Transport).Clone() // with the proxies of the environment
	m.client = &http.Client{Transport: transport}
	return m, transport.CloseIdleConnections
}

func (m models) Provider(name string) (llm.Provider, error) {
	p, err := m.provider(name)
	if err != nil {
		return nil, err
	}
	p = cataloged{p, func(model string) llm.ModelInfo { return modelInfo(m.table, m.cfg, name, model) }}
	idle := idleModel
	if c, ok := m.cfg.Provider(name); ok && m.script == nil && c.Idle.IsSet() {
		idle = c.Idle.V
	}
	return llm.Watch(p, idle, func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }), nil
}

func (m models) provider(name string) (llm.Provider, error) {
	if m.script != nil {
		return script.New(m.script, script.Options{Name: name, Sleep: sleep}), nil
	}
	what := "model " + name + "/.."
	if name == "script" {
		return nil, &ModelError{What: what, Why: "it is played from a file", Hint: "give the file with --script FILE, or go on with another model with --model PROVIDER/MODEL"}
	}
	p, ok := m.cfg.Provider(name)
	if !ok {
		return nil, &ModelError{What: what, Why: "there is no such provider",
			Hint: fmt.Sprintf("name one of %s, or add [providers.%s] to the config file (strand config names it)", strings.Join(m.cfg.Names(), ", "), name)}
	}
	key, err := p.Key()
	if missing := (*config.MissingKeyError)(nil); errors.As(err, &missing) {
		return nil, &ModelError{Code: llm.CodeMissingCredential, What: what, Why: fmt.Sprintf("its key is missing: $%s is not set", missing.Variable),
			Hint: fmt.Sprintf("set %s, or say where the key is in [providers.%s] of the config file (strand config names it)", missing.Variable, name)}
	}
	prov, err := openai.New(openai.Options{
		Name: name, BaseURL: p.BaseURL.V, Key: key, Dialect: openai.Dialect(p.Dialect.V), Client: m.client, Blobs: m.blobs,
		Now: time.Now, UserAgent: "strandline/" + Version,
	})
	if err != nil {
		return nil, &ModelError{What: what, Why: err.Error(), Hint: "strand config shows what is in force"}
	}
	return prov, nil
}

// check says why a route cannot be used.
func (m models) check(r agent.Route) error {
	if r.Model == "" {
		hint := "name one with --model PROVIDER/MODEL or as model in the config file (strand config names it), or play one with --script FILE"
		if m.cfg != nil && m.cfg.Suggested != "" {
			hint = fmt.Sprintf("this project suggests --model %s; ", m.cfg.Suggested) + hint
		}
		return &ModelError{What: "model", Why: "none is configured", Hint: hint}
	}
	_, err := m.provider(r.Provider)
	return err
}

// route returns what a session that says nothing is driven by.
func (m models) route() agent.Route {
	if m.script != nil {
		return agent.Route{Provider: "script", Model: "script"}
	}
	if m.cfg == nil {
		return agent.Route{}
	}
	r, _ := parseRoute(m.cfg.Model.V)
	return r
}

// routeOf returns what a session is driven by.
func (m models) routeOf(o WorkOptions, set session.Settings) agent.Route {
	for _, r := range []agent.Route{o.Route, {Provider: set.Provider, Model: set.Model}} {
		if r != (agent.Route{}) {
			return r
		}
	}
	return m.route()
}

// CheckModel says why a stored session cannot go on: a *ModelError. It opens nothing for writing.
func (a *App) CheckModel(ctx context.Context, id session.ID, o WorkOptions) error {
	ins, err := a.Inspect(ctx, id, nil)
	if err != nil {
		return err
	}
	defer ins.Close()
	m, free := a.newModels(ctx, o)
	defer free()
	return m.check(m.routeOf(o, ins.State.Settings()))
}
