package record

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// endOfString returns the index behind the JSON string that begins at b[i], or -1.
func endOfString(b []byte, i int) int {
	for j := i + 1; ; {
		k := bytes.IndexByte(b[j:], '"')
		if k < 0 {
			return -1
		}
		j += k + 1
		// The quote ends the string unless an odd number of backslashes stands before it.
		e := j - 2
		for e > i && b[e] == '\\' {
			e--
		}
		if (j-2-e)%2 == 0 {
			return j
		}
	}
}

// endOfValue returns the index behind the JSON value that begins at b[i], or -1. It looks at strings
// and brackets only: for a valid value the answer is exact, for others it is just somewhere.
func endOfValue(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = endOfString(b, i); i < 0 || depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
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
	return i
}

// reserved are the names that have their own place in a record.
var reserved = map[string]bool{
	"seq": true, "time": true, "type": true, "surfaceOp": true, "sourceEventSeqs": true,
	"ignorable": true, "data": true, "synced": true, "chain": true,
}

// checkMembers checks that b is a list of members, without braces and white space, whose names are
// plain and not reserved. It returns what is wrong, or "".
func checkMembers(b []byte) string {
	obj := make(jsontext.Value, 0, len(b)+2)
	obj = append(obj, '{')
	obj = append(obj, b...)
	obj = append(obj, '}')
	if !obj.IsValid() { // also looks for duplicate names and invalid Unicode
		return "unknown members are not valid JSON"
	}
	if !isCompact(obj) {
		return "white space between tokens"
	}
	for i := 0; i < len(b); i++ {
		e := endOfString(b, i)
		name := b[i+1 : e-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			return "a name with escapes"
		}
		if reserved[string(name)] {
			return `"` + string(name) + `" stands twice or out of order`
		}
		i = endOfValue(b, e+1)
	}
	return ""
}

// isCompact reports whether valid JSON has no white space between its tokens.
func isCompact(b []byte) bool {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = endOfString(b, i) - 1
		case ' ', '\t', '\r', '\n':
			return false
		}
	}
	return true
}

// maxInt is the largest integer that every JSON reader has exactly.
const maxInt = 1<<53 - 1

// digits reads a canonical non-negative integer at b[i] and returns the index behind it, or -1.
func digits(b []byte, i int) (v int64, end int) {
	j := i
	for j < len(b) && b[j]-'0' <= 9 {
		if v = v*10 + int64(b[j]-'0'); v > maxInt {
			return 0, -1
		}
		j++
	}
	if j == i || (b[i] == '0' && j > i+1) {
		return 0, -1
	}
	return v, j
}

// integer is digits with an optional minus sign.
func integer(b []byte, i int) (v int64, end int) {
	if i < len(b) && b[i] == '-' {
		if v, end = digits(b, i+1); v == 0 {
			return 0, -1
		}
		return -v, end
	}
	return digits(b, i)
}

func appendInt[T ~int64](dst []byte, v T) []byte { return strconv.AppendInt(dst, int64(v), 10) }
