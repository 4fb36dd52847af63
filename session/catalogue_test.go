package session

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/events.md")

// docs/events.md is the vocabulary as the registry knows it.
func TestCatalogueIsCurrent(t *testing.T) {
	const page = "../docs/events.md"
	want := `# The events of a session log

This page is generated from the registry of package session: run ` + "`go test ./session -run Catalogue -update`" + `.

A log type produces no message. A surface type puts a message on the surface or replaces some; a control type
rearranges the surface. Packages that own further types (compaction, delegation, hooks, retries) declare them in
the same way; the set is open. Whoever reads a log keeps types and members that it does not know.

` + Core().Catalogue()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: run this test with -update", page)
	}
}

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
