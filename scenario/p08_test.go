package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// row is a line of `ls --json`.
type row struct {
	ID           string `json:"id"`
	Title        string `json:"title"`
	LastActivity int64  `json:"lastActivity"`
	CreatedAt    int64  `json:"createdAt"`
	State        string `json:"state"`
	Reason       string `json:"reason"`
	Activity     string `json:"activity"`
	Turns        int    `json:"turns"`
	Events       int64  `json:"events"`
	Holder       *struct {
		PID     int    `json:"pid"`
		Host    string `json:"host"`
		Program string `json:"program"`
		Since   string `json:"since"`
	} `json:"holder"`
}

func (b *box) list(args ...string) []row {
	b.t.Helper()
	out := b.ok(append([]string{"ls", "--any-project", "--json"}, args...)...).out
	lines := strings.SplitAfter(strings.TrimSuffix(out, "\n"), "\n")
	if !strings.Contains(lines[len(lines)-1], `"total"`) {
		b.t.Fatalf("the list does not end in its totals: %s", lines[len(lines)-1])
	}
	return decodeLines[row](b.t, strings.Join(lines[:len(lines)-1], ""))
}

func ids(rows []row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

// TestP8_LookingIsNotTouching: a list of 50 sessions keeps its order, and its files, whatever one looks at.
func TestP8_LookingIsNotTouching(t *testing.T) {
	b := newBox(t)
	const n = 50
	base := int64(1_700_000_000_000)
	var want []string // newest first
	for i := range n {
		// Ids and creation run against the order of activity, so that neither can stand in for it.
		id := fmt.Sprintf("s%02d-%04d", (i*37)%n, i)
		a, err := createAuthor(b.store, id, b.ws, base+int64(n-i)*1000)
		if err != nil {
			t.Fatal(err)
		}
		a.now = base + int64(i+1)*3_600_000
		if err := a.say("question of "+id, "answer"); err != nil {
			t.Fatal(err)
		}
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
		want = append([]string{id}, want...)
	}
	oldest, second := want[n-1], want[n-2]
	all := snap(t, b.store)
	sessions := func() snapshot { return snap(t, b.store).only("sessions") }
	before := sessions()
	unchanged := func(step string) {
		t.Helper()
		if d := before.diff(sessions()); d != "" {
			t.Errorf("%s changed the sessions:\n%s", step, d)
		}
		if len(b.sessionIDs()) != n {
			t.Errorf("%s left %d sessions", step, len(b.sessionIDs()))
		}
	}
	ordered := func(step string) {
		t.Helper()
		rows := b.list()
		if got := ids(rows); !slices.Equal(got, want) {
			t.Errorf("%s: the order is\n%v, want\n%v", step, got, want)
		}
		for i, r := range rows {
			if at := base + int64(n-i)*3_600_000; r.LastActivity != at {
				t.Errorf("%s: %s was last active at %d, want %d", step, r.ID, r.LastActivity, at)
			}
		}
	}

	ordered("(1) list")
	unchanged("(1) list")
	for _, id := range want[10:15] {
		b.ok("show", id)
		b.ok("show", id, "--stat")
	}
	ordered("(2) preview five")
	unchanged("(2) preview five")
	if d := all.diff(snap(t, b.store)); d != "" {
		t.Errorf("list and preview changed the store:\n%s", d)
	}

	r := b.strandIn("", "chat", oldest, "--script", b.script(say("unused")))
	_, printed, _ := strings.Cut(strings.TrimSpace(r.out), "session ")
	if r.code != 0 || printed != oldest {
		t.Errorf("(3) quitting does not print the id of the session: %v", r)
	}
	ordered("(3) resume and quit")
	unchanged("(3) resume and quit")

	// The list in a chat, and going from one session to others without a word.
	r = b.strandIn("/sessions\n/sessions 3\n/sessions question "+want[7]+"\n/sessions "+want[9]+"\n/quit\n", "chat", oldest, "--script", b.script(say("unused")))
	for _, text := range []string{"20 of 50", "  3 ", "now in " + want[2] + ",", "now in " + want[7] + ",", "left " + want[7] + "\n", "now in " + want[9] + ",", "session " + want[9] + "\n"} {
		if r.code != 0 || !strings.Contains(r.out+r.err, text) {
			t.Errorf("(3) no %q in a chat that goes from session to session: %v", text, r)
		}
	}
	ordered("(3) going from session to session")
	unchanged("(3) going from session to session")

	b.ok("title", second, "a new name")
	ordered("(4) rename")
	after := sessions()
	for k := range before {
		if before[k] != after[k] && !strings.HasPrefix(k, filepath.Join("sessions", second)) {
			t.Errorf("(4) renaming %s changed %s", second, k)
		}
	}
	if i := slices.IndexFunc(b.list(), func(r row) bool { return r.ID == second && r.Title == "a new name" }); i != n-2 {
		t.Errorf("(4) the renamed session is row %d, want %d", i, n-2)
	}

	stamp := time.UnixMilli(base)
	err := filepath.WalkDir(b.store, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(p, stamp, stamp)
	})
	if err != nil {
		t.Fatal(err)
	}
	before = sessions()
	ordered("(5) all mtimes the same")
	unchanged("(5) all mtimes the same")

	r = b.strandIn("", "chat", "--script", b.script(say("unused")), "--cwd", b.ws)
	if r.code != 0 {
		t.Errorf("(6) start and leave: %v", r)
	}
	ordered("(6) start and leave")
	unchanged("(6) start and leave")

	// To the trash and back: nothing moves, and what is looked at there stays as it is.
	middle := want[n/2]
	b.ok("rm", middle)
	if got := ids(b.list()); !slices.Equal(got, slices.Delete(slices.Clone(want), n/2, n/2+1)) {
		t.Errorf("(7) rm: the order is %v", got)
	}
	trashed := snap(t, b.store)
	if r := b.ok("ls", "--trash", "--any-project", "--json"); !strings.Contains(r.out, middle) {
		t.Errorf("(7) the trash does not show it: %v", r)
	}
	if r := b.strand("show", middle); r.code != 5 || !strings.Contains(r.err, "strand restore "+middle) {
		t.Errorf("(7) show of what is in the trash: %v", r)
	}
	b.ok("show", want[0])
	if d := trashed.diff(snap(t, b.store)); d != "" {
		t.Errorf("(7) looking at the trash changed the store:\n%s", d)
	}
	b.ok("restore", middle)
	ordered("(7) rm and restore")
	before["sessions"] = sessions()["sessions"] // the directory itself, of which a name was taken and given back
	unchanged("(7) rm and restore")

	// The id that was printed on quitting opens the same session.
	if res := b.run("hello again", []line{say("hello")}, "--session", printed); res.SessionID != oldest || res.Turn != 2 {
		t.Errorf("the printed id opened %+v", res)
	}
	if got := b.list()[0].ID; got != oldest {
		t.Errorf("after a real turn the first of the list is %s, want %s", got, oldest)
	}
}
