package importer

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
)

// tidyDepth is how deep data may nest before the rest is kept as text.
const tidyDepth = session.MaxNesting - 8

// Tidy returns data in the form in which a log keeps it. What a log does not take is mended: invalid text gets
// replacement characters, of equal names the last one stays, numbers that are not the same in every reader
// and what nests too deep become text. mended says whether. ok is false for what is no object and for what is
// too large for a record.
func Tidy(data []byte) (out jsontext.Value, mended, ok bool) {
	if v, err := session.CheckData(data); err == nil {
		return v, false, true
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), lenient...)
	if dec.PeekKind() != '{' {
		return nil, false, false
	}
	b, ok := tidy(nil, dec, 0)
	if !ok {
		return nil, false, false
	}
	v, err := session.CheckData(b)
	return v, true, err == nil
}

// tidy appends the next value of dec.
func tidy(dst []byte, dec *jsontext.Decoder, depth int) ([]byte, bool) {
	kind := dec.PeekKind()
	if depth >= tidyDepth && (kind == '{' || kind == '[') {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		dst, err = jsontext.AppendQuote(dst, Valid(string(v)))
		return dst, err == nil
	}
	t, err := dec.ReadToken()
	if err != nil {
		return nil, false
	}
	switch kind {
	case '"':
		dst, err = jsontext.AppendQuote(dst, t.String())
		return dst, err == nil
	case '0':
		n := t.String()
		if _, err := session.CheckData([]byte(`{"n":` + n + `}`)); err != nil {
			n = `"` + n + `"`
		}
		return append(dst, n...), true
	case '[':
		dst = append(dst, '[')
		for i := 0; dec.PeekKind() != ']'; i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			var ok bool
			if dst, ok = tidy(dst, dec, depth+1); !ok {
				return nil, false
			}
		}
		_, err = dec.ReadToken()
		return append(dst, ']'), err == nil
	case '{':
		return tidyObject(dst, dec, depth)
	}
	return append(dst, t.String()...), true
}

func tidyObject(dst []byte, dec *jsontext.Decoder, depth int) ([]byte, bool) {
	at := map[string]int{}
	var names []string
	var values [][]byte
	for dec.PeekKind() != '}' {
		t, err := dec.ReadToken()
		if err != nil {
			return nil, false
		}
		name := t.String()
		v, ok := tidy(nil, dec, depth+1)
		if !ok {
			return nil, false
		}
		if i, dup := at[name]; dup {
			values[i] = v
			continue
		}
		at[name] = len(names)
		names, values = append(names, name), append(values, v)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, false
	}
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = jsontext.AppendQuote(dst, name); err != nil {
			return nil, false
		}
		dst = append(append(dst, ':'), values[i]...)
	}
	return append(dst, '}'), true
}

// Valid replaces what is not UTF-8.
func Valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
