package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"pgregory.net/rapid"
)

// testLog returns n records of varied size and the offset of each.
func testLog(n int) (log []byte, at []int) {
	var link session.Link
	for i := range n {
		at = append(at, len(log))
		ev := session.Event{Seq: session.Seq(i), Time: 1, Type: "user/message", Op: session.Append(),
			Data: jsontext.Value(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", i*37%200)))}
		log, link = Append(log, ev, link, session.Seq(i%3-1))
	}
	return log, append(at, len(log))
}

// found is what a scan gave: records as "seq@offset", bad lines as "kind@offset+bytes".
func found(t interface{ Fatal(...any) }, r io.Reader, off int64, buf []byte) []string {
	var out []string
	rd := NewReader(r, off, buf)
	next := off
	for {
		tok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch tok {
		case End:
			if _, at := rd.Rest(); at != next {
				t.Fatal("ended at", at, "want", next)
			}
			return out
		case Good:
			if rd.At != next {
				t.Fatal("hole before", rd.At, "want", next)
			}
			next += int64(len(rd.Raw.Line()) + 1)
			out = append(out, fmt.Sprintf("%d@%d", rd.Raw.Seq, rd.At))
		case Broken:
			if rd.At != next || rd.Bad.Offset != next || rd.Bad.Bytes < 1 {
				t.Fatal("hole before", rd.Bad.Offset, "want", next)
			}
			next += rd.Bad.Bytes
			out = append(out, fmt.Sprintf("%s@%d+%d", rd.Bad.Kind, rd.Bad.Offset, rd.Bad.Bytes))
		}
	}
}

func TestBadLines(t *testing.T) {
	log, at := testLog(8)
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	rec := func(i int) []byte { return log[at[i]:at[i+1]] }
	cut := func(b []byte, n int) []byte { return b[:len(b)-n] }
	zeros := make([]byte, 100)
	flipped := bytes.Clone(rec(3))
	flipped[20] ^= 4
	newer := append(seal(`{"seq":3,"time":1,"type":"a/b","surfaceOp":"hide","data":{}`), '\n')
	long := append(bytes.Repeat([]byte("a"), MaxLine+10), '\n')

	tests := []struct {
		name string
		in   []byte
		want []string // after record 0
		seq  session.Seq
	}{
		{"torn", cut(rec(3), 7), []string{fmt.Sprintf("torn@%d+%d", at[1], len(rec(3))-7)}, 3},
		{"only the LF is missing", cut(rec(3), 1), []string{fmt.Sprintf("torn@%d+%d", at[1], len(rec(3))-1)}, 3},
		{"zeros at the end", zeros, []string{fmt.Sprintf("zeros@%d+100", at[1])}, session.None},
		{"zeros inside", cat(rec(3)[:50], zeros, rec(4)[20:], rec(5)),
			[]string{fmt.Sprintf("zeros@%d+%d", at[1], 130+len(rec(4))), fmt.Sprintf("5@%d", at[1]+130+len(rec(4)))}, 3},
		{"joined", cat(cut(rec(3), 1), rec(4), rec(5)),
			[]string{fmt.Sprintf("joined records@%d+%d", at[1], len(rec(3))+len(rec(4))-1), fmt.Sprintf("5@%d", at[1]+len(rec(3))+len(rec(4))-1)}, 3},
		{"half", cat(rec(3)[:40], rec(4), rec(5)),
			[]string{fmt.Sprintf("half a record@%d+%d", at[1], 40+len(rec(4))), fmt.Sprintf("5@%d", at[1]+40+len(rec(4)))}, 3},
		{"second half", cat(rec(3)[40:], rec(5)),
			[]string{fmt.Sprintf("half a record@%d+%d", at[1], len(rec(3))-40), fmt.Sprintf("5@%d", at[1]+len(rec(3))-40)}, session.None},
		{"first half with LF", cat(rec(3)[:40], []byte{'\n'}, rec(5)),
			[]string{fmt.Sprintf("half a record@%d+41", at[1]), fmt.Sprintf("5@%d", at[1]+41)}, 3},
		{"changed", cat(flipped, rec(5)),
			[]string{fmt.Sprintf("changed bytes@%d+%d", at[1], len(flipped)), fmt.Sprintf("5@%d", at[1]+len(flipped))}, 3},
		{"newer", cat(newer, rec(5)),
			[]string{fmt.Sprintf("a record of a newer format@%d+%d", at[1], len(newer)), fmt.Sprintf("5@%d", at[1]+len(newer))}, 3},
		{"foreign", cat([]byte("hello\n\n"), rec(5)),
			[]string{fmt.Sprintf("not a record@%d+6", at[1]), fmt.Sprintf("not a record@%d+1", at[1]+6), fmt.Sprintf("5@%d", at[1]+7)}, session.None},
		{"long", cat(long, rec(5)),
			[]string{fmt.Sprintf("too long for a record@%d+%d", at[1], len(long)), fmt.Sprintf("5@%d", at[1]+len(long))}, session.None},
		{"long, with a record at its end", cat(cut(long, 1), rec(4), rec(5)),
			[]string{fmt.Sprintf("too long for a record@%d+%d", at[1], len(long)-1+len(rec(4))), fmt.Sprintf("5@%d", at[1]+len(long)-1+len(rec(4)))}, session.None},
		{"something and a MiB and more of zeros", cat([]byte("a"), make([]byte, 3<<20)), []string{fmt.Sprintf("zeros@%d+%d", at[1], 3<<20+1)}, session.None},
		{"long and torn", cut(long, 1), []string{fmt.Sprintf("too long for a record@%d+%d", at[1], len(long)-1)}, session.None},
		{"a MiB and more of zeros", make([]byte, 3<<20), []string{fmt.Sprintf("zeros@%d+%d", at[1], 3<<20)}, session.None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := cat(rec(0), tt.in)
			want := append([]string{"0@0"}, tt.want...)
			for _, size := range []int{4096, 5000, 4 << 20} {
				if diff := cmp.Diff(want, found(t, bytes.NewReader(in), 0, make([]byte, size))); diff != "" {
					t.Errorf("window %d (-want +got)\n%s", size, diff)
				}
			}
			var s Scanner
			s.Feed(in, true)
			for s.Next() != Broken {
			}
			if s.Bad.Seq != tt.seq {
				t.Errorf("seq %d, want %d", s.Bad.Seq, tt.seq)
			}
			if s.Bad.LF != (in[s.Bad.Offset+s.Bad.Bytes-1] == '\n') || s.Bad.Tail() == s.Bad.LF {
				t.Errorf("LF is %v", s.Bad.LF)
			}
			if s.Bad.Blank != (len(bytes.Trim(in[s.Bad.Offset:s.Bad.Offset+s.Bad.Bytes], "\x00")) == 0) && s.Bad.Bytes > 1 {
				t.Errorf("Blank is %v", s.Bad.Blank)
			}
			if s.Bad.String() == "" {
				t.Error("no description")
			}
		})
	}
}

// Whatever the windows are, a scan finds the same, and all bytes are accounted for.
func TestWindows(t *testing.T) {
	log, at := testLog(200)
	log[at[50]+3] ^= 1
	copy(log[at[80]+10:], make([]byte, 700))
	log = log[:len(log)-5]
	want := found(t, bytes.NewReader(log), 77, make([]byte, 1<<20))
	if len(want) < 190 {
		t.Fatal(want)
	}
	for name, r := range map[string]io.Reader{
		"small windows": bytes.NewReader(log),
		"byte by byte":  iotest.OneByteReader(bytes.NewReader(log)),
		"data with EOF": iotest.DataErrReader(bytes.NewReader(log)),
	} {
		if diff := cmp.Diff(want, found(t, r, 77, make([]byte, 4096))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// The memory of a Reader does not grow with what a file holds.
func TestReaderIsBounded(t *testing.T) {
	rd := NewReader(bytes.NewReader(make([]byte, 8<<20)), 0, make([]byte, 5000))
	for tok, err := rd.Next(); tok != End; tok, err = rd.Next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(rd.buf) > MaxLine+1 {
		t.Errorf("the buffer has %d bytes", len(rd.buf))
	}
}

func TestReaderError(t *testing.T) {
	log, at := testLog(3)
	bad := errors.New("the disk is gone")
	rd := NewReader(io.MultiReader(bytes.NewReader(log[:at[2]+10]), iotest.ErrReader(bad)), 0, nil)
	for range 2 {
		if tok, err := rd.Next(); tok != Good || err != nil {
			t.Fatal(tok, err)
		}
	}
	if tok, err := rd.Next(); tok != More || !errors.Is(err, bad) {
		t.Fatal(tok, err)
	}
}

// Any damage to a log leaves a valid subset of its records: never a record that was not written, and
// every record whose bytes and line ends were not touched.
func TestDamageIsBounded(t *testing.T) {
	log, at := testLog(30)
	rapid.Check(t, func(t *rapid.T) {
		bad := bytes.Clone(log)
		from := rapid.IntRange(0, len(log)-1).Draw(t, "from")
		to := min(len(log), from+rapid.IntRange(1, 600).Draw(t, "len"))
		shift := 0
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			clear(bad[from:to])
		case 1:
			bad, shift = append(bad[:from:from], bad[to:]...), to-from
		case 2:
			bad[from] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
			to = from + 1
		case 3:
			bad = append(bad[:to:to], log[from:]...)
			shift = from - to
		}
		var s Scanner
		s.Feed(bad, true)
		var got []string
		for tok := s.Next(); tok != End; tok = s.Next() {
			if tok == Good {
				line := string(s.Raw.Line())
				i := int(s.Raw.Seq)
				if line+"\n" != string(log[at[i]:at[i+1]]) {
					link, ok := s.Raw.Link()
					if _, right := s.Raw.CheckLink(link); ok && right {
						t.Fatalf("a record that was never written: %s", line)
					}
				}
				got = append(got, line)
			}
		}
		for i := range 30 {
			// A record needs its own bytes and the LF before it.
			if at[i+1] <= from || at[i]-1 >= to {
				if !strings.Contains(strings.Join(got, "\n"), string(log[at[i]:at[i+1]-1])) {
					t.Fatalf("record %d was not touched (%d..%d, shift %d) and is gone", i, from, to, shift)
				}
			}
		}
	})
}

// The longest line that may be read is read, whatever the window; one more byte is too long.
func TestLongestLine(t *testing.T) {
	sized := func(n int) []byte {
		ev := session.Event{Type: "x/y", Data: jsontext.Value(`{"a":""}`)}
		line, _ := Append(nil, ev, session.Link{}, session.None)
		ev.Data = jsontext.Value(`{"a":"` + strings.Repeat("x", n-len(line)) + `"}`)
		line, _ = Append(nil, ev, session.Link{}, session.None)
		return line
	}
	for n, want := range map[int]string{MaxRecord: "0@0", MaxLine: "0@0", MaxLine + 1: fmt.Sprintf("too long for a record@0+%d", MaxLine+1)} {
		line := sized(n)
		if len(line) != n {
			t.Fatal(len(line), n)
		}
		for _, size := range []int{4096, 1 << 20, 4 << 20} {
			if diff := cmp.Diff([]string{want}, found(t, bytes.NewReader(line), 0, make([]byte, size))); diff != "" {
				t.Errorf("%d bytes, window %d (-want +got)\n%s", n, size, diff)
			}
		}
	}
}

// An over-long line stays one line, whatever its later windows look like.
func TestLongLineInWindows(t *testing.T) {
	log, at := testLog(2)
	for name, end := range map[string][]byte{"a record": log[:at[1]], "zeros": make([]byte, 50)} {
		var s Scanner
		s.Feed(bytes.Repeat([]byte("a"), MaxLine+1), false)
		if tok := s.Next(); tok != More {
			t.Fatal(tok)
		}
		s.Feed(end, true)
		if tok := s.Next(); tok != Broken || s.Bad.Bytes != int64(MaxLine+1+len(end)) || s.Bad.Blank {
			t.Errorf("%s: token %d, %+v", name, tok, s.Bad)
		}
		if tok := s.Next(); tok != End {
			t.Errorf("%s: token %d behind it", name, tok)
		}
	}
}
