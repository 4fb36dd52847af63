package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
)

func todoTool() tool.Definition {
	return tool.Definition{
		Name: "todo_write",
		Description: "Keeps the list of what is to do, which the user sees. Give the whole list each time; it replaces the last one. " +
			"Use it for work of three or more steps: one item in_progress at a time, completed as soon as it is done.",
		Parameters: jsontext.Value(`{"type":"object","properties":{"todos":{"type":"array","maxItems":100,"items":{` +
			`"type":"object","properties":{` +
			`"content":{"type":"string","minLength":1,"description":"What is to do"},` +
			`"status":{"type":"string","enum":["pending","in_progress","completed"]}},` +
			`"required":["content","status"],"additionalProperties":false}}},` +
			`"required":["todos"],"additionalProperties":false}`),
		ReadOnly: true, Idempotent: true,
		Run: func(_ context.Context, c tool.Call) (tool.Result, error) {
			type todo struct {
				Content string `json:"content"`
				Status  string `json:"status"`
			}
			var a struct {
				Todos []todo `json:"todos"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			marks := map[string]string{"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
			var out strings.Builder
			fmt.Fprintf(&out, "The list has %s now.\n", plural(len(a.Todos), "item"))
			for _, t := range a.Todos {
				fmt.Fprintf(&out, "%s %s\n", marks[t.Status], t.Content)
			}
			r := tool.Text(out.String())
			r.Records = []tool.Record{{Type: "todo/write", Data: meta(a)}}
			return r, nil
		},
	}
}
