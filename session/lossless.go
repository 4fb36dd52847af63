package session

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of the format. A string of data whose raw text is longer than BlobThreshold is stored beside
// the record; what remains must fit into MaxRecord.
const (
	MaxRecord     = 1 << 20
	BlobThreshold = 32 << 10
	MaxNesting    = 200

	maxExact = 1<<53 - 1 // integers beyond are not the same in every reader
)

// CheckData returns data in the form in which it is kept: compacted, numbers and escapes untouched, in
// memory of its own. It refuses what could not be read back the same everywhere: anything but an
// object, invalid UTF-8 or escapes, duplicate names, integers beyond +-(2^53-1), numbers that are not
// finite, nesting beyond MaxNesting, and objects that would not fit into a record. The error wraps
// ErrNotObject.
func CheckData(data []byte) (jsontext.Value, error) {
	v := jsontext.Value(data)
	if v.Kind() != '{' {
		return nil, fmt.Errorf("session: %w: it must be a JSON object", ErrNotObject)
	}
	if !v.IsValid() {
		_, err := jsontext.AppendFormat(nil, v) // says where and why
		return nil, fmt.Errorf("session: %w: %v", ErrNotObject, err)
	}
	out := make([]byte, 0, len(data))
	inline, depth := 0, 0
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			n := stringLen(data[i:])
			out = append(out, data[i:i+n]...)
			i += n
			if n > BlobThreshold {
				n = 128 // stands in a blob; the record holds its name
			}
			inline += n
			continue
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case c == '{' || c == '[':
			if depth++; depth >= MaxNesting {
				return nil, fmt.Errorf("session: %w: nested deeper than %d", ErrNotObject, MaxNesting)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			n := numberLen(data[i:])
			if err := checkNumber(data[i : i+n]); err != nil {
				return nil, fmt.Errorf("session: %w: %v", ErrNotObject, err)
			}
			out = append(out, data[i:i+n]...)
			inline += n
			i += n
			continue
		}
		out = append(out, data[i])
		inline++
		i++
	}
	if inline > MaxRecord-4096 {
		return nil, fmt.Errorf("session: %w: %d bytes are too many for one record (limit %d without long strings)",
			ErrNotObject, inline, MaxRecord-4096)
	}
	return out[:len(out):len(out)], nil
}

func numberLen(b []byte) int {
	for i, c := range b {
		switch c {
		case '-', '+', '.', 'e', 'E', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		default:
			return i
		}
	}
	return len(b)
}

func checkNumber(b []byte) error {
	if !bytes.ContainsAny(b, ".eE") {
		if len(b) < 16 {
			return nil
		}
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil || n > maxExact || n < -maxExact {
			return fmt.Errorf("the integer %s is beyond +-(2^53-1); write it as a string", b)
		}
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("the number %s is not finite", b)
	}
	return nil
}
