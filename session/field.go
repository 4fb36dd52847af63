package session

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The fold reads a few members of each event. Decoding every event for that would cost more than all the
// rest, so they are read from the bytes. Data is compact, valid JSON with unique names (CheckData, and the
// record format); on other bytes these functions return something or nothing, and never panic.

// Field returns the value of the member called name of the compact, valid JSON object obj, without
// decoding anything else. On other bytes it returns something or nothing, and never panics.
func Field(obj jsontext.Value, name string) (jsontext.Value, bool) {
	i := 1
	for i < len(obj) && obj[i] == '"' {
		n := stringLen(obj[i:])
		if n < 2 || i+n >= len(obj) {
			break
		}
		key := obj[i : i+n]
		i += n + 1 // the colon
		start := i
		i += valueLen(obj[i:])
		if sameName(key, name) {
			return obj[start:i:i], true
		}
		if i >= len(obj) || obj[i] != ',' {
			break
		}
		i++
	}
	return nil, false
}

// sameName compares a quoted name with a plain one.
func sameName(quoted []byte, name string) bool {
	if len(quoted) == len(name)+2 {
		return string(quoted[1:len(quoted)-1]) == name
	}
	return len(quoted) > len(name)+2 && bytes.IndexByte(quoted, '\\') >= 0 && unquote(quoted) == name
}

// eachMember yields the members of an object in order: the name with its quotes and without escapes, and the
// value.
func eachMember(obj []byte, yield func(name, value []byte)) {
	i := 1
	for i < len(obj) && obj[i] == '"' {
		n := stringLen(obj[i:])
		if n < 2 || i+n >= len(obj) {
			return
		}
		key := obj[i : i+n]
		i += n + 1
		start := i
		i += valueLen(obj[i:])
		if bytes.IndexByte(key, '\\') >= 0 {
			key, _ = jsontext.AppendQuote(nil, unquote(key))
		}
		yield(key, obj[start:i:i])
		if i >= len(obj) || obj[i] != ',' {
			return
		}
		i++
	}
}

// eachElement yields the elements of an array in order.
func eachElement(arr []byte, yield func(value []byte)) {
	if len(arr) < 2 || arr[0] != '[' {
		return
	}
	for i := 1; i < len(arr) && arr[i] != ']'; i++ {
		n := valueLen(arr[i:])
		yield(arr[i : i+n : i+n])
		if i += n; i >= len(arr) || arr[i] != ',' {
			return
		}
	}
}

// stringLen returns the length of the JSON string at the start of b, quotes included.
func stringLen(b []byte) int {
	for i := 1; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		back := 0
		for b[i-1-back] == '\\' {
			back++
		}
		i++
		if back%2 == 0 {
			return i
		}
	}
	return len(b)
}

// valueLen returns the length of the compact JSON value at the start of b.
func valueLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			i += stringLen(b[i:])
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b)
}

// fieldString returns the string member called name, "" if there is none.
func fieldString(obj jsontext.Value, name string) string {
	v, ok := Field(obj, name)
	if !ok || len(v) < 2 || v[0] != '"' {
		return ""
	}
	return unquote(v)
}

// fieldIs reports whether the member called name is the string want.
func fieldIs(obj jsontext.Value, name, want string) bool {
	v, ok := Field(obj, name)
	return ok && len(v) > 1 && v[0] == '"' && sameName(v, want)
}

// hasText reports whether the member called name is a string that is not empty.
func hasText(obj jsontext.Value, name string) bool {
	v, ok := Field(obj, name)
	return ok && len(v) > 2 && v[0] == '"'
}

// unquote returns the text of a JSON string, "" if it is none.
func unquote(v []byte) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	s, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(s)
}

// fieldInt returns the integer member called name.
func fieldInt(obj jsontext.Value, name string) (int, bool) {
	v, ok := Field(obj, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(v))
	return n, err == nil
}

// atoi returns the integer v, 0 if it is none.
func atoi(v []byte) int {
	n, err := strconv.Atoi(string(v))
	if err != nil {
		return 0
	}
	return n
}
