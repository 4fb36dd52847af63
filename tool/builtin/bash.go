package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
)

func bashTool(o Options) tool.Definition {
	env := environment(o)
	return tool.Definition{
		Name:    "bash",
		Aliases: bashAliases,
		Description: fmt.Sprintf("Runs a shell command in the workspace and returns its output (stdout and stderr together) and exit code. "+
			"Each call is a new shell: no directory or variable is kept. No terminal and no input: commands that ask questions fail. "+
			"The command is stopped after %v unless timeoutSeconds says otherwise. Prefer read, edit, glob and grep for files.", o.BashTimeout),
		Parameters: jsontext.Value(fmt.Sprintf(`{"type":"object","properties":{`+
			`"command":{"type":"string","minLength":1,"description":"The command, as for bash -c"},`+
			`"timeoutSeconds":{"type":"integer","minimum":1,"maximum":%d,"description":"Time limit (default %d)"},`+
			`"description":{"type":"string","description":"What the command does, in a few words, for the user"}},`+
			`"required":["command"],"additionalProperties":false}`,
			max(1, int(o.BashMaxTimeout/time.Second)), max(1, int(o.BashTimeout/time.Second)))),
		Command: true,
		Subject: func(args jsontext.Value) string {
			var a struct {
				Command string `json:"command"`
			}
			if json.Unmarshal(args, &a) != nil {
				return ""
			}
			return a.Command
		},
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			var a struct {
				Command     string `json:"command"`
				Seconds     int    `json:"timeoutSeconds"`
				Description string `json:"description"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			limit := o.BashTimeout
			if a.Seconds > 0 {
				limit = min(time.Duration(a.Seconds)*time.Second, o.BashMaxTimeout)
			}
			if strings.ContainsRune(a.Command, 0) {
				return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "the command holds a zero byte")
			}
			return runCommand(ctx, o, env, limit, a.Command, c)
		},
	}
}

var errCommandLimit = errors.New("the command's time limit")

func runCommand(ctx context.Context, o Options, env []string, limit time.Duration, command string, c tool.Call) (tool.Result, error) {
	shell, err := findShell(env)
	if err != nil {
		return tool.Result{}, err
	}
	runCtx, cancel := context.WithTimeoutCause(ctx, limit, errCommandLimit)
	defer cancel()
	out := &capture{half: o.BashOutput / 2, progress: c.Progress}
	cmd := exec.CommandContext(runCtx, shell, "-c", command)
	cmd.Dir = o.Root
	cmd.Env = append(slices.Clip(env), "STRANDLINE_IDEMPOTENCY_KEY="+c.IdempotencyKey)
	cmd.Stdout, cmd.Stderr = out, out // one pipe; stdin is the null device
	isolate(cmd)
	cmd.Cancel = func() error { return endGroup(cmd, false) }
	// Reached when the group does not end on SIGTERM, and when the command has ended but something
	// that it left in the background still holds the pipe.
	cmd.WaitDelay = o.BashGrace
	err = cmd.Run()
	if cmd.Process == nil {
		if _, serr := os.Stat(o.Root); serr != nil {
			err = fmt.Errorf("the workspace %s is gone", o.Root)
		}
		return tool.Result{}, fmt.Errorf("the command could not be started: %w", err)
	}
	ended := runCtx.Err() != nil
	if ended && err != nil {
		// Whoever of the group ignored SIGTERM. Its number is its own as long as it has a member.
		_ = endGroup(cmd, true)
	}
	var exit *exec.ExitError
	code := cmd.ProcessState.ExitCode()
	text, cut := out.text()
	note, failure := "", ""
	switch {
	case ended && errors.Is(context.Cause(runCtx), errCommandLimit):
		note, failure = fmt.Sprintf("stopped after its time limit of %v; all its processes were ended", limit), tool.CodeTimeout
	case ended && (err != nil || code != 0):
		note, failure = "cancelled; all its processes were ended", tool.CodeAborted
	case errors.Is(err, exec.ErrWaitDelay):
		note = fmt.Sprintf("exit code %d; a background process still runs, its further output is lost", code)
	case err == nil:
	case errors.As(err, &exit) && code >= 0:
		note, failure = fmt.Sprintf("exit code %d", code), CodeExit
	default:
		note, failure = strings.TrimPrefix(err.Error(), "exec: "), CodeExit
	}
	switch {
	case note == "" && text == "":
		text = "(no output, exit code 0)"
	case note != "" && text == "":
		text = "[" + note + "]"
	case note != "":
		text = strings.TrimSuffix(text, "\n") + "\n[" + note + "]"
	}
	r := tool.Text(text)
	r.IsError, r.Code = failure != "", failure
	r.Meta = meta(map[string]any{"exitCode": code, "bytes": out.total, "truncated": cut})
	return r, nil
}

// findShell returns the path of bash, or of sh when there is none, from the PATH of the environment
// that commands get.
func findShell(env []string) (string, error) {
	if !canRun {
		return "", errors.New("the bash tool is not supported on this operating system")
	}
	var dirs []string
	for _, kv := range env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = filepath.SplitList(list)
		}
	}
	dirs = append(dirs, "/bin", "/usr/bin", "/usr/local/bin")
	for _, name := range []string{"bash", "sh"} {
		for _, dir := range dirs {
			path := filepath.Join(dir, name)
			if fi, err := os.Stat(path); filepath.IsAbs(path) && err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", errors.New("there is no shell: neither bash nor sh is in PATH")
}

// capture keeps the head and the tail of what is written to it, in bounded memory.
type capture struct {
	half     int
	progress func(string)

	mu    sync.Mutex
	head  []byte
	tail  []byte // at most 2*half, the last half of which count
	total int64
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.total += int64(len(p))
	rest := p
	if room := c.half - len(c.head); room > 0 {
		n := min(room, len(rest))
		c.head = append(c.head, rest[:n]...)
		rest = rest[n:]
	}
	if len(rest) > c.half {
		rest = rest[len(rest)-c.half:]
		c.tail = c.tail[:0]
	}
	if len(c.tail)+len(rest) > 2*c.half {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-c.half:]...)
	}
	c.tail = append(c.tail, rest...)
	c.mu.Unlock()
	c.progress(clean(p))
	return len(p), nil
}

// text returns what was kept, valid UTF-8, and whether something is missing from it.
func (c *capture) text() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := c.tail
	if len(tail) > c.half {
		tail = tail[len(tail)-c.half:]
	}
	missing := c.total - int64(len(c.head)) - int64(len(tail))
	if missing == 0 {
		return clean(append(slices.Clip(c.head), tail...)), false
	}
	return fmt.Sprintf("%s\n[... %d of %d bytes of output are left out here ...]\n%s", clean(c.head), missing, c.total, clean(tail)), true
}

// clean makes valid text of output; some models refuse zero bytes too.
func clean(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}

// environment returns the variables for commands.
func environment(o Options) []string {
	var env []string
	for _, kv := range o.Env {
		name, value, _ := strings.Cut(kv, "=")
		if slices.Contains(o.KeepEnv, name) || !isSecret(name, value) {
			env = append(env, kv)
		}
	}
	// No pager and no question may wait for a terminal that is not there.
	return append(env, "PWD="+o.Root, "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0")
}

// isSecret guesses whether a variable holds a secret: by the words of its name, and by a password in a URL. A path is
// none, whatever its name: SSH_AUTH_SOCK and GOOGLE_APPLICATION_CREDENTIALS only say where something is.
func isSecret(name, value string) bool {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return true
		}
	}
	if filepath.IsAbs(value) {
		if _, err := os.Stat(value); err == nil {
			return false
		}
	}
	name = strings.ToUpper(name)
	for _, part := range []string{"SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	words := strings.FieldsFunc(name, func(c rune) bool { return c == '_' || c == '-' || c == '.' })
	for i, word := range words {
		switch word {
		case "TOKEN", "PASS", "PAT", "AUTH", "JWT", "COOKIE", "COOKIES", "BEARER", "CREDS", "DSN":
			return true
		case "PWD": // the shell's own are the whole name
			return len(words) > 1
		case "KEY":
			return i == len(words)-1 || i > 0 && (words[i-1] == "ACCESS" || words[i-1] == "PRIVATE")
		}
		if strings.HasSuffix(word, "TOKEN") || strings.HasSuffix(word, "PWD") && word != "PWD" && word != "OLDPWD" {
			return true
		}
	}
	return false
}
