package session

import "testing"

// Every core type is described, and folded only if it says so.
func TestKindsAreComplete(t *testing.T) {
	for _, k := range Core().Kinds() {
		if k.Doc == "" || k.Owner == "" {
			t.Errorf("%s: no owner or no description", k.Type)
		}
	}
	for _, bad := range [][]Kind{{{Type: "x"}}, {{Type: "/x"}}, {{Type: "x/"}}, {{Type: TypeTitle}}, {{Type: "a/b"}, {Type: "a/b"}}} {
		if _, err := NewRegistry(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}
