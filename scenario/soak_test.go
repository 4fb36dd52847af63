package scenario

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSoak does to one store, by chance, all that people do with one, several commands at once, and kills some: a
// model beside it knows which sessions there are, where, and every event that was ever seen of each.
// STRANDLINE_SOAK_SEEDS runs longer.
func TestSoak(t *testing.T) {
	seeds, from := envInt("STRANDLINE_SOAK_SEEDS", 2), envInt("STRANDLINE_SOAK_FROM", 1)
	c := &tally{n: map[string]int{}}
	t.Run("seeds", func(t *testing.T) {
		for i := range seeds {
			t.Run(strconv.Itoa(from+i), func(t *testing.T) {
				t.Parallel()
				s := &soak{box: newBox(t), r: rand.New(rand.NewPCG(uint64(from+i), 17)), c: c, known: map[string]*soaked{}, gone: map[string]bool{}}
				for n := range envInt("STRANDLINE_SOAK_STEPS", 14) {
					if s.round(n); t.Failed() {
						t.Logf("in round %d; what was done:\n%s", n, strings.Join(s.story, "\n"))
						return
					}
				}
				s.end()
			})
		}
	})
	t.Logf("%d seeds:\n%v", seeds, c)
}

// soak is a store and what is known of it.
type soak struct {
	*box
	r     *rand.Rand
	c     *tally
	known map[string]*soaked // living and in the trash
	gone  map[string]bool    // purged: never again
	story []string
	n     int // labels
}

// soaked is what is known of a session.
type soaked struct {
	where  string   // sessions or trash
	events []string // lines of show --events; only ever grows
	torn   bool     // its last segment ends in what is no record; the next life passes over it
	shared int      // while it was in the trash others were repaired, of which it may have begun with so many events that are lost now
}

// deed is one command at work.
type deed struct {
	what string
	id   string // the session it is about, "" if it makes a new one
	proc *proc
	code int
}

// round starts a few commands, kills some, waits for all, and holds the store against what is known.
func (s *soak) round(n int) {
	if n > 3 && s.r.IntN(4) == 0 {
		s.hurt()
		return
	}
	var ds []*deed
	for range 1 + s.r.IntN(4) {
		ds = append(ds, s.begin())
	}
	for _, d := range ds {
		switch {
		case d.what == "tail":
			defer s.endTail(d)
			continue
		case s.r.IntN(3) == 0:
			for range s.r.IntN(2) * s.r.IntN(40) {
				if d.what != "run" {
					break
				}
				if _, ok := d.proc.next(); !ok {
					break
				}
			}
			spin(s.r.IntN(60_000_000))
			d.proc.kill()
		}
	}
	for _, d := range ds {
		if d.what != "tail" {
			d.code = d.proc.wait()
			s.judge(d)
		}
	}
	s.observe(ds)
}

func (s *soak) ids(where string) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		if s.known[id].where == where {
			out = append(out, id)
		}
	}
	return out
}

func (s *soak) pick(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[s.r.IntN(len(ids))]
}

func (s *soak) begin() *deed {
	s.n++
	id, trashed := s.pick(s.ids("sessions")), s.pick(s.ids("trash"))
	k := newTask(s.r, s.out, s.n)
	if s.r.IntN(3) == 0 {
		k.lines[0].Text += strings.Repeat(fmt.Sprintf("much text %d. ", s.n%3), 4000)
	}
	what := []string{"new", "run", "run", "run", "run", "fork", "fork", "undo", "title", "compact", "rm", "restore", "purge", "pack", "collect",
		"repair", "export", "tail"}[s.r.IntN(18)]
	if trashed == "" && (what == "restore" || what == "purge") || id == "" {
		what = "new"
	}
	var args []string
	switch what {
	case "new":
		what, id = "run", ""
		args = s.runArgs(k.prompt, k.lines, "--output", "stream-json")
	case "run":
		args = s.runArgs(k.prompt, k.lines, "--output", "stream-json", "--session", id)
	case "fork":
		if args = []string{"fork", id, "--json"}; s.r.IntN(2) == 0 {
			args = append(args, "--at", strconv.Itoa(s.r.IntN(len(s.known[id].events))))
		}
	case "undo":
		if args = []string{"undo", id}; s.r.IntN(3) == 0 {
			args = append(args, "--redo")
		}
	case "title":
		args = []string{"title", id, fmt.Sprintf("title %d", s.n)}
	case "compact":
		args = s.compactArgs(id, summary(say("short")), summary(say("shorter")))
	case "rm":
		args = []string{"rm", id, "--json"}
	case "restore":
		id = trashed
		args = []string{"restore", id}
	case "purge":
		id = trashed
		args = []string{"purge", "--yes", id, "--json"}
	case "pack":
		args = []string{"store", "pack", "--json"}
	case "collect":
		args = []string{"store", "collect", "--json"}
	case "repair":
		args = []string{"doctor", "--repair", id, "--json"}
	case "export":
		args = []string{"export", id, "--no-redact", "-o", filepath.Join(s.out, fmt.Sprintf("export-%d", s.n))}
	case "tail":
		args = []string{"tail", id, "--from", "0", "--events"}
	}
	s.story = append(s.story, strings.Join(args, " "))
	return &deed{what: what, id: id, proc: s.start(args...)}
}

// judge says if a command may have ended as it did.
func (s *soak) judge(d *deed) {
	s.c.add(fmt.Sprintf("%s: %d", d.what, d.code))
	s.story = append(s.story, fmt.Sprintf("  %s %s ended with %d %s", d.what, d.id, d.code, strings.TrimSpace(clip(d.proc.errs.String()))))
	may := map[string][]int{
		"run": {0, 3, 5, 8}, "fork": {0, 1, 2, 3, 5}, "undo": {0, 1, 3, 5}, "title": {0, 3, 5}, "compact": {0, 1, 3, 5, 8}, "rm": {0, 3, 5}, "restore": {0, 1, 3, 5},
		"purge": {0, 1, 3, 5}, "pack": {0}, "collect": {0}, "repair": {0, 3, 5}, "export": {0, 5},
	}[d.what]
	if k := s.known[d.id]; d.what == "run" && d.code == 0 && k != nil {
		k.torn = false
	}
	for id, k := range s.known {
		if d.what == "export" && d.id == id && k.torn {
			may = []int{0, 4}
		}
		if d.what == "collect" && d.code == 4 && k.torn {
			may = []int{4}
		}
	}
	if !slices.Contains(may, d.code) && !(d.code == -1 && d.proc.killed.Load()) {
		s.t.Errorf("%v ended with exit code %d: %s\n%s", d.proc.cmd.Args[1:], d.code, clip(d.proc.errs.String()), clip(strings.Join(d.proc.seen, "\n")))
	}
	if e := d.proc.errs.String(); strings.Contains(e, "goroutine ") || strings.Contains(e, "panic:") {
		s.t.Errorf("%v panicked: %s", d.proc.cmd.Args, clip(e))
	}
	if d.what == "export" && d.code == 0 && s.r.IntN(2) == 0 {
		// In another store it is a session that goes on; here it is known already, or a new one.
		s.n++
		file := d.proc.cmd.Args[slices.Index(d.proc.cmd.Args, "-o")+1]
		r := s.withStore(filepath.Join(s.dir, fmt.Sprintf("other-%d", s.n))).strand("import", file, "--json")
		if s.c.add(fmt.Sprintf("import elsewhere: %d", r.code)); r.code != 0 {
			s.t.Errorf("%v", r)
		}
	}
}

// endTail stops a reader: what it told is the log from its beginning.
func (s *soak) endTail(d *deed) {
	d.proc.kill()
	d.proc.wait()
	k := s.known[d.id]
	if k == nil {
		return
	}
	for i, l := range d.proc.seen {
		if i == len(k.events) && k.where == "trash" { // written just before it went there; it has to be there when it comes back
			k.events = append(k.events, l)
		}
		if i >= len(k.events) || l != k.events[i] {
			s.t.Errorf("tail of %s told as line %d\n%s\nwhich is not the log", d.id, i, clip(l))
			return
		}
	}
	s.c.add("tail: told the log")
}

func (s *soak) dirs(where string) []string {
	s.t.Helper()
	list, err := os.ReadDir(filepath.Join(s.store, where))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// observe takes in what the commands made, and checks the rest.
func (s *soak) observe(ds []*deed) {
	t := s.t
	touched, may := map[string]bool{}, map[string]map[string]bool{}
	makers := 0
	for _, d := range ds {
		touched[d.id] = true
		if may[d.id] == nil {
			may[d.id] = map[string]bool{}
		}
		switch d.what {
		case "rm":
			may[d.id]["trash"] = true
		case "restore":
			may[d.id]["sessions"] = true
		case "purge":
			may[d.id][""] = true
		case "run", "fork":
			if d.what == "fork" || d.id == "" {
				makers++
			}
		}
	}
	now := map[string]string{}
	for _, where := range []string{"sessions", "trash"} {
		for _, id := range s.dirs(where) {
			if now[id] != "" {
				t.Errorf("%s is in sessions and in trash", id)
			}
			now[id] = where
			switch k := s.known[id]; {
			case s.gone[id]:
				t.Errorf("%s was purged and is back", id)
			case k == nil:
				if makers--; makers < 0 {
					t.Errorf("nobody made %s", id)
				}
				s.known[id], touched[id] = &soaked{where: where}, true
			}
		}
	}
	for id, k := range s.known {
		if w := now[id]; w != k.where {
			if !may[id][w] {
				t.Errorf("%s was in %q and is in %q", id, k.where, w)
			}
			if k.where = w; w == "" {
				delete(s.known, id)
				s.gone[id] = true
			}
			touched[id] = true
		}
	}
	for id := range s.known {
		if s.known[id].where == "sessions" && (touched[id] || s.r.IntN(4) == 0) {
			s.look(id)
		}
	}
	for _, d := range ds {
		s.acknowledged(d)
	}
	s.lists()
	if r := s.strand("store", "check", "--json"); r.code != 0 {
		t.Errorf("nothing was hurt: %v", r)
	}
}

// acknowledged: what a run printed as committed is there.
func (s *soak) acknowledged(d *deed) {
	if d.what != "run" {
		return
	}
	id, printed := d.id, printedEvents(s.t, d.proc.seen)
	if id == "" && len(printed) > 0 {
		for k, v := range s.known {
			if len(v.events) > 0 && v.events[0] == printed[0] {
				id = k
			}
		}
	}
	k := s.known[id]
	if k == nil || k.where != "sessions" {
		if id == "" && len(printed) > 0 {
			s.t.Errorf("a session of %d events is not there", len(printed))
		}
		return
	}
	for seq, l := range printed {
		if seq >= int64(len(k.events)) || k.events[seq] != l {
			s.t.Errorf("seq %d of %s was printed and is not in the log: %s", seq, id, clip(l))
		}
	}
}

// look reads a healthy session: it begins with all that was ever seen of it, and its view is legal.
func (s *soak) look(id string) {
	k := s.known[id]
	if k.shared > 0 {
		s.remains(id, 0, k.shared)
		k.shared, k.events = 0, nil
	}
	r := s.strand("show", id, "--events")
	got := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if r.code != 0 || len(got) < len(k.events) || !slices.Equal(got[:min(len(k.events), len(got))], k.events) {
		at := 0
		for at < min(len(k.events), len(got)) && k.events[at] == got[at] {
			at++
		}
		s.t.Errorf("%s had %d events, and now %d, which differ from line %d on: %s\n%s\n%s", id, len(k.events), len(got), at,
			clip(strings.Join(k.events[at:min(at+1, len(k.events))], "")), clip(strings.Join(got[at:min(at+1, len(got))], "")), clip(r.err))
		return
	}
	k.events = got
	if err := checkView(s.view(id)); err != nil {
		s.t.Errorf("the view of %s is not legal: %v", id, err)
	}
}

// lists: the lists show what there is.
func (s *soak) lists() {
	for where, args := range map[string][]string{"sessions": {"--all"}, "trash": {"--trash"}} {
		got := ids(s.list(args...))
		if slices.Sort(got); !slices.Equal(got, s.ids(where)) {
			s.t.Errorf("the list of %s has\n%q\nand there are\n%q", where, got, s.ids(where))
		}
	}
}

// hurt damages a file of a session, says what must be said of it, and repairs it.
func (s *soak) hurt() {
	t := s.t
	id := s.pick(s.ids("sessions"))
	if id == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(s.store, "sessions", id, "[0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 { // a fork that has added nothing
		return
	}
	for other := range s.known { // what is there before
		if s.known[other].where == "sessions" {
			s.look(other)
		}
	}
	file := files[s.r.IntN(len(files))]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from := s.r.IntN(len(text))
	to := min(len(text), from+1+s.r.IntN(300))
	old, bound := bytes.Clone(text), 0
	what := []string{"flip", "zeros", "cut", "garbage", "store.lock", "live", "cache"}[s.r.IntN(7)]
	switch what {
	case "flip":
		text[from] ^= byte(1 + s.r.IntN(255))
		to = from + 1
	case "zeros":
		clear(text[from:to])
	case "cut":
		file = files[len(files)-1]
		if text, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		old = bytes.Clone(text)
		from, to = max(len(text)-1-s.r.IntN(300), 0), len(text)
		for from > 0 && text[from-1] == '\n' { // between two lines only the health check asks the forks
			from--
		}
		text = text[:from]
	case "garbage":
		from, to = len(text), len(text)
		text = append(text, strings.Repeat("garbage ", s.r.IntN(40))+strings.Repeat("\n", s.r.IntN(2))...)
	default:
		if err := os.RemoveAll(filepath.Join(s.store, map[string]string{"store.lock": "store.lock", "live": "live", "cache": "cache"}[what])); err != nil {
			t.Fatal(err)
		}
		s.c.add("hurt: removed " + what)
		s.story = append(s.story, "removed "+what)
		s.observe(nil)
		return
	}
	bound = 1 + bytes.Count(old[from:to], []byte("\n")) + 1
	packed := strings.HasSuffix(file, ".zst")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.known[id].torn = true
	s.story = append(s.story, fmt.Sprintf("hurt %s: %s from %d to %d of %d", file, what, from, to, len(old)))
	d := s.strand("doctor", id, "--json")
	s.c.add(fmt.Sprintf("hurt: %s (packed: %v), doctor %d", what, packed, d.code))
	s.story = append(s.story, "  "+d.String())
	if d.code != 0 && d.code != 4 {
		t.Errorf("%v", d)
	}
	if packed || d.code == 0 { // a whole frame; or what nobody was told of, which the next life looks through
		bound = len(s.known[id].events)
	}
	s.remains(id, d.code, bound)
	if d.code == 4 {
		if r := s.strand("store", "collect", "--json"); r.code != 4 && r.code != 0 { // 0: zeros and the like at the end name nothing
			t.Errorf("a session is damaged: %v", r)
		}
		if r := s.strand("store", "pack", "--json"); r.code != 0 {
			t.Errorf("%v", r)
		}
		if r := s.strand(s.runArgs("too early", []line{say("no")}, "--session", id)...); r.code != 4 {
			t.Errorf("a session is damaged: %v", r)
		}
		if r := s.strand("ls", "--any-project", "--json"); r.code != 0 {
			t.Errorf("%v", r)
		}
	}
	r := s.strand("doctor", "--repair", id, "--json")
	if s.story = append(s.story, "  "+r.String()); r.code != 0 {
		t.Errorf("cannot be repaired: %v", r)
	}
	s.remains(id, 0, bound)
	before := s.known[id].events
	s.relearn(id)
	for _, other := range s.ids("sessions") { // forks
		if other == id {
			continue
		}
		if r := s.strand("doctor", other, "--json"); r.code != 0 {
			s.c.add("hurt: of a fork too, doctor " + strconv.Itoa(r.code))
			s.remains(other, r.code, len(before)+1)
			r := s.strand("doctor", "--repair", other, "--json")
			if r.code != 0 {
				t.Errorf("a fork cannot be repaired: %v", r)
			}
		}
		s.remains(other, 0, len(before)+1)
		s.relearn(other)
	}
	for _, other := range s.ids("trash") { // they may have begun with what is lost now: looked at when they come back
		s.known[other].shared += len(before) + 1
	}
	s.observe(nil)
}

// remains: an event is the one that was there, or it is called lost, or the log ends before it.
func (s *soak) remains(id string, code, bound int) {
	r := s.strand("show", id, "--events")
	if r.code != code {
		s.t.Errorf("doctor says %d: %v", code, r)
		return
	}
	got := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	k, lost := s.known[id].events, 0
	for i, l := range k {
		if i >= len(got) || l != got[i] {
			if lost++; i < len(got) && !strings.Contains(got[i], `"type":"session/lost"`) {
				s.t.Errorf("event %d of %s is\n%s\nit was\n%s", i, id, clip(got[i]), clip(l))
				return
			}
		}
	}
	if lost > bound {
		s.t.Errorf("%s: %d events are lost, not more than %d were hurt", id, lost, bound)
	}
}

// relearn takes a session as it is after a repair.
func (s *soak) relearn(id string) {
	s.known[id].events = nil
	s.look(id)
}

// end: when nobody is at work any more, everything can be deleted, and little is left.
func (s *soak) end() {
	t := s.t
	for _, id := range s.ids("trash") {
		s.ok("restore", id)
		s.known[id].where = "sessions"
	}
	for _, id := range s.ids("sessions") {
		s.look(id)
		// A prompt that was accepted and whose turn was killed before its first step has a turn of its own first.
		s.run("go on", slices.Repeat([]line{say("I go on")}, 6), "--session", id)
		s.look(id)
	}
	s.ok("store", "pack")
	s.ok("store", "collect")
	if r := s.strand("doctor", "--json"); r.code != 0 {
		t.Errorf("%v", r)
	}
	for _, id := range s.ids("sessions") {
		s.look(id)
	}
	s.lists()
	var left []string
	for name := range snap(t, s.store) {
		if strings.HasPrefix(filepath.Base(name), ".") && name != "." {
			left = append(left, name)
		}
	}
	s.c.add(fmt.Sprintf("end: %d temporary files", len(left)))
	if len(left) > 0 {
		t.Logf("left: %q", left)
	}
	for _, id := range s.ids("sessions") {
		s.ok("rm", id)
		s.ok("purge", "--yes", id)
	}
	s.ok("store", "collect")
	for name, what := range snap(t, s.store) {
		if strings.HasPrefix(name, "blobs/") && strings.HasPrefix(what, "-") || strings.HasPrefix(name, "live/") || strings.HasPrefix(name, "cache/") ||
			strings.HasPrefix(name, "trash/") || strings.HasPrefix(name, "sessions/") {
			t.Errorf("everything was purged, and %s is left", name)
		}
	}
}
