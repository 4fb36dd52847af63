package importer

import (
	"bytes"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Object is a JSON object whose members keep their order and their text. Of equal names the last counts.
type Object struct {
	members []member
	index   map[string]int // of members, if there are many
	changed bool
}

type member struct {
	name  string
	value jsontext.Value
}

// ParseObject reads an object; ok is false for anything else. Values are slices of raw.
func ParseObject(raw []byte) (o Object, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), lenient...)
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return o, false
	}
	for dec.PeekKind() != '}' {
		t, err := dec.ReadToken()
		if err != nil || t.Kind() != '"' {
			return o, false
		}
		name := t.String()
		v, err := dec.ReadValue()
		if err != nil {
			return o, false
		}
		end := dec.InputOffset()
		value := jsontext.Value(raw[end-int64(len(v)) : end : end])
		if i := o.find(name); i >= 0 {
			o.members[i].value, o.changed = value, true
			continue
		}
		o.add(name, value)
	}
	if _, err := dec.ReadToken(); err != nil {
		return o, false
	}
	_, err := dec.ReadToken()
	return o, err == io.EOF
}

// NewObject returns an object of name, value pairs.
func NewObject(pairs ...any) Object {
	o := Object{changed: true}
	for i := 0; i+1 < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			o.SetString(pairs[i].(string), v)
		case jsontext.Value:
			o.Set(pairs[i].(string), v)
		case Object:
			o.Set(pairs[i].(string), v.Encode())
		case int:
			o.SetInt(pairs[i].(string), int64(v))
		}
	}
	return o
}

const fewMembers = 16

func (o *Object) add(name string, v jsontext.Value) {
	o.members = append(o.members, member{name, v})
	switch n := len(o.members); {
	case o.index != nil:
		o.index[name] = n - 1
	case n > fewMembers:
		o.index = make(map[string]int, 2*n)
		for i, m := range o.members {
			o.index[m.name] = i
		}
	}
}

func (o Object) find(name string) int {
	if o.index != nil {
		if i, ok := o.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range o.members {
		if o.members[i].name == name {
			return i
		}
	}
	return -1
}

// Len is the number of members.
func (o Object) Len() int { return len(o.members) }

// Changed reports whether the object differs from what it was read from.
func (o Object) Changed() bool { return o.changed }

// Get returns the value of a member, nil if there is none.
func (o Object) Get(name string) jsontext.Value {
	if i := o.find(name); i >= 0 {
		return o.members[i].value
	}
	return nil
}

// Has reports whether there is a member that is not null.
func (o Object) Has(name string) bool {
	v := o.Get(name)
	return v != nil && v.Kind() != 'n'
}

// String returns a text member; ok is false for anything else.
func (o Object) String(name string) (s string, ok bool) { return Text(o.Get(name)) }

// Int returns a member that is a whole number; ok is false for anything else.
func (o Object) Int(name string) (n int64, ok bool) { return Int(o.Get(name)) }

// Object returns a member that is an object.
func (o Object) Object(name string) (Object, bool) { return ParseObject(o.Get(name)) }

// Set sets a member, at its place or at the end.
func (o *Object) Set(name string, v jsontext.Value) {
	o.changed = true
	if i := o.find(name); i >= 0 {
		o.members[i].value = v
		return
	}
	o.add(name, v)
}

// SetString sets a text member.
func (o *Object) SetString(name, s string) {
	v, _ := jsontext.AppendQuote(nil, Valid(s))
	o.Set(name, v)
}

// SetInt sets a number.
func (o *Object) SetInt(name string, n int64) { o.Set(name, strconv.AppendInt(nil, n, 10)) }

// Delete takes members away.
func (o *Object) Delete(names ...string) {
	for _, name := range names {
		if i := o.find(name); i >= 0 {
			members := append(o.members[:i:i], o.members[i+1:]...)
			o.members, o.index, o.changed = nil, nil, true
			for _, m := range members {
				o.add(m.name, m.value)
			}
		}
	}
}

// Each yields the members in order.
func (o Object) Each(f func(name string, v jsontext.Value)) {
	for _, m := range o.members {
		f(m.name, m.value)
	}
}

// Encode writes the object.
func (o Object) Encode() jsontext.Value {
	out := []byte{'{'}
	for i, m := range o.members {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, m.name)
		out = append(append(out, ':'), m.value...)
	}
	return append(out, '}')
}

// Text reads a JSON string; invalid text in it is replaced.
func Text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	t, err := jsontext.NewDecoder(bytes.NewBuffer(v), lenient...).ReadToken()
	if err != nil {
		return "", false
	}
	return t.String(), true
}

// Int reads a whole number that is the same in every reader.
func Int(v jsontext.Value) (int64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	const exact = 1<<53 - 1
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(v), 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > exact {
			return 0, false
		}
		n = int64(f)
	}
	return n, -exact <= n && n <= exact
}

// Elements returns the elements of an array; ok is false for anything else.
func Elements(v jsontext.Value) (out []jsontext.Value, ok bool) {
	if v.Kind() != '[' {
		return nil, false
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), lenient...)
	if _, err := dec.ReadToken(); err != nil {
		return nil, false
	}
	for dec.PeekKind() != ']' {
		e, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		end := dec.InputOffset()
		out = append(out, v[end-int64(len(e)):end:end])
	}
	return out, true
}

// Array writes an array.
func Array(elements ...jsontext.Value) jsontext.Value {
	out := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}
