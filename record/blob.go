package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
)

// BlobLimit is the length of a string's raw text, quotes included, above which it is kept as a blob.
// It is part of the format: equal events must have equal records.
const BlobLimit = session.BlobThreshold

const (
	blobPrefix = "sha256-"
	kBlob      = `{"$blob":"`
	kBytes     = `","bytes":`
	nameLen    = len(blobPrefix) + 2*sha256.Size
)

// BlobName returns the name of a blob: "sha256-" and 64 lower-case hexadecimal digits.
func BlobName(raw []byte) string {
	sum := sha256.Sum256(raw)
	return blobPrefix + hex.EncodeToString(sum[:])
}

// ValidBlobName reports whether name has the form that BlobName gives.
func ValidBlobName(name string) bool {
	if len(name) != nameLen || name[:len(blobPrefix)] != blobPrefix {
		return false
	}
	for _, c := range []byte(name[len(blobPrefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Externalize returns the stored form of accepted data: each string value in it whose raw text is
// longer than limit (BlobLimit, but for tests) is handed to put and replaced by
//
//	{"$blob":"<name>","bytes":<length of the raw text>}
//
// and each member name that begins with "$" and ends in "blob" gets one more "$" in front, so that
// the two cannot be confused. Names are compared as they decode: "\u0024blob" is "$blob". Where
// nothing is replaced the result is data itself, at the cost of a look at its length and two searches.
// data must be a valid compact JSON object.
func Externalize(data jsontext.Value, limit int, put func(raw []byte) (name string, err error)) (jsontext.Value, error) {
	dollar := hasDollarName(data)
	if len(data) <= limit && !dollar {
		return data, nil
	}
	var out []byte
	done := 0 // data[:done] is in out
	for i := 0; i < len(data); {
		if data[i] != '"' {
			k := bytes.IndexByte(data[i:], '"')
			if k < 0 {
				break
			}
			i += k
		}
		e := endOfString(data, i)
		if e < 0 {
			return nil, fmt.Errorf("record: data is not valid JSON: a string at byte %d does not end", i)
		}
		switch isName := e < len(data) && data[e] == ':'; {
		case isName && dollar && blobName(data[i:e]) > 0:
			out = append(append(out, data[done:i+1]...), '$')
			done = i + 1
		case !isName && e-i > limit:
			name, err := put(data[i:e:e])
			if err != nil {
				return nil, err
			}
			out = append(out, data[done:i]...)
			out = append(append(append(out, kBlob...), name...), kBytes...)
			out = append(strconv.AppendInt(out, int64(e-i), 10), '}')
			done = e
		}
		i = e
	}
	if out == nil {
		return data, nil
	}
	return append(out, data[done:]...), nil
}

// Internalize returns the accepted data that Externalize made stored from. get returns the raw text
// of a blob, verified to have its name. Where nothing was replaced the result is stored itself. A
// reference that Externalize would not have written, or whose blob does not have the stated length,
// is an error; the errors of get are returned as they are.
func Internalize(stored jsontext.Value, get func(name string) ([]byte, error)) (jsontext.Value, error) {
	if !hasDollarName(stored) {
		return stored, nil
	}
	var out []byte
	done := 0
	for i := 0; i < len(stored); {
		if stored[i] != '"' {
			k := bytes.IndexByte(stored[i:], '"')
			if k < 0 {
				break
			}
			i += k
		}
		e := endOfString(stored, i)
		if e < 0 {
			return nil, fmt.Errorf("record: stored data is not valid JSON: a string at byte %d does not end", i)
		}
		dollars := 0
		if e < len(stored) && stored[e] == ':' {
			dollars = blobName(stored[i:e])
		}
		switch {
		case dollars == 1:
			name, n, end := reference(stored, i-1)
			if end < 0 {
				return nil, fmt.Errorf("record: a blob reference at byte %d of stored data is malformed", i)
			}
			raw, err := get(name)
			if err != nil {
				return nil, err
			}
			if int64(len(raw)) != n || len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
				return nil, fmt.Errorf("record: the blob %s is not the string of %d bytes that its reference names", name, n)
			}
			out = append(append(out, stored[done:i-1]...), raw...)
			done, e = end, end
		case dollars > 1:
			if stored[i+1] != '$' {
				return nil, fmt.Errorf("record: the member name at byte %d of stored data has no extra $", i)
			}
			out = append(out, stored[done:i+1]...)
			done = i + 2
		}
		i = e
	}
	if out == nil {
		return stored, nil
	}
	return append(out, stored[done:]...), nil
}

// Blobs calls f with the name of each blob that stored data refers to.
func Blobs(stored jsontext.Value, f func(name string)) {
	for rest := stored; ; {
		i := bytes.Index(rest, []byte(kBlob))
		if i < 0 {
			return
		}
		// Inside a string the quotes of kBlob would be escaped.
		if name, _, end := reference(rest, i); end > 0 {
			f(name)
		}
		rest = rest[i+len(kBlob):]
	}
}

var (
	dollarPlain   = []byte(`"$`)
	dollarEscaped = []byte(`\u0024`)
)

// hasDollarName reports whether a string of b may begin with "$". Quotes are everywhere in JSON,
// dollars are not: so dollars are looked for.
func hasDollarName(b []byte) bool {
	for i := 0; ; i++ {
		k := bytes.IndexByte(b[i:], '$')
		if k < 0 {
			return bytes.Contains(b, dollarEscaped)
		}
		if i += k; i > 0 && b[i-1] == '"' {
			return true
		}
	}
}

// blobName returns 0 if the name with raw text b does not decode to "$...blob", 1 if it decodes to
// "$blob" and 2 for the others.
func blobName(b []byte) int {
	if bytes.IndexByte(b, '\\') >= 0 {
		plain, err := jsontext.AppendUnquote(nil, b)
		if err != nil {
			return 0
		}
		b = append(append([]byte{'"'}, plain...), '"')
	}
	switch {
	case string(b) == `"$blob"`:
		return 1
	case bytes.HasPrefix(b, dollarPlain) && bytes.HasSuffix(b, []byte(`blob"`)):
		return 2
	}
	return 0
}

// reference reads the blob reference at b[i] and returns the index behind it, or -1.
func reference(b []byte, i int) (name string, n int64, end int) {
	at := i + len(kBlob)
	if i < 0 || !hasAt(b, i, kBlob) || !hasAt(b, at+nameLen, kBytes) {
		return "", 0, -1
	}
	name = string(b[at : at+nameLen])
	n, end = digits(b, at+nameLen+len(kBytes))
	if end < 0 || end >= len(b) || b[end] != '}' || !ValidBlobName(name) {
		return "", 0, -1
	}
	return name, n, end + 1
}
