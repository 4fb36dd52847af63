// Package redact finds credentials in text and replaces them, for what leaves the machine: exports and telemetry.
//
// It knows the forms of keys that common services give out, private keys, JSON web tokens, Authorization
// headers, user and password of a URL, and assignments to names like password or api_key. It is a help, not a
// wall: a password in plain prose has no form. What it is sure of it replaces by [redacted:<what>]; names, hosts
// and everything around stay, so that a reader still knows what was there.
//
// A replacement never holds a quote or a backslash and never takes one away alone: text that is itself JSON (the
// arguments of a tool call) stays JSON. Redacting twice is redacting once.
package redact

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Redactor redacts by the rules of this package. The zero value is ready; it is safe for concurrent use.
type Redactor struct{}

const mark = "[redacted:"

// Text returns s without credentials, and how many were replaced. Text of what it returns is the same. A text that
// is a JSON object or array is redacted as JSON is.
func (r Redactor) Text(s string) (string, int) {
	if len(s) > 1 && (s[0] == '{' || s[0] == '[') && jsontext.Value(s).IsValid() {
		v, n := r.JSON(jsontext.Value(s))
		if n == 0 {
			return s, 0
		}
		return string(v), n
	}
	total, rules := 0, rules()
	for {
		// Each round takes away text that is no mark, so that there is a last one.
		n := 0
		low := lower(s)
		for i := range rules {
			if found := rules[i].find(s, low); len(found) > 0 {
				s = replace(s, found, mark+rules[i].name+"]")
				low = lower(s)
				n += len(found)
			}
		}
		if n == 0 {
			return s, total
		}
		total += n
	}
}

// lower is s with the ASCII letters in lower case: byte for byte as long.
func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if c := b[i]; 'A' <= c && c <= 'Z' {
					b[i] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// span is a stretch of a text.
type span struct{ from, to int }

// find returns what one rule replaces, in order, without overlaps.
func (r *rule) find(s, low string) []span {
	var all []span
	for _, word := range r.words {
		for at := 0; ; at++ {
			k := strings.Index(low[at:], word)
			if k < 0 {
				break
			}
			at += k
			if r.bound && !boundary(s[:at]) {
				continue
			}
			start := at
			if r.behind {
				start += len(word)
			}
			if r.likely != nil && !r.likely(s[start:]) {
				continue
			}
			sp, end, ok := r.match(s, at, start)
			if ok {
				all = append(all, sp)
			}
			at = max(at, end-1) // what a match covers is not looked at again: a text costs what it is long
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	out := all[:0]
	end := 0
	for _, sp := range all {
		if sp.from >= end {
			out = append(out, sp)
			end = sp.to
		}
	}
	return out
}

// firstLook is how much of a text is given to a pattern at first: most of what it finds is short.
const firstLook = 512

// lastLook is how much of a text is given to a pattern at most: of a longer secret the next round takes the rest,
// as far as it can be told from other text.
const lastLook = 32 << 10

// match tries the pattern at start, for the word at at. end is how far the pattern reached, 0 if it did not match.
func (r *rule) match(s string, at, start int) (sp span, end int, ok bool) {
	for n := firstLook; ; n *= 8 {
		rest := s[start:min(start+n, len(s))]
		m := r.re.FindStringSubmatchIndex(rest)
		whole := len(rest) == len(s)-start
		if m == nil {
			if whole || !r.long || n >= lastLook {
				return span{}, 0, false
			}
			continue
		}
		if m[1] == len(rest) && !whole && n < lastLook {
			continue // it may go on
		}
		from, to := m[0], m[1]
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 && r.secret[g/2] {
				from, to = m[g], m[g+1]
			}
		}
		secret := rest[from:to]
		if secret == "" || strings.Contains(secret, mark) || r.ok != nil && !r.ok(found{s, at, start, rest, m, secret}) {
			return span{}, start + m[1], false
		}
		return span{start + from, start + to}, start + m[1], true
	}
}

// found is a match that a rule judges.
type found struct {
	text   string
	at     int    // of the word in text
	start  int    // of the match in text
	rest   string // the text from start on
	m      []int  // groups, in rest
	secret string // what would be replaced
}

func (f found) group(i int) string {
	if f.m[2*i] < 0 {
		return ""
	}
	return f.rest[f.m[2*i]:f.m[2*i+1]]
}

func replace(s string, spans []span, by string) string {
	var out strings.Builder
	done := 0
	for _, sp := range spans {
		out.WriteString(s[done:sp.from])
		out.WriteString(by)
		done = sp.to
	}
	out.WriteString(s[done:])
	return out.String()
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// JSON returns v, which is valid JSON, with every string value redacted, and how many credentials were replaced. A
// string value of a member whose name says that it is a secret is replaced whole. Names, numbers and what
// holds no credential keep their bytes.
func (r Redactor) JSON(v jsontext.Value) (jsontext.Value, int) {
	var out []byte
	done, n := 0, 0
	name := "" // of the member whose value comes next
	for i := 0; i < len(v); {
		if v[i] != '"' {
			if v[i] != ':' && v[i] != ' ' && v[i] != '\n' && v[i] != '\t' && v[i] != '\r' {
				name = ""
			}
			i++
			continue
		}
		e := endOfString(v, i)
		if e < 0 {
			break
		}
		raw := v[i:e]
		if isName(v, e) {
			name = unquote(raw)
			i = e
			continue
		}
		if text, k := r.value(unquote(raw), name); k > 0 {
			quoted, err := jsontext.AppendQuote(nil, text)
			if err == nil {
				out = append(append(out, v[done:i]...), quoted...)
				done = e
				n += k
			}
		}
		name, i = "", e
	}
	if n == 0 {
		return v, 0
	}
	return append(out, v[done:]...), n
}

func (r Redactor) value(text, name string) (string, int) {
	if what := secretName(name); what != "" && likelySecret(name, text, true) {
		return mark + what + "]", 1
	}
	return r.Text(text)
}

// endOfString returns the index behind the string that begins at b[i], -1 if it does not end.
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// isName reports whether a string that ends at e is the name of a member.
func isName(b []byte, e int) bool {
	for e < len(b) && (b[e] == ' ' || b[e] == '\n' || b[e] == '\t' || b[e] == '\r') {
		e++
	}
	return e < len(b) && b[e] == ':'
}

func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "" // not valid JSON: nothing to be found
	}
	return string(s)
}
