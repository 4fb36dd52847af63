package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/tool"
)

const key = "sk-never-shown"

// load reads a user's and a project's file; "-" is a file that is not there.
func load(t *testing.T, user, project string, env map[string]string) (*config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	o := config.Options{User: filepath.Join(dir, "user.toml"), Project: filepath.Join(dir, "project.toml"), Getenv: func(n string) string { return env[n] },
		Check: func(p config.Provider) error {
			if p.BaseURL.V == "bad" {
				return errors.New("bad address")
			}
			return nil
		}}
	for path, text := range map[string]string{o.User: user, o.Project: project} {
		if text == "-" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(o)
}

func TestErrors(t *testing.T) {
	const mine = "[providers.mine]\nkind = \"openai\"\nbase_url = \"http://h\"\n"
	for _, c := range []struct{ name, user, project, want string }{
		{"unknown key", "model = \"a/b\"\nmodell = \"x\"\n", "-", "user.toml:2: modell: there is no such key"},
		{"unknown key of a provider", mine + "\nkeyy = \"" + key + "\"\n", "-", "user.toml:5: providers.mine.keyy: there is no such key"},
		{"unknown table", "[agents]\nx = 1\n", "-", "user.toml:1: agents: there is no such key"},
		{"not TOML", "model = openai/" + key + "\n", "-", "user.toml:1: it is not TOML"},
		{"not TOML later", "\n\n[providers\n", "-", "user.toml:3: it is not TOML"},
		{"a key twice", "model = \"a/b\"\nmodel = \"c/d\"\n", "-", "user.toml:2: "},
		{"wrong kind", "max_steps = \"" + key + "\"\n", "-", "user.toml:1: max_steps: the value is of the wrong kind"},
		{"no model", "model = \"gpt\"", "-", "user.toml: model: it is not of the form"},
		{"model of nobody", "model = \"nobody/gpt\"", "-", "user.toml: model: there is no provider nobody"},
		{"no title", "title = \"gpt\"", "-", "user.toml: title: it is neither"},
		{"title by nobody", "title = \"nobody/gpt\"", "-", "user.toml: title: there is no provider nobody"},
		{"project: title", "title = \"model\"", "title = \"model\"", "project.toml:1: title: a project may not set this"},
		{"no policy", "approval = \"always\"", "-", "user.toml: approval: there is no such policy"},
		{"no steps", "max_steps = 0", "-", "user.toml: max_steps: it is below 1"},
		{"kind missing", "[providers.mine]\nbase_url = \"http://h\"", "-", "user.toml: providers.mine.kind: it is missing"},
		{"other kind", "[providers.mine]\nkind = \"soap\"\nbase_url = \"http://h\"", "-", "providers.mine.kind: there is no such kind"},
		{"address missing", "[providers.mine]\nkind = \"openai\"", "-", "providers.mine.base_url: it is missing"},
		{"bad address", "[providers.mine]\nkind = \"openai\"\nbase_url = \"bad\"", "-", "providers.mine: bad address"},
		{"no patience", mine + "idle_timeout = \"0s\"", "-", "providers.mine.idle_timeout: it is not a length of time above 0"},
		{"patience without a unit", mine + "idle_timeout = \"90\"", "-", "providers.mine.idle_timeout: it is not a length of time above 0"},
		{"two keys", mine + "key = \"" + key + "\"\nkey_env = \"K\"", "-", "providers.mine: it has both key and key_env"},
		{"empty key", mine + "key = \" \"", "-", "providers.mine.key: it is empty"},
		{"no variable", mine + "key_env = \"$K\"", "-", "providers.mine.key_env: it is not the name of a variable"},
		{"a reserved name", "[providers.script]\nkind = \"openai\"\nbase_url = \"http://h\"", "-", "providers.script: this cannot be the name"},
		{"a name with a slash", "[providers.\"a/b\"]\nkind = \"openai\"\nbase_url = \"http://h\"", "-", "cannot be the name"},
		{"another address for the built-in key", "[providers.openai]\nbase_url = \"http://h\"", "-", "providers.openai: it has another address and the key of the built-in one"},
		{"a window of nothing", "[models.gpt]\ncontext_window = 1", "-", "models.gpt: it is not of the form"},
		{"a threshold that is no number", "[compaction]\nthreshold = nan", "-", "compaction: threshold is not a share above 0"},
		{"a tail that is no number", "[models.\"openai/gpt\".compaction]\ntail = nan", "-", "tail is not a share above 0"},
		{"a growth without end", "[compaction]\ngrowth = inf", "-", "compaction: growth is not a share above 0"},
		{"a price that is no number", "[models.\"openai/gpt\"]\nprice_input = nan\nprice_output = 1.0", "-", "a price is no number of 0 or more"},
		{"a price without end", "[models.\"openai/gpt\"]\nprice_input = 1.0\nprice_output = inf", "-", "a price is no number of 0 or more"},
		{"a window below 0", "[models.\"openai/gpt\"]\ncontext_window = -1", "-", "below 0"},

		{"project: address", "-", "[providers.openai]\nbase_url = \"http://evil\"\n", "project.toml:1: providers.openai: a project may not set this"},
		{"project: key", "-", "model = \"a/b\"\nproviders.openai.key_env = \"AWS_SECRET\"\n", "project.toml:2: providers.openai.key_env: a project may not set this"},
		{"project: window", "-", "[models.\"openai/gpt\"]\ncontext_window = 1\n", "project.toml:1: models.openai/gpt: a project may not set this"},
		{"project: yolo", "-", "approval = \"yolo\"\n", "project.toml: approval: a project may not allow calls"},
		{"project: auto-edit", "approval = \"yolo\"", "approval = \"auto-edit\"\n", "project.toml: approval: a project may not allow calls"},
		{"project: unknown key", "-", "store = \"/tmp\"\n", "project.toml:1: store: there is no such key in a project's file"},
		{"project: no policy", "-", "approval = \"never\"\n", "project.toml: approval: there is no such policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.user, c.project, nil)
			var e *config.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), c.want) || e.Hint == "" || strings.Contains(err.Error()+e.Hint, key) {
				t.Errorf("got  %s; %s\nwant %s", err, e.Hint, c.want)
			}
		})
	}
}

func TestProjectIsBounded(t *testing.T) {
	const mine = "[providers.mine]\nkind = \"openai\"\nbase_url = \"http://h\"\n"
	for _, c := range []struct {
		name, user, project string
		model               string
		def, policy         tool.Policy
		steps               int
	}{
		{"nobody says anything", "-", "-", "", tool.PolicyAsk, tool.PolicyAsk, 50},
		{"the user alone", "model = \"openai/a\"\napproval = \"yolo\"\nmax_steps = 200", "-", "openai/a", tool.PolicyAsk, tool.PolicyYolo, 200},
		{"a model of the user's provider", "model = \"openai/a\"", "model = \"openai/b\"", "openai/b", tool.PolicyAsk, tool.PolicyAsk, 50},
		{"a model of a provider in the user's file", "model = \"openai/a\"\n" + mine, "model = \"mine/b\"", "mine/b", tool.PolicyAsk, tool.PolicyAsk, 50},
		{"a model of somebody else", "model = \"ollama/a\"", "model = \"openai/b\"", "ollama/a", tool.PolicyAsk, tool.PolicyAsk, 50},
		{"a model where the user has none", "-", "model = \"openai/b\"", "", tool.PolicyAsk, tool.PolicyAsk, 50},
		{"stricter", "approval = \"yolo\"", "approval = \"ask\"", "", tool.PolicyNeverAsk, tool.PolicyAsk, 50},
		{"strictest", "-", "approval = \"never-ask\"", "", tool.PolicyAsk, tool.PolicyNeverAsk, 50},
		{"not looser", "approval = \"never-ask\"", "approval = \"ask\"", "", tool.PolicyAsk, tool.PolicyNeverAsk, 50},
		{"not looser than the default", "-", "approval = \"ask\"", "", tool.PolicyNeverAsk, tool.PolicyNeverAsk, 50},
		{"fewer steps", "max_steps = 40", "max_steps = 7", "", tool.PolicyAsk, tool.PolicyAsk, 7},
		{"not more steps", "-", "max_steps = 5000", "", tool.PolicyAsk, tool.PolicyAsk, 50},
	} {
		got, err := load(t, c.user, c.project, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.Model.V != c.model || got.Policy(c.def) != c.policy || got.Steps() != c.steps {
			t.Errorf("%s: model %q, policy %s, %d steps", c.name, got.Model.V, got.Policy(c.def), got.Steps())
		}
		if suggested := c.project != "-" && strings.Contains(c.project, "model") && !strings.Contains(c.project, c.model+`"`) || c.model == "" && strings.Contains(c.project, "model"); suggested != (got.Suggested != "" && len(got.Notes) == 1) {
			t.Errorf("%s: suggested %q, notes %q", c.name, got.Suggested, got.Notes)
		}
	}
}

func TestKeys(t *testing.T) {
	const text = "[providers.filed]\nkind = \"openai\"\nbase_url = \"http://h\"\nkey = \"" + key + "\"\n[providers.own]\nkind = \"openai\"\nbase_url = \"http://h\"\nkey_env = \"OWN\"\n" +
		"[providers.open]\nkind = \"openai\"\nbase_url = \"http://h\"\n[providers.openrouter]\nbase_url = \"http://h\"\nkey_env = \"\"\n"
	c, err := load(t, text, "-", map[string]string{"OWN": key + "\n", "OPENAI_API_KEY": key, "OPENROUTER_API_KEY": key})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"filed": key, "own": key, "open": "", "openai": key, "ollama": "", "openrouter": "", "deepseek": "$DEEPSEEK_API_KEY is not set"} {
		p, ok := c.Provider(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		got, err := p.Key()
		var missing *config.MissingKeyError
		if errors.As(err, &missing) {
			got = fmt.Sprintf("$%s is not set", missing.Variable)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if text := fmt.Sprintf("%v %+v %#v", p, p, p); strings.Contains(text, key) {
			t.Errorf("%s is printed with its key: %s", name, text)
		}
	}
	var b strings.Builder
	for _, s := range c.Settings() {
		fmt.Fprintf(&b, "%s|%s|%s\n", s.Key, s.Value, filepath.Base(s.Origin))
	}
	for _, want := range []string{
		"providers.filed.key|set, hidden|user.toml\n", "providers.own.key|set, hidden|$OWN\n", "providers.open.key|none needed|", "providers.deepseek.key||$DEEPSEEK_API_KEY, which is not set\n",
		"providers.deepseek.base_url|https://api.deepseek.com|built in\n", "max_steps|50|built in\n", "model||",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), key) {
		t.Error("the settings show a key")
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := config.Load(config.Options{User: filepath.Join(dir, "none"), Required: true, Getenv: os.Getenv})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a named file that is not there: %v", err)
	}
	if _, err := config.Load(config.Options{User: dir, Getenv: os.Getenv}); err == nil || !strings.Contains(err.Error(), "not a config file") {
		t.Errorf("a directory: %v", err)
	}
	open := filepath.Join(dir, "open.toml")
	if err := os.WriteFile(open, []byte("[providers.deepseek]\nkey = \""+key+"\"\n[models.\"deepseek/m\"]\ncontext_window = 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{User: open, Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "chmod 600") {
		t.Errorf("notes %q", c.Notes)
	}
	if m := c.Models("deepseek")["m"]; m.ContextWindow.V != 7 || len(c.Models("openai")) != 0 {
		t.Errorf("%+v", m)
	}
	var none *config.Config
	if none.Steps() != 50 || none.Policy(tool.PolicyAsk) != tool.PolicyAsk || len(none.Names()) != 0 || len(none.Models("x")) != 0 {
		t.Error("no configuration says something")
	}
}

// Handing work on is allowed unless the user says otherwise; it is not a project's to say.
func TestSubagents(t *testing.T) {
	for _, c := range []struct {
		user string
		want bool
	}{{"", true}, {"subagents = true", true}, {"subagents = false", false}} {
		path := filepath.Join(t.TempDir(), "user.toml")
		if err := os.WriteFile(path, []byte(c.user), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{User: path, Getenv: func(string) string { return "" }})
		if err != nil || cfg.Delegates() != c.want {
			t.Errorf("%q: %v, %v", c.user, cfg.Delegates(), err)
		}
		if _, err := config.Load(config.Options{Project: path, Getenv: func(string) string { return "" }}); c.user != "" && err == nil {
			t.Errorf("a project may say %q", c.user)
		}
	}
	if !(*config.Config)(nil).Delegates() {
		t.Error("nothing is configured, and nothing is allowed")
	}
}
