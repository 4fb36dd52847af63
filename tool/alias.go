package tool

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// canonical renames members of args by the tool's aliases: models that learned on other harnesses use those
// harnesses' names. A member is renamed only if the right name is not there; the rest keeps its bytes. What
// is no JSON object comes back as it is, for the schema check to refuse.
func (d Definition) canonical(args jsontext.Value) jsontext.Value {
	if !d.aliased(args) {
		return args
	}
	type member struct {
		name  string
		value jsontext.Value
	}
	var members []member
	seen := map[string]bool{}
	dec := jsontext.NewDecoder(bytes.NewReader(args))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return args
	}
	for dec.PeekKind() != '}' {
		t, err := dec.ReadToken()
		if err != nil {
			return args
		}
		name := t.String()
		v, err := dec.ReadValue()
		if err != nil {
			return args
		}
		members = append(members, member{name, v.Clone()})
		seen[name] = true
	}
	out := []byte{'{'}
	for _, m := range members {
		if right, ok := d.Aliases[m.name]; ok && !seen[right] {
			seen[right] = true
			m.name = right
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		var err error
		if out, err = jsontext.AppendQuote(out, m.name); err != nil {
			return args
		}
		out = append(append(out, ':'), m.value...)
	}
	return append(out, '}')
}

func (d Definition) aliased(args jsontext.Value) bool {
	for alias := range d.Aliases {
		if bytes.Contains(args, []byte(`"`+alias+`"`)) {
			return true
		}
	}
	return false
}
