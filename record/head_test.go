package record

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
)

func TestSegment(t *testing.T) {
	link := session.Link{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255}
	for want, h := range map[string]Segment{
		`{"strandline":1,"session":"abcd","first":0,"prev":"AAAAAAAAAAAAAAAA","sum":"SdWXSw"}` + "\n":                             {Session: "abcd"},
		`{"strandline":1,"session":"a-b_c9","first":12,"prev":"AQIDBAUGBwgJCgv_","x":{},"sum":"nw8pwg"}` + "\n":                   {Session: "a-b_c9", First: 12, Prev: link, Extra: []byte(`"x":{}`)},
		`{"strandline":1,"session":"abcd","first":3,"prev":"AAAAAAAAAAAAAAAA","starts":[],"sum":"3bD-Ow"}` + "\n":                 {Session: "abcd", First: 3, Starts: []session.Span{}},
		`{"strandline":1,"session":"abcd","first":3,"prev":"AAAAAAAAAAAAAAAA","starts":[3,[5,8],12],"x":1,"sum":"N7CpXg"}` + "\n": {Session: "abcd", First: 3, Starts: []session.Span{{First: 3, Last: 3}, {First: 5, Last: 8}, {First: 12, Last: 12}}, Extra: []byte(`"x":1`)},
		`{"strandline":1,"session":"abcd","first":3,"prev":"AAAAAAAAAAAAAAAA","starts":[8,"x"],"sum":"EOoGhg"}` + "\n":            {Session: "abcd", First: 3, Extra: []byte(`"starts":[8,"x"]`)}, // of a later version
	} {
		line := AppendSegment(nil, h)
		if diff := cmp.Diff(want, string(line)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		line = line[:len(line)-1]
		got, err := ParseSegment(line)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for i := range line {
			for bit := range 8 {
				line[i] ^= 1 << bit
				_, err := ParseSegment(line)
				var e *Error
				if !errors.As(err, &e) {
					t.Fatalf("bit %d of byte %d (%s): %v", bit, i, line, err)
				}
				line[i] ^= 1 << bit
			}
			var e *Error
			if _, err := ParseSegment(line[:i]); !errors.As(err, &e) {
				t.Fatalf("cut at %d: %v", i, err)
			}
		}
	}
}

func TestSegmentShape(t *testing.T) {
	for name, in := range map[string]string{
		"format 0":   `{"strandline":0,"session":"abcd","first":0,"prev":"AAAAAAAAAAAAAAAA"`,
		"format 01":  `{"strandline":01,"session":"abcd","first":0,"prev":"AAAAAAAAAAAAAAAA"`,
		"bad id":     `{"strandline":1,"session":"../x","first":0,"prev":"AAAAAAAAAAAAAAAA"`,
		"short link": `{"strandline":1,"session":"abcd","first":0,"prev":"AAAA"`,
		"bad link":   `{"strandline":1,"session":"abcd","first":0,"prev":"AAAAAAAA*AAAAAAA"`,
		"no first":   `{"strandline":1,"session":"abcd","prev":"AAAAAAAAAAAAAAAA"`,
		"rest":       `{"strandline":1,"session":"abcd","first":0,"prev":"AAAAAAAAAAAAAAAA",`,
		"rest 2":     `{"strandline":1,"session":"abcd","first":0,"prev":"AAAAAAAAAAAAAAAA","a"`,
		"other":      `{"hello":1`,
	} {
		line := appendSum([]byte(in), 0)
		var e *Error
		if _, err := ParseSegment(line[:len(line)-1]); !errors.As(err, &e) || e.Kind != BadEnvelope {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file of a later major format is told from a damaged one.
func TestNewerMajor(t *testing.T) {
	sealed := appendSum([]byte(`{"strandline":2,"whatever":[]`), 0)
	for _, line := range []string{string(sealed[:len(sealed)-1]), `{"strandline":7,"crc64":"abc"}`} {
		var f *FormatError
		if _, err := ParseSegment([]byte(line)); !errors.As(err, &f) || f.Major < 2 {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{`{"strandline":7,`, `{"strandline":2,"session":"abcd","first":0,"prev":"AAAAAAAAAAAAAAAA","sum":"SdWXSw"}`} {
		var e *Error
		if _, err := ParseSegment([]byte(line)); !errors.As(err, &e) {
			t.Errorf("%s: %v", line, err)
		}
	}
	sealed = appendSum([]byte(`{"format":2,"id":7`), 0)
	for _, line := range []string{string(sealed), `{"id":[],"format":99}`} {
		var f *FormatError
		if _, err := ParseHeader([]byte(line)); !errors.As(err, &f) || f.Major < 2 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func testHeader() session.Header {
	return session.Header{Format: 1, ID: "child-1", CreatedAt: 1700000000000, Kind: session.KindFork, Cwd: "/w <ä>\u2028", SeedLength: 3,
		Parent: &session.Parent{ID: "parent", Seq: 2, Link: session.Link{9}, Spans: []session.OriginSpan{{ID: "parent", End: 3}}, Activity: 5},
		Extra:  jsontext.Value(`{"later":{"n":1e400}}`)}
}

func TestHeader(t *testing.T) {
	h := testHeader()
	line, err := AppendHeader([]byte("x"), h)
	if err != nil {
		t.Fatal(err)
	}
	line = line[1:]
	const want = `{"format":1,"id":"child-1","createdAt":1700000000000,"kind":"fork","cwd":"/w <ä>` + "\u2028" + `","parent":{"id":"parent","seq":2,"link":"CQAAAAAAAAAAAAAA","spans":[{"id":"parent","end":3}],"activity":5},"seedLength":3,"later":{"n":1e400},"sum":"nKaC6g"}` + "\n"
	if diff := cmp.Diff(want, string(line)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got, err := ParseHeader(line)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again, err := AppendHeader(nil, got)
	if err != nil || string(again) != string(line) {
		t.Errorf("written again: %s %v", again, err)
	}
	for i := range len(line) - 1 {
		for bit := range 8 {
			line[i] ^= 1 << bit
			var e *Error
			if _, err := ParseHeader(line); !errors.As(err, &e) {
				t.Fatalf("bit %d of byte %d (%s): %v", bit, i, line, err)
			}
			line[i] ^= 1 << bit
		}
		var e *Error
		if _, err := ParseHeader(line[:i]); !errors.As(err, &e) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

// A trail is written also where it is empty, and members of a parent that are not known are kept.
func TestHeaderTrail(t *testing.T) {
	at := func(seqs ...session.Seq) (out []session.Waypoint) {
		out = []session.Waypoint{}
		for _, q := range seqs {
			out = append(out, session.Waypoint{Seq: q, Link: session.Link{byte(q)}})
		}
		return out
	}
	for want, change := range map[string]func(p *session.Parent){
		`"activity":5}`:            func(p *session.Parent) {},
		`"activity":5,"trail":[]}`: func(p *session.Parent) { p.Trail = at() },
		`"trail":[{"seq":0,"link":"AAAAAAAAAAAAAAAA"},{"seq":1,"link":"AQAAAAAAAAAAAAAA"}],"n":1e400}`: func(p *session.Parent) { p.Trail, p.Extra = at(0, 1), jsontext.Value(`{"n":1e400}`) },
	} {
		h := testHeader()
		change(h.Parent)
		line, err := AppendHeader(nil, h)
		if err != nil || !strings.Contains(string(line), want) {
			t.Fatalf("%s, want %s: %v", line, want, err)
		}
		got, err := ParseHeader(line)
		if diff := cmp.Diff(h, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
	}
	for _, trail := range [][]session.Waypoint{at(2), at(-1), at(1, 0), at(1, 1)} {
		h := testHeader()
		h.Parent.Trail = trail
		if _, err := AppendHeader(nil, h); err == nil || !strings.Contains(err.Error(), "trail") {
			t.Errorf("%v was accepted: %v", trail, err)
		}
	}
}

func TestHeaderRefused(t *testing.T) {
	h := testHeader()
	h.Extra = jsontext.Value(`{"sum":"x"}`)
	if _, err := AppendHeader(nil, h); err == nil || !strings.Contains(err.Error(), `"sum"`) {
		t.Error(err)
	}
	h = testHeader()
	h.ID = "../x"
	if _, err := AppendHeader(nil, h); err == nil {
		t.Error("a bad id was accepted")
	}
	line := appendSum(fmt.Appendf(nil, `{"format":1,"id":"abcd","createdAt":1,"kind":"root","cwd":"/","depth":-1`), 0)
	if _, err := ParseHeader(line); err == nil {
		t.Error("a bad depth was read")
	}
}
