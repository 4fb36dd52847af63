package native_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
)

// TestTruncated cuts a file at every byte behind its first line: what is whole is taken in, as a copy, and what
// is missing is said.
func TestTruncated(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("one", strings.Repeat("z", 34000), "three", "four"))
	file := exported(t, from, "sess", nil)
	first := strings.IndexByte(file, '\n') + 1
	blob := strings.Index(file, `{"blob":`)
	for cut := first; cut < len(file)-1; cut++ {
		if cut == blob+100 {
			cut += 33800 // within the blob
		}
		st := newStore(t)
		r := mustTake(t, st, file[:cut])
		whole := 0
		begun := 0
		for l := range strings.Lines(file[:cut]) {
			if strings.HasPrefix(l, `{"seq":`) && (strings.HasSuffix(l, "\n") || file[cut] == '\n') {
				whole++
			}
			begun = len(l)
			if strings.HasSuffix(l, "\n") || file[cut] == '\n' {
				begun = 0
			}
		}
		if r.ID == "sess" || int(r.Events) != whole || dropped(r, "has not") != int64(4-whole) || r.Tail != int64(begun) {
			t.Fatalf("cut at %d: %+v, want %d events and a tail of %d", cut, r, whole, begun)
		}
		if got := records(exported(t, st, r.ID, nil)); !strings.HasPrefix(records(file), got) {
			t.Fatalf("cut at %d: %s", cut, got)
		}
	}
	// The last LF alone is missed by nobody.
	if r := mustTake(t, newStore(t), file[:len(file)-1]); r.ID != "sess" || r.Events != 4 || len(r.Fidelity.Dropped) > 0 {
		t.Errorf("%+v", r)
	}
	// A session that was damaged when it was exported is a copy, too.
	line, err := record.AppendExport(nil, record.Export{Header: header("sess"), Events: 4, Incomplete: "it was damaged"})
	if err != nil {
		t.Fatal(err)
	}
	if r := mustTake(t, newStore(t), string(line)+records(file)); r.ID == "sess" || r.Events != 4 || dropped(r, "it was damaged") != 1 {
		t.Errorf("%+v", r)
	}
}

// TestFlipped flips a bit of each byte: the file is refused, with the line that is wrong. Only a line that no longer
// begins like one that is known is passed over, as one of a later version would be: then the next line is the wrong
// one, and behind the last record the copy is known to be shortened. Nothing that was changed is stored.
func TestFlipped(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("one", strings.Repeat("z", 34000), "three", "four"))
	file := exported(t, from, "sess", nil)
	lines := strings.SplitAfter(file, "\n")
	blob := strings.Index(file, `{"blob":`)
	for i := range len(file) {
		if i > blob+120 && i < blob+33900 && i%997 != 0 {
			continue
		}
		begin := strings.LastIndexByte(file[:i], '\n') + 1
		line := 1 + strings.Count(file[:i], "\n")
		wrong := line
		if line > 1 && i-begin < len(`{"blob":"`) { // its beginning
			for wrong++; wrong < len(lines) && !strings.HasPrefix(lines[wrong-1], `{"seq":`); wrong++ {
			}
		}
		b := []byte(file)
		b[i] ^= 1
		st := newStore(t)
		r, err := take(t, st, string(b))
		switch {
		case err != nil:
			if n := sessions(t, st); n != 0 {
				t.Fatalf("byte %d: refused and stored: %v", i, err)
			}
			var unknown *importer.UnknownFormatError
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d: ", line)) && !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d: ", wrong)) && !(line == 1 && errors.As(err, &unknown)) {
				t.Fatalf("byte %d, in line %d: %v", i, line, err)
			}
		case r.ID == "sess" && i < len(file)-1:
			t.Fatalf("byte %d, in line %d, is taken for the session: %+v", i, line, r)
		case len(r.Fidelity.Dropped) == 0 && i < len(file)-1:
			t.Fatalf("byte %d, in line %d: nothing is said: %+v", i, line, r)
		default:
			if got := records(exported(t, st, r.ID, nil)); !strings.HasPrefix(records(file), got) {
				t.Fatalf("byte %d: %s", i, got)
			}
		}
	}
}

// sealed is a first line with the sum that it should have.
func sealed(line string) string {
	const mark = `,"sum":"`
	b := line[:strings.LastIndex(line, mark)]
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum([]byte(b), crc32.MakeTable(crc32.Castagnoli)))
	return b + mark + base64.RawURLEncoding.EncodeToString(sum) + "\"}\n"
}

// TestRefused: files that are whole lines, but not the session that they say they are.
func TestRefused(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("one", strings.Repeat("z", 34000), "three", "four"))
	put(t, from, header("other"), events("one", "other", "three", "four"))
	file, other := exported(t, from, "sess", nil), exported(t, from, "other", nil)
	l, o := strings.SplitAfter(file, "\n"), strings.SplitAfter(other, "\n") // first, one, blob, two, three, four
	newer := strings.Replace(file, `{"strandline":1`, `{"strandline":2`, 1)
	if sealed(l[0]) != l[0] {
		t.Fatal("the test does not make sums")
	}
	for name, tt := range map[string]struct {
		file, want string
	}{
		"a record left out":         {l[0] + l[1] + l[2] + l[4], "line 4: the record has seq 2, 1 is the next"},
		"a record twice":            {l[0] + l[1] + l[1], "line 3: the record has seq 0, 1 is the next"},
		"two exchanged":             {l[0] + l[1] + l[2] + l[4] + l[3], "line 4: the record has seq 2"},
		"a record of another":       {l[0] + l[1] + l[2] + l[3] + o[3], "line 5: the record at seq 2 is not the one that followed"},
		"no blob":                   {l[0] + l[1] + l[3] + l[4] + l[5], "line 3: "},
		"the blob behind its user":  {l[0] + l[1] + l[3] + l[2] + l[4] + l[5], "line 3: "},
		"another blob of this name": {l[0] + l[1] + strings.Replace(l[2], "zzz", "zaz", 1) + l[3], "line 3: "},
		"another first line":        {strings.Replace(l[0], `"createdAt":7`, `"createdAt":8`, 1) + l[1], "line 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			if r, err := take(t, st, tt.file); err == nil || !strings.Contains(err.Error(), tt.want) || sessions(t, st) != 0 {
				t.Errorf("%+v %v, want %q", r, err, tt.want)
			}
		})
	}
	// A newer format is no damage, and said to be newer, if that is not itself the damage.
	if _, err := take(t, newStore(t), newer); err == nil || !strings.HasPrefix(err.Error(), "line 1: ") {
		t.Errorf("a version whose sum is wrong: %v", err)
	}
	for _, file := range []string{sealed(newer[:len(l[0])]) + records(newer), `{"strandline":2,"export":{"id":"sess","new":true}}` + "\n"} {
		_, err := take(t, newStore(t), file)
		var v *importer.VersionError
		if !errors.As(err, &v) || v.Have != 2 || v.Know != session.Format || v.Tool != native.Name {
			t.Errorf("%.60s: %v", file, err)
		}
	}
	// A line of a later version between records is passed over and told.
	st := newStore(t)
	if r := mustTake(t, st, l[0]+l[1]+"{\"later\":1}\n"+strings.Join(l[2:], "")); r.Events != 4 || dropped(r, "later version") != 1 {
		t.Errorf("%+v", r)
	}
}
