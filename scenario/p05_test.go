package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// healthy stores a session that is like one of the command's: a title, and a turn.
func (b *box) healthy(st store.Taker, id string, at int64) {
	b.t.Helper()
	s, err := session.New(session.Header{Format: session.Format, ID: session.ID(id), CreatedAt: at, Kind: session.KindRoot, Cwd: b.ws, Project: b.ws},
		session.Seed{}, session.Env{Now: func() int64 { return at }})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := s.AppendAll(nil, turnStart(1), stepStart(1, 1), userSays("u-1", "question of "+id), modelSays(1, 1, "answer"),
		stepEnd(1, 1), turnEnd(1, session.ReasonCompleted), titled("about "+id)); err != nil {
		b.t.Fatal(err)
	}
	events, _, err := s.From(0)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := st.Take(context.Background(), s.Header(), session.Events(events).Range(0, session.Seq(len(events)))); err != nil {
		b.t.Fatal(err)
	}
}

// TestP5_OneRottenApple: five sessions that nobody can read, in five ways, are five rows with a reason; the thousand
// beside them are none the worse.
func TestP5_OneRottenApple(t *testing.T) {
	const n = 1000
	b := newBox(t)
	base := int64(1_700_000_000_000)
	st, err := openStore(b.store)
	if err != nil {
		t.Fatal(err)
	}
	var want []string // newest first
	for i := range n {
		id := fmt.Sprintf("s%03d-%04d", (i*37)%n, i)
		b.healthy(st, id, base+int64(i)*60_000)
		want = append(want, id)
	}
	slices.Reverse(want)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	var uid int
	if os.Getuid() == 0 {
		uid = 65534
		own(t, b.dir, uid)
	}
	if got := ids(decodeRows(t, b.okAs(uid, "ls", "--any-project", "--json"))); !slices.Equal(got, want) {
		t.Fatalf("%d rows before anything is rotten", len(got))
	}

	// What is rotten is newer than all the others, as far as anybody can tell.
	rotten := map[string]string{}
	dir := func(id, reason string) string {
		rotten[id] = reason
		d := filepath.Join(b.store, "sessions", id)
		copyTree(t, filepath.Join(b.store, "sessions", want[0]), d)
		return filepath.Join(d, "session.json")
	}
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(dir("rotten-empty", "empty"), nil)
	header := dir("rotten-directory", "not a file")
	if err := os.Remove(header); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(header, 0o700); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 4096)
	r := rand.NewChaCha8([32]byte{5})
	_, _ = r.Read(noise)
	put(dir("rotten-noise", "no sum at the end"), noise)
	secret := dir("rotten-secret", "permission denied")
	dir("rotten-future", "newer")
	if uid != 0 {
		own(t, filepath.Join(b.store, "sessions"), uid)
	}
	newerSession(b, "rotten-future")
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}

	rows := decodeRows(t, b.okAs(uid, "ls", "--any-project", "--json"))
	if len(rows) != n+5 {
		t.Fatalf("%d rows", len(rows))
	}
	var good []string
	for _, r := range rows {
		reason, bad := rotten[r.ID]
		switch {
		case !bad && r.State == "ok":
			good = append(good, r.ID)
		case !bad || r.State == "ok" || !strings.Contains(r.Reason, reason):
			t.Errorf("%s is %s: %q, want %q", r.ID, r.State, r.Reason, reason)
		}
		if strings.Contains(r.Reason, "\n") {
			t.Errorf("the reason has several lines: %q", r.Reason)
		}
	}
	if !slices.Equal(good, want) {
		t.Errorf("the order of the healthy ones is another one")
	}
	if text := b.okAs(uid, "ls", "--any-project"); strings.Count(text, "\n") != n+5 || !strings.Contains(text, "permission denied") {
		t.Errorf("a person sees %d lines", strings.Count(text, "\n"))
	}

	// All pages are one list.
	var paged []string
	for cursor := ""; ; {
		lines := strings.SplitAfter(b.okAs(uid, "ls", "--any-project", "--json", "--limit", "300", "--cursor", cursor), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
		end := decode[struct {
			Next  string `json:"next"`
			Total int    `json:"total"`
		}](t, lines[len(lines)-1])
		if end.Total != n+5 {
			t.Fatalf("a page says that there are %d", end.Total)
		}
		paged = append(paged, ids(decodeLines[row](t, strings.Join(lines[:len(lines)-1], "")))...)
		if cursor = end.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(paged, ids(rows)) {
		t.Errorf("paging gives %d rows in another order, or others", len(paged))
	}

	// "The last one" is the last that can be gone on with, and each of the rotten ones says what it has.
	cmd := b.runArgs("go on", []line{say("further")}, "--continue", "--output", "json")
	if got := decode[runResult](t, b.okAs(uid, cmd...)); got.SessionID != want[0] || got.Turn != 2 {
		t.Errorf("continue went on with %+v, want %s", got, want[0])
	}
	for id, reason := range rotten {
		if r := b.as(uid, "show", id, "--store", b.store); r.code == 0 && id != "rotten-future" || r.code != 0 && !strings.Contains(r.err, reason) {
			t.Errorf("%v", r)
		}
	}
}

// okAs is ok as another user.
func (b *box) okAs(uid int, args ...string) string {
	b.t.Helper()
	r := b.as(uid, append(args, "--store", b.store)...)
	if r.code != 0 {
		b.t.Fatalf("want success: %v", r)
	}
	return r.out
}

// own gives everything below dir to another user.
func own(t *testing.T, dir string, uid int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(p, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// decodeRows reads what `ls --json` printed.
func decodeRows(t *testing.T, out string) []row {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(out, "\n"), "\n")
	return decodeLines[row](t, strings.Join(lines[:len(lines)-1], ""))
}
