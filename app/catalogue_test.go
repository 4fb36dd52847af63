package app

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/events.md")

// docs/events.md is the vocabulary as the registry knows it.
func TestCatalogueIsCurrent(t *testing.T) {
	const page = "../docs/events.md"
	a, err := Open(Options{Store: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	want := `# The events of a session log

This page is generated from the registry of the program: run ` + "`go test ./app -run Catalogue -update`" + `.

A log type produces no message. A surface type puts a message on the surface or replaces some; a control type
rearranges the surface. Each type is declared by the package
that owns it; the set is open. Whoever reads a log keeps types and members that it does not know.

` + a.Registry.Catalogue()
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
