package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// PluginProject is the source plugin of the message that holds the project's AGENTS.md files.
const PluginProject = "agents-md"

const (
	projectFile     = "AGENTS.md"
	maxProjectBytes = 64 << 10 // of all files together, in the message
)

// projectContext knows which project context the model sees now.
type projectContext struct {
	known bool
	gen   uint64 // of the surface when it was looked at
	text  string // of the newest such message on the surface
}

// message returns the message that states the project's context, if the model does not see the same already.
func (p *projectContext) message(a *Agent) (message.Message, bool, error) {
	set := a.s.State().Settings().Cwd
	def(&set, a.s.Header().Cwd)
	text := projectText(set, a.opts.ReadFile)
	seen, err := p.seen(a)
	if err != nil || text == seen {
		return message.Message{}, false, err
	}
	if text == "" {
		text = "The project's AGENTS.md files are gone; their instructions no longer hold."
		if text == seen {
			return message.Message{}, false, nil
		}
	}
	p.text = text
	return message.Message{
		ID: a.opts.NewID(), Role: message.RoleUser, Content: []message.Block{message.TextBlock(text)},
		Source: message.Source{Kind: message.SourcePlugin, Plugin: PluginProject},
	}, true, nil
}

// seen returns the text of the newest such message on the surface. The surface is searched once per life
// and after something was hidden or replaced; else the answer is known.
func (p *projectContext) seen(a *Agent) (string, error) {
	items, st, err := a.s.Surface()
	if err != nil {
		return "", err
	}
	if p.known && p.gen == st.Generation() {
		return p.text, nil
	}
	p.known, p.gen, p.text = true, st.Generation(), ""
	for _, it := range slices.Backward(items) {
		if it.Type == session.TypeUserMessage && it.Message.Source.Plugin == PluginProject {
			p.text = it.Message.PlainText()
			break
		}
	}
	return p.text, nil
}

// projectText reads the files from cwd upwards and puts the outermost first, so that the nearest has the
// last word. A file that is there and cannot be read is said to be so.
func projectText(cwd string, read func(string) ([]byte, error)) string {
	if cwd == "" {
		return ""
	}
	var parts []string
	for dir := filepath.Clean(cwd); ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, projectFile)
		switch data, err := read(path); {
		case err == nil:
			if text := strings.TrimSpace(strings.ReplaceAll(validText(string(data)), "\x00", "")); text != "" {
				parts = append(parts, fmt.Sprintf("## %s\n\n%s", path, text))
			}
		case !errors.Is(err, fs.ErrNotExist):
			parts = append(parts, fmt.Sprintf("## %s\n\n(cannot be read)", path))
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Reverse(parts)
	text := "Instructions of this project, from its AGENTS.md files. Where two disagree, the last one holds.\n\n" + strings.Join(parts, "\n\n")
	return validText(tool.Cut(text, maxProjectBytes, "read the files to see the rest"))
}
