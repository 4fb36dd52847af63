package storetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var appendTests = []test{
	{"Positions", appendPositions},
	{"ReadYourWrites", appendReadYourWrites},
	{"Contiguous", appendContiguous},
	{"Retry", appendRetry},
	{"RetryOfAnother", appendRetryOfAnother},
	{"EmptyBatch", appendEmpty},
	{"Invalid", appendInvalid},
	{"TooLarge", appendTooLarge},
	{"ManyLives", appendManyLives},
}

func appendPositions(s *suite) {
	all := talk(0, 40)
	w := s.create("posn")
	for n := 0; n < len(all); {
		k := min(len(all)-n, 1+n%7)
		pos := s.append(w, all[n:n+k]...)
		n += k
		if want := posAfter(all[:n]); pos != want {
			s.Fatalf("Append gives %v, want %v", pos, want)
		}
		if pos := s.flush(w); pos != posAfter(all[:n]) {
			s.Fatalf("Flush gives %v, want %v", pos, posAfter(all[:n]))
		}
		if pos := s.stat("posn").Pos; pos != posAfter(all[:n]) {
			s.Fatalf("Stat gives %v, want %v", pos, posAfter(all[:n]))
		}
	}
}

func appendReadYourWrites(s *suite) {
	var other store.Store
	if s.Another != nil {
		other = s.Another(s.T)
	}
	all := talk(0, 60)
	w := s.create("ryw1")
	for n := 0; n < len(all); n += 6 {
		s.append(w, all[n:n+6]...)
		s.prefixIs(w.Stored(), all[:n+6])
		s.holds("ryw1", all[:n+6])
		if other != nil {
			s.holdsIn(other, "ryw1", all[:n+6])
		}
	}
}

// A batch that is not contiguous is refused whole, and the writer goes on.
func appendContiguous(s *suite) {
	w := s.create("gaps")
	refused := func(what string, events ...session.Event) {
		s.Helper()
		n := w.Stored().Len()
		if pos, err := w.Append(s.ctx, events); err == nil {
			s.Fatalf("%s: accepted, position %v", what, pos)
		} else if errors.Is(err, store.ErrFenced) {
			s.Fatalf("%s: the caller's mistake is reported as another writer: %v", what, err)
		}
		if got := w.Stored().Len(); got != n {
			s.Fatalf("%s: %d events are stored, want %d", what, got, n)
		}
	}
	refused("first seq is not 0", talk(1, 2)...)
	refused("negative seq", session.Event{Seq: -1, Type: "a/b", Data: jsontext.Value(`{}`)})
	s.absent(s.st, "gaps")
	s.append(w, talk(0, 5)...)
	refused("a gap before the batch", talk(6, 2)...)
	refused("a gap in the batch", chunk(5), chunk(7))
	refused("a repetition in the batch", chunk(5), chunk(5))
	refused("falling", chunk(5), chunk(4))
	refused("overlap and a gap", chunk(4), chunk(6))
	s.append(w, talk(5, 3)...)
	s.holds("gaps", talk(0, 8))
}

// The same events again, and more behind them, are a retry.
func appendRetry(s *suite) {
	all := append(golden(), talk(8, 20)...)
	w := s.create("again", all[:4]...)
	for _, r := range [][2]int{{0, 4}, {2, 4}, {3, 7}, {0, 8}, {8, 10}, {8, 15}, {0, 28}, {5, 6}} {
		pos := s.append(w, all[r[0]:r[1]]...)
		if n := int(pos.Next); n < r[1] || pos != posAfter(all[:n]) {
			s.Fatalf("position %v after %v", pos, r)
		}
	}
	s.flush(w)
	s.holds("again", all)
	s.ok(w.Close())
	w = s.open("again")
	if pos := s.append(w, all[20:]...); pos != posAfter(all) {
		s.Fatalf("position %v after a retry in the next life", pos)
	}
	s.append(w, talk(28, 1)...)
	s.holds("again", append(all, talk(28, 1)...))
}

func appendRetryOfAnother(s *suite) {
	w := s.create("twin", talk(0, 6)...)
	for what, change := range map[string]func(*session.Event){
		"data":      func(ev *session.Event) { ev.Data = jsontext.Value(`{"other":1}`) },
		"time":      func(ev *session.Event) { ev.Time++ },
		"type":      func(ev *session.Event) { ev.Type = "x/y" },
		"ignorable": func(ev *session.Event) { ev.Ignorable = true },
		"extra":     func(ev *session.Event) { ev.Extra = []byte(`"a":1`) },
		"sources":   func(ev *session.Event) { ev.Sources = session.Sources{} },
	} {
		ev := chunk(4)
		change(&ev)
		if _, err := w.Append(s.ctx, []session.Event{ev, user(5, ""), chunk(6)}); err == nil {
			s.Fatalf("an event with another %s replaced one that is written", what)
		}
		s.holds("twin", talk(0, 6))
	}
	s.append(w, talk(6, 2)...)
	s.holds("twin", talk(0, 8))
}

func appendEmpty(s *suite) {
	w := s.create("zero", talk(0, 2)...)
	for _, batch := range [][]session.Event{nil, {}} {
		if pos, err := w.Append(s.ctx, batch); err != nil || pos != posAfter(talk(0, 2)) {
			s.Fatalf("empty batch: %v %v", pos, err)
		}
	}
	s.holds("zero", talk(0, 2))
}

// An event that no record can hold is refused: nothing can be written that cannot be read back.
func appendInvalid(s *suite) {
	w := s.create("odds", talk(0, 2)...)
	for what, change := range map[string]func(*session.Event){
		"no data":           func(ev *session.Event) { ev.Data = nil },
		"array":             func(ev *session.Event) { ev.Data = jsontext.Value(`[]`) },
		"no type":           func(ev *session.Event) { ev.Type = "" },
		"type with a quote": func(ev *session.Event) { ev.Type = `a","b":"` },
		"type with LF":      func(ev *session.Event) { ev.Type = "a\nb" },
		"broken extra":      func(ev *session.Event) { ev.Extra = []byte(`"data":{}},{"a":1`) },
		"extra named seq":   func(ev *session.Event) { ev.Extra = []byte(`"seq":1`) },
		"bad source":        func(ev *session.Event) { ev.Sources = session.Sources{{First: 1, Last: 0}} },
		"unknown op":        func(ev *session.Event) { ev.Op.Kind = 77 },
	} {
		ev := chunk(3)
		change(&ev)
		if _, err := w.Append(s.ctx, []session.Event{chunk(2), ev}); err == nil {
			s.Errorf("%s: accepted", what)
		}
	}
	s.holds("odds", talk(0, 2))
	s.append(w, talk(2, 2)...)
	s.holds("odds", talk(0, 4))
}

func appendTooLarge(s *suite) {
	big := session.Event{Seq: 3, Type: "x/big", Data: jsontext.Value(`{"a":[` + strings.Repeat(`"0123456789abcdef",`, 1<<20/19) + `0]}`)}
	w := s.create("huge", talk(0, 2)...)
	_, err := w.Append(s.ctx, []session.Event{chunk(2), big, chunk(4)})
	s.is(err, store.ErrTooLarge, "Append")
	var e *store.TooLargeError
	if !errors.As(err, &e) || e.ID != "huge" || e.Seq != 3 || e.Bytes <= e.Limit {
		s.Fatalf("the error does not say what is too large: %+v", e)
	}
	s.holds("huge", talk(0, 2))
	// Just below the limit is fine.
	big.Seq, big.Data = 2, jsontext.Value(`{"a":[`+strings.Repeat(`"0123456789abcdef",`, (1<<20-300)/19)+`0]}`)
	s.append(w, big)
	s.append(w, talk(3, 2)...)
	s.holds("huge", append(append(talk(0, 2), big), talk(3, 2)...))
}

func appendManyLives(s *suite) {
	var all []session.Event
	for life := range 40 {
		next := talk(session.Seq(len(all)), 1+life%4)
		var w store.Writer
		if life == 0 {
			w = s.create("cats", next...)
		} else {
			w = s.open("cats")
			s.append(w, next...)
		}
		all = append(all, next...)
		if life%3 == 0 {
			s.flush(w)
		}
		s.ok(w.Close())
		if got := s.stat("cats"); got.Pos != posAfter(all) {
			s.Fatalf("life %d ends at %v, want %v", life, got.Pos, posAfter(all))
		}
	}
	s.holds("cats", all)
	if s.Reopen != nil {
		s.reopen()
		s.holds("cats", all)
	}
}

var eventTests = []test{
	{"Golden", eventGolden},
	{"GoldenLinks", eventGoldenLinks},
	{"LargeStrings", eventLargeStrings},
	{"LargeSeries", eventLargeSeries},
}

// Events come back byte for byte: from the writer, from a reader, from the next process.
func eventGolden(s *suite) {
	w := s.create("gold", golden()...)
	s.prefixIs(w.Stored(), golden())
	s.holds("gold", golden())
	s.flush(w)
	s.ok(w.Close())
	w = s.open("gold")
	s.prefixIs(w.Opened().Prefix, golden())
	s.ok(w.Close())
	if s.Another != nil {
		s.holdsIn(s.Another(s.T), "gold", golden())
	}
	if s.Reopen != nil {
		s.reopen()
		s.holds("gold", golden())
	}
}

// Equal events have equal links in every store.
func eventGoldenLinks(s *suite) {
	w := s.create("gold")
	for i, ev := range golden() {
		if got := s.append(w, ev).Link.String(); got != goldenLinks[i] {
			s.Errorf("link of event %d is %s, want %s", i, got, goldenLinks[i])
		}
	}
	s.ok(w.Close())
	// The header and the batches make no difference.
	h := header("gold2")
	h.Cwd = "/elsewhere"
	w = s.createWith(h, golden()...)
	if got := s.flush(w).Link.String(); got != goldenLinks[len(goldenLinks)-1] {
		s.Errorf("in one batch: link %s", got)
	}
}

func eventLargeStrings(s *suite) {
	data := func(parts ...string) jsontext.Value { return jsontext.Value(`{` + strings.Join(parts, ",") + `}`) }
	kb40 := quote(strings.Repeat("0123456789", 4096))
	mb2 := quote(strings.Repeat("grüße \"\\\n\x01", 200_000))
	events := []session.Event{
		{Seq: 0, Type: "x/a", Data: data(`"a":` + kb40)},
		{Seq: 1, Type: "x/a", Data: data(`"a":`+kb40, `"b":[`+kb40+`,`+mb2+`,{"c":`+mb2+`}]`, `"$blob":`+mb2)},
		{Seq: 2, Type: "x/a", Data: data(`"a":"` + strings.Repeat(`\"`, 1<<15) + `"`)},
		{Seq: 3, Type: "x/a", Data: data(kb40 + `:1`)},
		chunk(4),
	}
	w := s.create("long", events...)
	s.holds("long", events)
	s.flush(w)
	s.ok(w.Close())
	if s.Reopen != nil {
		s.reopen()
		s.holds("long", events)
	}
}

// Access by seq in any order, over a log that is longer than any index step.
func eventLargeSeries(s *suite) {
	const n = 3000
	all := talk(0, n)
	w := s.create("many")
	for i := 0; i < n; {
		k := min(n-i, 1+(i*31)%211)
		s.append(w, all[i:i+k]...)
		i += k
	}
	snap, err := s.st.Read(s.ctx, "many")
	s.ok(err)
	defer snap.Close()
	for _, p := range []session.Prefix{w.Stored(), snap.Prefix} {
		for i, q := 0, session.Seq(0); i < 2000; i, q = i+1, (q*1103+977)%n {
			ev, err := p.At(q)
			s.ok(err)
			s.same(ev, all[q])
		}
		for _, r := range [][2]session.Seq{{0, 1}, {n - 1, n}, {1000, 1400}, {127, 129}, {5, 5}} {
			q := r[0]
			for ev, err := range p.Range(r[0], r[1]) {
				s.ok(err)
				s.same(ev, all[q])
				q++
			}
			if q != r[1] {
				s.Fatalf("Range%v ended at %d", r, q)
			}
		}
		for _, q := range []session.Seq{-1, n, n + 1000} {
			_, err := p.At(q)
			s.is(err, session.ErrRange, fmt.Sprint("At ", q))
		}
		last := error(nil)
		for _, err := range p.Range(n-2, n+2) {
			last = err
		}
		s.is(last, session.ErrRange, "Range over the end")
		for range p.Range(10, n) {
			break
		}
	}
}
