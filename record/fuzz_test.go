package record

import (
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
)

// FuzzParse reads any bytes as a line, as what stands before a chain (so that the envelope is reached),
// as heads, and as a file. What is accepted must come out of Append as it went in.
func FuzzParse(f *testing.F) {
	var link session.Link
	for _, g := range goldens {
		var line []byte
		line, link = Append(nil, g.ev, link, g.synced)
		f.Add(line[:len(line)-1])
		f.Add(line[:len(line)-1-tailLen])
		f.Add(append(line[:len(line):len(line)], line...))
	}
	f.Add([]byte(`{"seq":5,"time":1,"type":"a/b","x":[1],"data":{"x":"}"},"synced":4,"a":[{}],"b":"}"`))
	f.Add(AppendSegment(nil, Segment{Session: "abcd"}))
	if h, err := AppendHeader(nil, testHeader()); err == nil {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, line := range [][]byte{b, seal(string(b))} {
			checkAccepted(t, line)
			ParseSegment(line)
			ParseHeader(line)
		}
		found(t, &limited{b: b}, 5, make([]byte, 4096))
	})
}

// limited is a reader that gives 100 bytes at a time.
type limited struct{ b []byte }

func (l *limited) Read(p []byte) (int, error) {
	n := copy(p, l.b[:min(100, len(l.b))])
	l.b = l.b[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func checkAccepted(t *testing.T, line []byte) {
	raw, err := Parse(line)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(line) || e.Reason == "" {
			t.Fatalf("error %v of %q", err, line)
		}
		return
	}
	ev := raw.Event()
	if err := Check(ev); err != nil {
		t.Fatalf("parsed, but cannot be stored: %v: %q", err, line)
	}
	again, link := Append(nil, ev, session.Link{}, raw.Synced)
	second, err := Parse(again[:len(again)-1])
	if err != nil || string(second.Body()) != string(raw.Body()) || second.Synced != raw.Synced {
		t.Fatalf("%q\nwritten again %q: %v", line, again, err)
	}
	if diff := cmp.Diff(ev, second.Event()); diff != "" {
		t.Fatal(diff)
	}
	if raw.NextLink(session.Link{}) != link {
		t.Fatal("another link")
	}
	if raw.Valid() == nil && raw.After == nil {
		if _, ok := raw.Link(); ok && !jsontext.Value(line).IsValid() {
			t.Fatalf("a valid record that is not JSON: %q", line)
		}
	}
}

// FuzzInternalize reads any JSON as accepted data, which must survive the way to the store and back,
// and any bytes as stored data, which must not panic.
func FuzzInternalize(f *testing.F) {
	for _, s := range []string{`{"a":"0123456789"}`, `{"$blob":{"$$blob":1}}`, `{"\u0024blob":"\\\""}`,
		`{"$blob":"` + BlobName([]byte(`"x"`)) + `","bytes":3}`, `{"$\u0062lob":["$blob",{"":"$"}]}`} {
		f.Add([]byte(s), 5)
	}
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		m := blobMap{}
		m.put([]byte(`"x"`))
		Blobs(b, func(name string) {
			if !ValidBlobName(name) {
				t.Fatal(name)
			}
		})
		Internalize(b, m.get)
		data := jsontext.Value(b).Clone()
		if data.Kind() != '{' || !data.IsValid() || data.Compact() != nil {
			return
		}
		stored, err := Externalize(data, max(limit, 2), m.put)
		if err != nil || !stored.IsValid() {
			t.Fatalf("%s stored as %s: %v", data, stored, err)
		}
		back, err := Internalize(stored, m.get)
		if err != nil || string(back) != string(data) {
			t.Fatalf("%s stored as %s comes back as %s: %v", data, stored, back, err)
		}
	})
}
