package tool

import (
	"context"
	"testing"
)

func TestAliases(t *testing.T) {
	set, err := NewSet(Definition{
		Name:       "edit",
		Parameters: []byte(`{"type":"object","properties":{"path":{"type":"string"},"new":{"type":"string"}},"required":["path"],"additionalProperties":false}`),
		Aliases:    map[string]string{"file_path": "path", "filePath": "path"},
		Run:        func(context.Context, Call) (Result, error) { return Text("ok"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ in, want string }{
		{`{"path":"a"}`, `{"path":"a"}`},
		{`{"file_path":"a","new":"x \u0041"}`, `{"path":"a","new":"x \u0041"}`},
		{`{"path":"file_path"}`, `{"path":"file_path"}`},
		{`{"path":"a","file_path":"b"}`, ""}, // both: which one is meant is the model's to say
		{`{"filePath":"a","file_path":"b"}`, ""},
		{`{"file_path":1}`, ""},
		{`["file_path"]`, ""},
		{`{"file_path":`, ""},
	} {
		p, bad := set.Prepare("c", "edit", tt.in)
		if tt.want == "" {
			if bad == nil || bad.Code != CodeInvalidArgs {
				t.Errorf("%s: accepted as %s", tt.in, p.Arguments())
			}
			continue
		}
		if bad != nil {
			t.Errorf("%s: %s", tt.in, bad.Content[0].Text)
		} else if got := string(p.Arguments()); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.in, got, tt.want)
		}
	}
}
