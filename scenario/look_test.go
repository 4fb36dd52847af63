package scenario

import (
	"maps"
	"strings"
	"testing"
)

// TestLookingIsNotTouching runs everything that only looks, over sessions in several conditions, and
// compares every file, folder listing and mtime of the store.
func TestLookingIsNotTouching(t *testing.T) {
	b := newBox(t)
	whole := b.run("first", b.threeTurns()[1:4]).SessionID
	b.run("second", []line{say("more")}, "--session", whole)
	fork := decode[forkResult](t, b.ok("fork", whole, "--json").out).ID

	// One that died in the middle of a call.
	h := newHolder(b)
	h.p.kill()
	h.p.wait()
	h.open()

	script := b.script(say("unused"))
	before := snap(t, b.store)
	look := func(code int, args ...string) {
		t.Helper()
		r := b.strandIn("", args...)
		if r.code != code {
			t.Errorf("want exit code %d: %v", code, r)
		}
		now := snap(t, b.store)
		if args[0] == "chat" {
			// Who opens a session announces it in live/, takes that back, and removes what a dead holder
			// announced: that folder is no part of any session.
			live, was := now.only("live"), before.only("live")
			for k := range was {
				delete(before, k)
			}
			maps.Copy(before, live)
		}
		if d := before.diff(now); d != "" {
			t.Errorf("strand %s changed the store:\n%s", strings.Join(args, " "), d)
		}
	}
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"ls", "--all", "--any-project"}, {"ls", "--any-project", "--limit", "1", "--json"},
		{"ls", "--project", b.ws}, {"version"}, {"doctor"}, {"doctor", "--json"}, {"help"}, {"help", "run"},
	} {
		look(0, args...)
	}
	for _, id := range []string{whole, fork, h.id, whole[:8]} {
		for _, args := range [][]string{
			{"show", id}, {"show", id, "--json"}, {"show", id, "--events"}, {"show", id, "--events", "--from", "2", "--to", "5"},
			{"show", id, "--view", "script"}, {"show", id, "--view", "openai", "--at", "6"},
			{"show", id, "--stat"}, {"show", id, "--stat", "--json"}, {"show", id, "--stat", "--at", "4"},
			{"title", id}, {"doctor", id}, {"doctor", id, "--json"},
			{"chat", id, "--script", script},
		} {
			look(0, args...)
		}
		look(2, "run", "prompt", "--session", id, "--script", script, "--no-such-flag")
		look(2, "run", "--session", id, "--script", script)
		look(2, "run", "prompt", "--session", id, "--script", script, "--approve", "whatever")
	}
	look(0, "chat", "--script", script, "--cwd", b.ws)

	// Looking at a store that is not there makes none.
	none := b.withStore(b.dir + "/none")
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"doctor"}, {"chat", "--script", script}} {
		if r := none.strandIn("", args...); r.code != 0 {
			t.Errorf("an empty store: %v", r)
		}
	}
	if s := snap(t, none.store); len(s) > 0 {
		t.Errorf("looking at a store that is not there made %v", s)
	}
}
