package scenario

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
)

// bigParent makes the session of TestP13 and leaves it open for writing: 50 turns, and one that waits for a person.
// Each answer tells usage for 2 cents. images are the blobs that the first ten and the other turns show.
func bigParent(b *box, id string) (a *author, images [2][]string) {
	t := b.t
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := createAuthor(b.store, id, b.ws, 1_700_000_000_000)
	check(err)
	check(a.add(session.Draft{Type: session.TypeSettings, Data: session.Settings{Approval: "ask",
		Rules: []session.Rule{{Tool: "bash", Prefix: "echo fine", Action: "allow"}, {Tool: "bash", Prefix: "echo forbidden", Action: "deny", Reason: "no shell here"}}}}))
	noise := rand.NewChaCha8([32]byte{13})
	for turn := 1; turn <= 50; turn++ {
		a.turn = turn
		m := message.User(fmt.Sprintf("u-%d", turn), fmt.Sprintf("question %d", turn))
		if turn%5 == 0 { // ten images of 4 MB
			pixels := make([]byte, 4<<20)
			_, _ = noise.Read(pixels)
			name, err := a.st.PutBlob(context.Background(), pixels)
			check(err)
			m.Content = append(m.Content, message.Block{Type: message.Image, Blob: name, MediaType: "image/png"})
			images[min(1, turn/11)] = append(images[min(1, turn/11)], name)
		}
		answer := modelSays(turn, 1, fmt.Sprintf("answer %d ", turn)+strings.Repeat(fmt.Sprint(turn, " "), 200<<10/len(fmt.Sprint(turn, " "))))
		said := answer.Data.(session.AssistantMessage)
		said.Usage = &message.Usage{InputTokens: 15_000, OutputTokens: 500}
		answer.Data = said
		drafts := []session.Draft{turnStart(turn), stepStart(turn, 1), {Type: session.TypeUserMessage, Op: session.Append(), Data: m}, answer, stepEnd(turn, 1), turnEnd(turn, session.ReasonCompleted)}
		if turn == 3 { // before the place of the forks, and never claimed
			for i := range 2 {
				drafts = append(drafts, session.Draft{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{
					Target: session.NextTurn, Start: i, Inserted: []message.Message{message.User(fmt.Sprintf("q-%d", i), "queued")}}})
			}
		}
		check(a.add(drafts...))
	}
	check(a.add(turnStart(51), stepStart(51, 1), userSays("u-51", "dare"), modelSays(51, 1, "", "c51"),
		session.Draft{Type: session.TypeApprovalAsked, Data: session.ApprovalAsked{AskID: "a51", Turn: 51, Step: 1, CallID: "c51", Name: "bash", Subject: "echo c51"}}))
	return a, images
}

// state folds a stored session.
func (b *box) state(id string) session.State {
	b.t.Helper()
	st, err := openStore(b.store)
	if err != nil {
		b.t.Fatal(err)
	}
	defer st.Close()
	snap, err := st.Read(context.Background(), session.ID(id))
	if err != nil {
		b.t.Fatal(err)
	}
	defer snap.Close()
	s, err := session.Fold(snap.Header, session.Core(), snap.Prefix)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// size is what the files below a directory hold.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			info, err = d.Info()
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestP13_ForkInBothDirections: forks are pointers, cost nothing, have nothing of each other, and go on when what they
// came from is deleted.
func TestP13_ForkInBothDirections(t *testing.T) {
	b := newBox(t)
	parent, images := bigParent(b, "parent")
	before := size(t, b.store)
	if before < 49e6 {
		t.Fatalf("the parent has only %d bytes", before)
	}

	cut := int64(0) // the end of the tenth turn: message 20
	for _, e := range b.log("parent").recs {
		if e.Type == "turn/end" && data[struct{ Turn int }](t, e).Turn == 0 && strings.Contains(string(e.Data), `"turn":10,`) {
			cut = e.Seq
		}
	}
	var forks []string
	for range 3 { // while its writer holds it
		f := decode[forkResult](t, b.ok("fork", "parent", "--at", fmt.Sprint(cut), "--json").out)
		if f.Parent != "parent" || f.Seq != cut {
			t.Fatalf("%+v", f)
		}
		forks = append(forks, f.ID)
	}
	add := func(a *author, mark string) {
		t.Helper()
		if mark != "parent" { // whose turn waits
			if err := a.say("only in "+mark, "yes, "+mark); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			if err := a.add(titled(fmt.Sprint(mark, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	extend := func(id, mark string) {
		t.Helper()
		a, err := resumeAuthor(b.store, id, 1_700_000_900_000)
		if err != nil {
			t.Fatal(err)
		}
		add(a, mark)
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
	}
	add(parent, "parent")
	for i, id := range forks {
		extend(id, fmt.Sprintf("fork %d", i))
		add(parent, "parent")
	}
	grand := decode[forkResult](t, b.ok("fork", forks[0], "--json").out)
	if grand.Parent != forks[0] {
		t.Fatalf("%+v", grand)
	}
	extend(grand.ID, "grandchild")
	add(parent, "parent")
	if growth := size(t, b.store) - before; growth > 1e6 {
		t.Errorf("the forks cost %d bytes", growth)
	}

	// What is whose.
	all := append(slices.Clone(forks), grand.ID)
	marks := map[string][]string{"parent": {}, grand.ID: {"fork 0", "grandchild"}}
	for i, id := range forks {
		marks[id] = []string{fmt.Sprintf("fork %d", i)}
	}
	views := map[string]string{}
	for id, mine := range marks {
		view := b.ok("show", id, "--view", "script").out
		views[id] = view
		for _, m := range []string{"fork 0", "fork 1", "fork 2", "grandchild"} {
			if strings.Contains(view, "only in "+m) != slices.Contains(mine, m) {
				t.Errorf("%s shows what belongs to %s, or does not", id, m)
			}
		}
		if !strings.Contains(view, "question 10") || strings.Contains(view, "question 11") != (id == "parent") {
			t.Errorf("%s is not cut where it should be", id)
		}
	}
	for id := range marks {
		st, owner := b.state(id), id == "parent"
		if n := len(st.Queue(session.NextTurn)); (n == 2) != owner || n != 0 && !owner {
			t.Errorf("%s has %d queued messages", id, n)
		}
		if n := len(st.Asks()); (n == 1) != owner || n != 0 && !owner {
			t.Errorf("%s has %d open questions", id, n)
		}
		if set := st.Settings(); set.Approval != "ask" || len(set.Rules) != 2 {
			t.Errorf("%s has the settings %+v", id, set)
		}
	}
	for _, r := range decodeLines[listed](t, strings.Join(slices.DeleteFunc(strings.SplitAfter(b.ok("ls", "--any-project", "--json").out, "\n"),
		func(l string) bool { return !strings.HasPrefix(l, `{"id"`) }), "")) {
		if want := r.ID == "parent"; (r.Activity == "running" || r.Activity == "waiting") != want || len(r.Waiting) > 0 != want {
			t.Errorf("ls says of %s: %+v", r.ID, r)
		}
	}

	// A tree of 50 answers, and of one more in each fork without usage told: what is shared counts once.
	price := func(string, string) (llm.Price, bool) { return llm.Price{Input: 1, Output: 10}, true } // dollars for a million
	var down []session.State
	for _, id := range all {
		down = append(down, b.state(id))
	}
	tree := meter.Total(b.state("parent"), price)
	for _, st := range down {
		tree.AddOwn(price, st)
	}
	if tree.Usage == nil || tree.Usage.InputTokens != 50*15_000 || tree.USD == nil || math.Abs(*tree.USD-1) > 1e-9 {
		t.Errorf("the tree cost %+v", tree)
	}
	if _, own := down[0].Usage(); own != nil {
		t.Errorf("the first fork spent %+v by itself", own)
	}
	if total, _ := down[0].Usage(); total == nil || total.InputTokens != 10*15_000 {
		t.Errorf("the first fork stands on %+v", total)
	}

	// A rule of the parent's holds in the fork.
	got := b.run("try", []line{use(bash("echo fine"), bash("echo forbidden >> "+b.file("forbidden"))), say("tried")}, "--session", forks[1], "--approve", "never-ask")
	if view := b.ok("show", forks[1], "--view", "script").out; !strings.Contains(view, "fine\\n") || !strings.Contains(view, "no shell here") {
		t.Errorf("%+v, and the view is %s", got, clip(view[max(0, len(view)-2000):]))
	}
	if _, err := os.Stat(b.file("forbidden")); err == nil {
		t.Error("a call ran that the parent's rules forbid")
	}
	views[forks[1]] = b.ok("show", forks[1], "--view", "script").out

	// The parent goes, the forks stay.
	add(parent, "parent")
	if err := parent.close(); err != nil {
		t.Fatal(err)
	}
	if r := b.ok("rm", "parent"); !strings.Contains(r.out, forks[0]) || !strings.Contains(r.out, grand.ID) {
		t.Errorf("rm does not name the forks: %v", r)
	}
	whole := func(step string) {
		t.Helper()
		for _, id := range all {
			if v := b.ok("show", id, "--view", "script").out; v != views[id] {
				t.Errorf("%s: %s has another view", step, id)
			}
			if d := b.diagnose(id, 0); d.State != "ok" || len(d.Problems) > 0 {
				t.Errorf("%s: %+v", step, d)
			}
		}
	}
	whole("in the trash")
	full := size(t, b.store)
	b.ok("purge", "--yes", "parent")
	whole("purged")
	if freed := full - size(t, b.store); freed < 32e6 {
		t.Errorf("the purge freed only %d bytes", freed)
	}
	st, err := openStore(b.store)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i, names := range images {
		for _, name := range names {
			img, err := st.GetBlob(t.Context(), name)
			if there := err == nil && len(img) == 4<<20; there != (i == 0) {
				t.Errorf("an image of part %d: %d bytes, %v", i, len(bytes.TrimSpace(img)), err)
			}
		}
	}
	if r := b.strand("show", "parent"); r.code != 5 {
		t.Errorf("the parent is shown: %v", r)
	}
	extend(grand.ID, "later")
	if r := b.run("go on", []line{say("gladly")}, "--session", forks[2]); r.Text != "gladly" {
		t.Errorf("%+v", r)
	}
}
