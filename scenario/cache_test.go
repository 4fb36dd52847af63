package scenario

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// folds are the files of the checkpoints below cache/, as they are found.
func (b *box) folds(id string) []string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.store, "cache", id, "*.fold"))
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// manyLives makes a store of sessions of every sort, each long enough for checkpoints and with some, and returns their ids.
func manyLives(b *box) (ids []string) {
	t := b.t
	b.longTalk("talk-plain", 100) // 300 events
	b.ok("title", "talk-plain", "the first")
	b.run("more", []line{use(bash("echo did it")), say("well")}, "--session", "talk-plain")

	b.longTalk("talk-compacted", 100)
	b.ok(b.compactArgs("talk-compacted", summary(say("what was said so far")))...)
	b.ok("title", "talk-compacted", "shorter now")

	b.longTalk("talk-packed", 120)
	for i := range 3 {
		b.ok("title", "talk-packed", fmt.Sprint("life ", i))
	}
	b.ok("store", "pack", "talk-packed")

	b.longTalk("talk-lost", 100)
	b.edit("talk-lost", 0, func(text []byte, l storedLog) []byte { text[l.recs[50].off+40] ^= 1; return text })
	if r := b.strand("doctor", "talk-lost", "--repair"); r.code != 0 {
		t.Fatal(r)
	}
	b.ok("title", "talk-lost", "with a mark")

	fork := decode[forkResult](t, b.ok("fork", "talk-plain", "--json").out).ID
	b.run("of its own", []line{say("yes")}, "--session", fork)
	young := decode[forkResult](t, b.ok("fork", fork, "--json").out).ID
	old := decode[forkResult](t, b.ok("fork", "talk-plain", "--at", "59", "--json").out).ID
	for _, id := range []string{"talk-plain", "talk-compacted", "talk-packed", "talk-lost"} {
		if len(b.folds(id)) == 0 {
			t.Fatalf("%s has no checkpoint", id)
		}
	}
	return []string{"talk-plain", "talk-compacted", "talk-packed", "talk-lost", fork, young, old}
}

// looks are the commands that look at a session.
func looks(id string) [][]string {
	return [][]string{
		{"show", id}, {"show", id, "--events"}, {"show", id, "--stat", "--json"}, {"show", id, "--view", "openai"},
		{"show", id, "--view", "script", "--at", "40"}, {"show", id, "--events", "--from", "45", "--to", "60"},
		{"export", id, "--format", "openai", "--view"}, {"export", id}, {"title", id},
	}
}

// answer is what a command says, without the store that it says it of.
func (b *box) answer(args ...string) string {
	r := b.strand(args...)
	return strings.ReplaceAll(fmt.Sprintf("exit %d\n%s%s", r.code, r.out, r.err), b.store, "STORE")
}

// tailed is what a follower of id prints up to its end, the event last.
func (b *box) tailed(id string, last int64) string {
	b.t.Helper()
	p := b.start("tail", id, "-n", "280", "--events")
	p.until(fmt.Sprintf(`{"seq":%d,`, last))
	p.kill()
	p.wait()
	return strings.Join(p.seen, "\n")
}

// TestCacheProvesNothing: whatever is in cache/, or is not, or comes and goes meanwhile, every command answers as it does
// without one, and what is written is the same.
//
// By default each sort of harm meets a part of the commands; all of them if STRANDLINE_KILL_SEEDS is more than 50.
func TestCacheProvesNothing(t *testing.T) {
	part := func(i, n int) bool { return i%n == 0 || envInt("STRANDLINE_KILL_SEEDS", 50) > 50 }
	b := newBox(t)
	ids := manyLives(b)
	b.ok("ls", "--json")
	bare := b.withStore(filepath.Join(b.dir, "bare"))
	copyTree(t, b.store, bare.store)
	want, follow, ends := map[string]string{}, map[string]string{}, map[string]int64{}
	none := func(b *box) {
		if err := os.RemoveAll(filepath.Join(b.store, "cache")); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		for _, args := range looks(id) {
			none(bare)
			want[fmt.Sprint(args)] = bare.answer(args...)
		}
		ends[id] = bare.stat(id).Events - 1
		follow[id] = bare.tailed(id, ends[id])
		none(bare)
		if h := bare.diagnose(id, 0); h.State != "ok" {
			t.Fatalf("%+v", h)
		}
	}
	rows := bare.answer("ls", "--json", "--limit", "100")

	each := func(do func(path string, text []byte)) func(*box) {
		return func(b *box) {
			for _, path := range b.folds("*") {
				if text, err := os.ReadFile(path); err == nil { // else it is hurt already
					do(path, text)
				}
			}
		}
	}
	put := func(path string, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	hurt := []struct {
		name string
		do   func(b *box)
	}{
		{"as it is", func(*box) {}},
		{"each cut", each(func(path string, text []byte) { put(path, text[:len(text)/2]) })},
		{"each empty", each(func(path string, _ []byte) { put(path, nil) })},
		{"a bit of each flipped", each(func(path string, text []byte) {
			text[n%len(text)] ^= 1 << (n % 8)
			n += 37
			put(path, text)
		})},
		{"those of another session", func(b *box) {
			other, err := os.ReadFile(b.folds("talk-compacted")[0])
			if err != nil {
				t.Fatal(err)
			}
			each(func(path string, _ []byte) { put(path, other) })(b)
		}},
		{"names of each other", each(func(path string, _ []byte) {
			dir := filepath.Join(filepath.Dir(filepath.Dir(path)), "talk-plain")
			if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
				t.Fatal(err)
			}
		})},
		{"each for a later seq", each(func(path string, text []byte) {
			seq, err := strconv.Atoi(filepath.Base(path)[:20])
			if err != nil {
				t.Fatal(err)
			}
			put(filepath.Join(filepath.Dir(path), fmt.Sprintf("%020d%s", seq+1, filepath.Base(path)[20:])), text)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})},
		{"each a directory", each(func(path string, _ []byte) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		})},
		{"each unreadable", each(func(path string, _ []byte) {
			if err := os.Chmod(path, 0); err != nil { // not for root, who reads what is there
				t.Fatal(err)
			}
		})},
		{"a file in the place of the directory", func(b *box) {
			none(b)
			put(filepath.Join(b.store, "cache"), []byte("no directory"))
		}},
	}
	good := b.store
	for i, h := range hurt {
		c := b.withStore(filepath.Join(b.dir, fmt.Sprint("hurt-", i)))
		copyTree(t, good, c.store)
		h.do(c)
		kept := snap(t, c.store)
		for k, id := range ids {
			if !part(i+k, 7) {
				// others follow
			} else if got := c.tailed(id, ends[id]); got != follow[id] {
				t.Errorf("cache: %s: following %s\n%s\nwant\n%s", h.name, id, clip(got), clip(follow[id]))
			}
			all := looks(id)
			for j, args := range all {
				if !part(i+j+k, 6) {
					continue
				}
				if got := c.answer(args...); got != want[fmt.Sprint(args)] {
					t.Errorf("cache: %s: %v\n%s\nwant\n%s", h.name, args, clip(got), clip(want[fmt.Sprint(args)]))
				}
			}
		}
		if got := c.answer("ls", "--json", "--limit", "100"); got != rows {
			t.Errorf("cache: %s: the list\n%s\nwant\n%s", h.name, clip(got), clip(rows))
		}
		if d := kept.diff(snap(t, c.store)); d != "" {
			t.Errorf("cache: %s: looking has changed\n%s", h.name, d)
		}
		for k, id := range ids {
			for j := range 5 {
				if part(i+2*j+3*k, 13) {
					c.changed(id, j, bare, h.do)
				}
			}
			if part(i+k, 3) {
				c.doctor(id)
			}
		}
	}

	// Something takes the checkpoints away, and puts them back, all the time.
	c := b.withStore(filepath.Join(b.dir, "meanwhile"))
	copyTree(t, good, c.store)
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		from, to := filepath.Join(good, "cache"), filepath.Join(c.store, "cache")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.RemoveAll(to)
			_ = os.CopyFS(to, os.DirFS(from))
			spin(200_000 * (i % 7))
		}
	})
	defer done.Wait()
	defer close(stop)
	for _, id := range ids {
		for _, args := range looks(id)[2:5] {
			if got := c.answer(args...); got != want[fmt.Sprint(args)] {
				t.Errorf("while the cache comes and goes: %v\n%s\nwant\n%s", args, clip(got), clip(want[fmt.Sprint(args)]))
			}
		}
	}
}

// newID is an id that the command made.
var newID = regexp.MustCompile(`[0-9a-z]{20}`)

// changed runs the n-th command that writes to a session, in a copy of b's store with the cache that hurt makes, and in one of
// bare's without any, and compares what came of it.
func (b *box) changed(id string, n int, bare *box, hurt func(*box)) {
	t := b.t
	t.Helper()
	type outcome struct {
		code   int
		events int64
		view   string
	}
	args := [][]string{
		{"undo", id}, {"fork", id, "--at", "59"}, {"title", id, "another"},
		{"compact", id, "--script", b.script(summary(say("all of it")))},
		b.runArgs("go on", []line{say("gone on")}, "--session", id),
	}[n]
	var got [2]outcome
	for i, from := range []*box{b, bare} {
		c := from.withStore(filepath.Join(from.dir, "changed"))
		copyTree(t, from.store, c.store)
		if from == bare {
			_ = os.RemoveAll(filepath.Join(c.store, "cache"))
		}
		known := c.sessionIDs()
		r := c.strand(args...)
		if i == 0 {
			hurt(c)
		}
		which := id
		for _, s := range c.sessionIDs() {
			if !slices.Contains(known, s) {
				which = s
			}
		}
		got[i] = outcome{r.code, c.stat(which).Events, newID.ReplaceAllString(c.viewText(which), "ID")}
		c.doctor(which)
		if err := os.RemoveAll(c.store); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != got[1] || got[0].code != 0 {
		t.Errorf("%v gives %s\nwant %s", args, clip(fmt.Sprint(got[0])), clip(fmt.Sprint(got[1])))
	}
}

// TestKilledWhileCheckpointing: whatever a life leaves in cache/ when it is killed, what is opened behind it is the log.
// STRANDLINE_KILL_SEEDS, if it is more than 50, sets how many lives there are in tens.
func TestKilledWhileCheckpointing(t *testing.T) {
	b := newBox(t)
	lives := max(5, envInt("STRANDLINE_KILL_SEEDS", 50)/10)
	id := b.run("begin", []line{say("begun")}).SessionID
	big := strings.Repeat("some words of a file\n", 8_000) // 170 KB
	kept, half := 0, 0
	for life := range lives {
		var lines []line
		for i := range 9 {
			lines = append(lines, use(write(fmt.Sprintf("f%d.txt", i), fmt.Sprint(life, i, big))))
		}
		before := len(b.folds(id))
		p := b.start(b.runArgs("work", append(lines, say("done"), say("done")), "--session", id, "--output", "stream-json")...)
		for seen := 0; ; { // killed around the moment in which one is there
			l, ok := p.next()
			if !ok {
				break
			}
			if strings.Contains(l, session.TypeToolResult) {
				if seen++; seen >= 2+life%5 {
					break
				}
			}
		}
		spin(life % 4 * 1_000_000)
		p.kill()
		p.wait()
		if len(b.folds(id)) != before {
			kept++
		}
		tmp, err := filepath.Glob(filepath.Join(b.store, "cache", id, ".fold-*"))
		if err != nil {
			t.Fatal(err)
		}
		half += len(tmp)
		behind := b.answer("show", id, "--view", "script") + b.answer("show", id, "--stat", "--json")
		b.doctor(id)
		bare := b.withStore(filepath.Join(b.dir, "bare"))
		copyTree(t, b.store, bare.store)
		if err := os.RemoveAll(filepath.Join(bare.store, "cache")); err != nil {
			t.Fatal(err)
		}
		if whole := bare.answer("show", id, "--view", "script") + bare.answer("show", id, "--stat", "--json"); whole != behind {
			t.Fatalf("life %d: behind what it left\n%s\nthe log\n%s", life, clip(behind), clip(whole))
		}
		if err := os.RemoveAll(bare.store); err != nil {
			t.Fatal(err)
		}
	}
	if kept == 0 {
		t.Error("no life left a checkpoint: the loop misses what it is for")
	}
	t.Logf("%d of %d lives left one more checkpoint, %d half ones", kept, lives, half)
	b.run("end", []line{say("ended"), say("ended")}, "--session", id)
	b.doctor(id)
	if tmp, err := filepath.Glob(filepath.Join(b.store, "cache", id, ".fold-*")); err != nil || half > 0 && len(tmp) > half {
		t.Errorf("left over: %v, %v", tmp, err)
	}
}

// TestDamageBelowACheckpoint: a chat that lives meets, in whatever it does, an old event that is damaged: it says so, gives out
// nothing else, and is not lost; from then on every command says that the session is damaged, until it is repaired.
func TestDamageBelowACheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		met   bool // the input reads the damaged event
	}{
		"a turn":     {"go on\n", true},
		"compacting": {"/compact\n", true},
		"undo":       {"/undo\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.longTalk("talk-hurt", 100)
			b.ok("title", "talk-hurt", "it")
			whole := b.log("talk-hurt")
			at := slices.IndexFunc(whole.recs, func(e entry) bool { return e.Type == session.TypeUserMessage && e.Seq > 20 })
			b.edit("talk-hurt", 0, func(text []byte, l storedLog) []byte {
				i := int(l.recs[at].off) + bytes.Index(text[l.recs[at].off:l.recs[at].end], []byte("why"))
				text[i] ^= 1
				return text
			})
			r := b.strandIn(c.input, "chat", "talk-hurt", "--script", b.script(say("heard"), summary(say("in short"))), "--cwd", b.ws)
			t.Logf("%v", r)
			if c.met && (!strings.Contains(r.err+r.out, "damaged") || strings.Contains(r.out, "heard")) {
				t.Errorf("it goes on as if nothing were: %v", r)
			}
			if c.met && (!strings.Contains(r.err, "strand doctor talk-hurt says where") || strings.Contains(r.err, "strand run --session")) {
				t.Errorf("it says what cannot be done: %v", r)
			}
			if !c.met { // somebody looks
				if r := b.strand("fork", "talk-hurt", "--at", strconv.FormatInt(whole.recs[at+3].Seq, 10)); r.code != 4 && r.code != 0 {
					t.Errorf("%v", r)
				}
				b.diagnose("talk-hurt", 4)
			}
			for _, args := range [][]string{
				{"title", "talk-hurt", "new"}, {"undo", "talk-hurt"}, {"show", "talk-hurt", "--stat"}, {"show", "talk-hurt", "--view", "script"},
				b.runArgs("go on", []line{say("never said")}, "--session", "talk-hurt"),
			} {
				if r := b.strand(args...); r.code != 4 {
					t.Errorf("want exit code 4: %v", r)
				}
			}
			state := func(want string) {
				t.Helper()
				for _, r := range b.list() { // a fork that begins with it, too
					if r.State != want {
						t.Errorf("the list has %+v, want it %s", r, want)
					}
				}
			}
			state("damaged")
			b.ok("doctor", "talk-hurt", "--repair")
			b.doctor("talk-hurt")
			if r := b.run("go on", []line{say("cured")}, "--session", "talk-hurt"); r.Text != "cured" {
				t.Errorf("%+v", r)
			}
			state("ok")
		})
	}
}

// TestTitleBelowACheckpoint: a session without a title is called after what was said first. Where that cannot be read any
// more, whoever asks is told so, and not that it has none.
func TestTitleBelowACheckpoint(t *testing.T) {
	b := newBox(t)
	b.longTalk("talk-hurt", 100)
	b.ok("undo", "talk-hurt") // a life that gives no title
	if r := b.ok("title", "talk-hurt"); !strings.HasPrefix(r.out, "question 0") || len(b.folds("talk-hurt")) == 0 {
		t.Fatalf("%v, checkpoints %v", r, b.folds("talk-hurt"))
	}
	at := slices.IndexFunc(b.log("talk-hurt").recs, func(e entry) bool { return e.Type == session.TypeUserMessage })
	b.edit("talk-hurt", 0, func(text []byte, l storedLog) []byte {
		text[int(l.recs[at].off)+bytes.Index(text[l.recs[at].off:l.recs[at].end], []byte("why"))] ^= 1
		return text
	})
	for _, args := range [][]string{{"title", "talk-hurt"}, {"show", "talk-hurt", "--stat"}} {
		if r := b.strand(args...); r.code != 4 || !strings.Contains(r.err, "damaged") {
			t.Errorf("want exit code 4: %v", r)
		}
	}
}
