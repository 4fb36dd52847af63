package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	v2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestCheckDataTable(t *testing.T) {
	nest := func(n int) string {
		return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	for _, tc := range []struct {
		in, want string // "": refused
	}{
		{`{}`, `{}`},
		{" \t\r\n{ \"a\" : 1 } \n", `{"a":1}`},
		{`{"a":9007199254740991,"b":-9007199254740991}`, `{"a":9007199254740991,"b":-9007199254740991}`},
		{`{"a":9007199254740992}`, ``},
		{`{"a":-9007199254740992}`, ``},
		{`{"a":99999999999999999999999}`, ``},
		{`{"a":1.50,"b":-0,"c":1E+2,"d":-0.0e-7}`, `{"a":1.50,"b":-0,"c":1E+2,"d":-0.0e-7}`},
		{`{"a":1e400}`, ``},
		{`{"a":1e-400}`, `{"a":1e-400}`},
		{`{"a":NaN}`, ``},
		{`{"a":01}`, ``},
		{`{"a":1,"a":1}`, ``},
		{`{"a":1,"\u0061":1}`, ``},
		{`{"x":[{"a":1,"a":2}]}`, ``},
		{`{"a":"\u0000 \u00e4 \/ \ud83d\ude00"}`, `{"a":"\u0000 \u00e4 \/ \ud83d\ude00"}`},
		{`{"a":"\ud800"}`, ``},
		{`{"a":"\udc00\ud800"}`, ``},
		{"{\"a\":\"\xc3\x28\"}", ``},
		{"{\"a\":\"\x01\"}", ``},
		{"{\"\xff\":1}", ``},
		{`{"a":1}{}`, ``},
		{`{"a":1,}`, ``},
		{`[1]`, ``}, {`"a"`, ``}, {`null`, ``}, {``, ``}, {`{`, ``}, {`{"a"`, ``}, {"\ufeff{}", ``},
		{nest(MaxNesting - 1), nest(MaxNesting - 1)},
		{nest(MaxNesting), ``},
		{`{"a":"` + strings.Repeat("x", 2*MaxRecord) + `"}`, `{"a":"` + strings.Repeat("x", 2*MaxRecord) + `"}`}, // a blob
		{`{"a":[` + strings.Repeat(`"x",`, MaxRecord/4) + `1]}`, ``},
	} {
		in := []byte(tc.in)
		got, err := CheckData(in)
		switch {
		case tc.want == "" && !errors.Is(err, ErrNotObject):
			t.Errorf("%.60q: %.60q %v, want a refusal", tc.in, got, err)
		case tc.want == "" && strings.Contains(err.Error(), "<nil>"):
			t.Errorf("%.60q: the error does not say why: %v", tc.in, err)
		case tc.want != "" && (err != nil || string(got) != tc.want):
			t.Errorf("%.60q: %.60q %v", tc.in, got, err)
		}
		for i := range in {
			in[i] = 'X'
		}
		if tc.want != "" && string(got) != tc.want {
			t.Errorf("%.60q: the result lies in the caller's memory", tc.in)
		}
	}
}

// FuzzCheckData holds CheckData to jsontext: what it accepts is what jsontext compacts it to, and is
// accepted again unchanged; what it refuses is no object, not valid, or breaks one of our number and size
// rules.
func FuzzCheckData(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1.50,-0e1,"x\u0041"],"b":{}}`, `{"a":9007199254740993}`, `{"a":1,"a":2}`, `{"\ud800":1}`, "{\"a\":\"\xff\"}", `{"a":1e999}`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := CheckData(data)
		want := jsontext.Value(bytes.Clone(data))
		valid := want.Kind() == '{' && want.IsValid()
		if err != nil {
			if valid && !breaksOurRules(data) {
				t.Fatalf("%q is refused: %v", data, err)
			}
			return
		}
		if !valid || breaksOurRules(data) {
			t.Fatalf("%q is accepted", data)
		}
		if err := want.Compact(); err != nil || !bytes.Equal(want, got) {
			t.Fatalf("%q gives %q, jsontext %q", data, got, want)
		}
		if again, err := CheckData(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q is not accepted again: %v", got, err)
		}
		checkFields(t, got)
	})
}

// breaksOurRules says the number and nesting rules again, with another decoder.
func breaksOurRules(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	depth := 0
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		switch v := tok.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				if depth++; depth >= MaxNesting {
					return true
				}
			} else {
				depth--
			}
		case json.Number:
			s := v.String()
			f, err := strconv.ParseFloat(s, 64)
			if err != nil || math.IsInf(f, 0) {
				return true
			}
			if !strings.ContainsAny(s, ".eE") && math.Abs(f) > maxExact {
				return true
			}
		}
	}
}

// checkFields compares Field with the decoder for every member of obj, and for one that is not there.
func checkFields(t interface{ Fatalf(string, ...any) }, obj jsontext.Value) {
	var members map[string]jsontext.Value
	if err := v2.Unmarshal(obj, &members); err != nil {
		t.Fatalf("%s: %v", obj, err)
	}
	for name, want := range members {
		got, ok := Field(obj, name)
		if !ok || !bytes.Equal(got, want) {
			t.Fatalf("Field(%s, %q) is %s %t, want %s", obj, name, got, ok, want)
		}
		var s string
		if v2.Unmarshal(want, &s) == nil && fieldString(obj, name) != s {
			t.Fatalf("fieldString(%s, %q) is %q, want %q", obj, name, fieldString(obj, name), s)
		}
		var n int
		if v2.Unmarshal(want, &n) == nil && want.Kind() == '0' {
			if got, ok := fieldInt(obj, name); !ok || got != n {
				t.Fatalf("fieldInt(%s, %q) is %d %t, want %d", obj, name, got, ok, n)
			}
		}
	}
	if _, there := members["no such"]; !there {
		if got, ok := Field(obj, "no such"); ok {
			t.Fatalf("Field(%s) finds %s", obj, got)
		}
	}
	n := 0
	eachMember(obj, func(name, value []byte) {
		n++
		if want, ok := members[unquote(name)]; !ok || !bytes.Equal(want, value) {
			t.Fatalf("eachMember(%s) yields %s %s", obj, name, value)
		}
		if value[0] == '[' {
			var elements []jsontext.Value
			if err := v2.Unmarshal(value, &elements); err != nil {
				t.Fatalf("%v", err)
			}
			i := 0
			eachElement(value, func(e []byte) {
				if i >= len(elements) || !bytes.Equal(elements[i], e) {
					t.Fatalf("eachElement(%s) yields %s at %d", value, e, i)
				}
				i++
			})
			if i != len(elements) {
				t.Fatalf("eachElement(%s) yields %d of %d", value, i, len(elements))
			}
		}
	})
	if n != len(members) {
		t.Fatalf("eachMember(%s) yields %d of %d", obj, n, len(members))
	}
}

func value(depth int) *rapid.Generator[string] {
	texts := rapid.SampledFrom([]string{`""`, `"a"`, `"a\"b"`, `"\\"`, `"\\\""`, `"{[,:]}"`, `"\u0041"`, `"ä"`, `"\u00e4\n"`})
	flat := rapid.OneOf(texts, rapid.SampledFrom([]string{"0", "-1", "12", "1.50", "1e3", "true", "false", "null"}))
	if depth == 0 {
		return flat
	}
	return rapid.OneOf(flat, object(depth-1), rapid.Map(rapid.SliceOfN(value(depth-1), 0, 4), func(v []string) string {
		return "[" + strings.Join(v, ",") + "]"
	}))
}

func object(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			if i > 0 {
				b.WriteByte(',')
			}
			name := rapid.SampledFrom([]string{"a", "a\\u0062", "\\\"", "id", "\\\\", "ü", ""}).Draw(t, "name")
			fmt.Fprintf(&b, `"%s%d":%s`, name, i, value(depth).Draw(t, "value"))
		}
		b.WriteByte('}')
		return b.String()
	})
}

// The hand-written scanners agree with the decoder on every object, and survive every cut of it.
func TestFieldsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := object(3).Draw(t, "object")
		obj, err := CheckData([]byte(text))
		if err != nil || string(obj) != text {
			t.Fatalf("%s: %s %v", text, obj, err)
		}
		checkFields(t, obj)
		cut := obj[:rapid.IntRange(0, len(obj)).Draw(t, "cut")]
		for _, name := range []string{"a0", "\"1", "", "id2"} {
			_, _ = Field(cut, name)
			_ = fieldString(cut, name)
		}
		eachMember(cut, func(_, v []byte) { eachElement(v, func([]byte) {}) })
	})
}

// What a stored log holds may be no JSON at all: the fold and the projection take it.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{`{}`, `{"`, `{"message":{"content":[{"type":"tool-call"`, `{"turn":1,"step":1,"message":{"id":"result-1-1-0-0","content":[`, `[]`, `{"error":{"code":"TOOL_NOT_STARTED"},"message":"`} {
		for i := range len(coreKinds()) {
			f.Add(uint8(i), uint8(i), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, typ, op uint8, data []byte) {
		kinds := coreKinds()
		st := NewState(Header{ID: "fuzz"}, nil)
		ops := []SurfaceOp{{}, Append(), Replace(0, 1), Restore(1)}
		var evs Events
		for i := range 3 {
			ev := Event{Seq: Seq(i), Type: kinds[(int(typ)+i)%len(kinds)].Type, Op: ops[int(op>>(2*i))%4], Data: data}
			evs = append(evs, ev)
			st.Load(ev)
			_ = IsActivity(ev)
		}
		if _, err := ProjectAll(st, evs); err != nil {
			t.Fatal(err)
		}
		for _, c := range st.Closers() {
			if err := st.Apply(c); err != nil {
				t.Fatal(err)
			}
		}
		if again := st.Closers(); len(again) > 0 {
			t.Fatalf("closers again: %v", again)
		}
	})
}
