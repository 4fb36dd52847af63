package builtin

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/recall"
	"github.com/strandline-dev/strandline/subagent"
)

var update = flag.Bool("update", false, "rewrite docs/tools.md")

// docs/tools.md is what the model is told.
func TestToolsPageIsCurrent(t *testing.T) {
	const page = "../../docs/tools.md"
	defs, err := New(Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defs = append(defs, recall.Definition(recall.Options{}), subagent.Definition())
	var b strings.Builder
	b.WriteString("# The built-in tools\n\nThis page is generated from package tool/builtin: run " +
		"`go test ./tool/builtin -run ToolsPage -update`.\n\nWithout `--approve` a `run` allows what is read-only. " +
		"`auto-edit` allows changes to files inside the workspace, `yolo` allows everything.\n")
	for _, d := range defs {
		kind := "asks for approval"
		switch {
		case d.ReadOnly:
			kind = "read-only"
		case d.Edits != nil:
			kind = "edits files: allowed by `auto-edit` inside the workspace"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s.\n\n", d.Name, d.Description, strings.ToUpper(kind[:1])+kind[1:])
		var schema struct {
			Required   []string `json:"required"`
			Properties map[string]struct {
				Type        any    `json:"type"`
				Description string `json:"description"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(d.Parameters, &schema); err != nil {
			t.Fatal(err)
		}
		b.WriteString("| argument | type | | also understood as |\n|---|---|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			p := schema.Properties[name]
			text := p.Description
			if slices.Contains(schema.Required, name) {
				text = strings.TrimSpace("required. " + text)
			}
			var also []string
			for alias, right := range d.Aliases {
				if right == name {
					also = append(also, "`"+alias+"`")
				}
			}
			slices.Sort(also)
			fmt.Fprintf(&b, "| `%s` | %v | %s | %s |\n", name, p.Type, strings.ReplaceAll(text, "|", `\|`), strings.Join(also, ", "))
		}
		for alias, right := range d.Aliases {
			if _, ok := schema.Properties[right]; !ok {
				t.Errorf("%s: the alias %s stands for %s, which is no argument", d.Name, alias, right)
			}
			if _, ok := schema.Properties[alias]; ok {
				t.Errorf("%s: %s is an argument and an alias", d.Name, alias)
			}
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s is out of date: run this test with -update", page)
	}
}
