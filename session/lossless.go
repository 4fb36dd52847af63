package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of the format. A string of data whose raw text is longer than BlobThreshold is stored beside
// the record; what remains must fit into MaxRecord.
const (
	MaxRecord     = 1 << 20
	BlobThreshold = 32 << 10
	MaxNesting    = 200

	maxExact    = 1<<53 - 1 // integers beyond are not the same in every reader
	maxEnvelope = 4096      // of a record: everything but data and citations
	blobRef     = 128       // what stands for a string in a blob
)

// CheckData returns data in the form in which it is kept: compacted, numbers and escapes untouched, in
// memory of its own. It refuses what could not be read back the same everywhere: anything but an
// object, invalid UTF-8 or escapes, duplicate names, integers beyond +-(2^53-1), numbers that are not
// finite, nesting beyond MaxNesting, and objects that would not fit into a record. The error wraps
// ErrNotObject.
//
// It is written out in one pass because every event pays for it; a fuzz target holds it to jsontext.
func CheckData(data []byte) (jsontext.Value, error) { return checkData(data, false) }

// checkData is CheckData; owned: data is nobody else's and may be kept.
func checkData(data []byte, owned bool) (jsontext.Value, error) {
	c := checker{in: data}
	c.space()
	if c.peek() != '{' {
		return nil, fmt.Errorf("session: %w: it must be a JSON object", ErrNotObject)
	}
	err := c.value()
	if c.space(); err == nil && c.i < len(data) {
		err = errors.New("there is more behind the object")
	}
	if err != nil {
		return nil, fmt.Errorf("session: %w: at byte %d: %w", ErrNotObject, c.i, err)
	}
	if n := len(data) - c.spaces - c.saved; n > MaxRecord-maxEnvelope {
		return nil, fmt.Errorf("session: %w: %d bytes are too many for one record (limit %d without long strings)",
			ErrNotObject, n, MaxRecord-maxEnvelope)
	}
	switch {
	case c.spaces > 0:
		return compact(data, len(data)-c.spaces), nil
	case owned:
		return slices.Clip(data), nil
	}
	return bytes.Clone(data), nil
}

// compact copies valid JSON without the white space between its tokens.
func compact(data []byte, n int) []byte {
	out := make([]byte, 0, n)
	for i := 0; i < len(data); {
		switch data[i] {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			n := stringLen(data[i:])
			out = append(out, data[i:i+n]...)
			i += n
		default:
			out = append(out, data[i])
			i++
		}
	}
	return out
}

// checker walks JSON text once and stops at its first fault.
type checker struct {
	in     []byte
	i      int
	depth  int
	spaces int // bytes of white space between tokens
	saved  int // bytes that a record does not hold because a blob does, less what it holds instead

	// The names of the open objects, innermost last: n of them, the first few without an allocation.
	n    int
	few  [16]name
	many []name
}

// name is the place of a member name between its quotes.
type name struct {
	from, to int
	escaped  bool
}

func (c *checker) push(n name) {
	if c.n < len(c.few) {
		c.few[c.n] = n
	} else {
		c.many = append(c.many, n)
	}
	c.n++
}

func (c *checker) pop(to int) {
	c.n = to
	c.many = c.many[:max(to-len(c.few), 0)]
}

// text returns the i-th name, decoded.
func (c *checker) text(i int) []byte {
	if i < len(c.few) {
		return c.decoded(c.few[i])
	}
	return c.decoded(c.many[i-len(c.few)])
}

func (c *checker) decoded(n name) []byte {
	if !n.escaped {
		return c.in[n.from:n.to]
	}
	b, err := jsontext.AppendUnquote(nil, c.in[n.from-1:n.to+1])
	if err != nil {
		return c.in[n.from:n.to] // str has passed it: it decodes
	}
	return b
}

var errCut = errors.New("it ends in the middle")

func (c *checker) peek() byte {
	if c.i < len(c.in) {
		return c.in[c.i]
	}
	return 0
}

func (c *checker) space() {
	if c.i < len(c.in) && c.in[c.i] <= ' ' { // seldom: most data comes compact
		c.skip()
	}
}

func (c *checker) skip() {
	for c.i < len(c.in) {
		switch c.in[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
			c.spaces++
		default:
			return
		}
	}
}

func (c *checker) value() error {
	switch b := c.peek(); {
	case b == '"':
		start := c.i
		_, err := c.str()
		if n := c.i - start; n > BlobThreshold {
			c.saved += n - blobRef
		}
		return err
	case b == '{':
		return c.object()
	case b == '[':
		return c.array()
	case b == '-' || '0' <= b && b <= '9':
		return c.number()
	}
	for _, lit := range []string{"true", "false", "null"} {
		if len(c.in)-c.i >= len(lit) && string(c.in[c.i:c.i+len(lit)]) == lit {
			c.i += len(lit)
			return nil
		}
	}
	if c.i >= len(c.in) {
		return errCut
	}
	return errors.New("no JSON value begins like this")
}

func (c *checker) enter() error {
	c.i++
	if c.depth++; c.depth >= MaxNesting {
		return fmt.Errorf("nested deeper than %d", MaxNesting)
	}
	c.space()
	return nil
}

func (c *checker) array() error {
	if err := c.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if first && c.peek() == ']' {
			break
		}
		if err := c.value(); err != nil {
			return err
		}
		c.space()
		if b := c.peek(); b == ']' {
			break
		} else if b != ',' {
			return c.wanted("a comma or the end of the array")
		}
		c.i++
		c.space()
	}
	c.i++
	c.depth--
	return nil
}

func (c *checker) object() error {
	if err := c.enter(); err != nil {
		return err
	}
	base := c.n
	for first := true; ; first = false {
		if first && c.peek() == '}' {
			break
		}
		if c.peek() != '"' {
			return c.wanted("a name")
		}
		start := c.i
		escaped, err := c.str()
		if err != nil {
			return err
		}
		c.push(name{start + 1, c.i - 1, escaped})
		if b := c.in[start+1]; b == '$' || b == '\\' {
			c.saved-- // a record may write it with one more
		}
		c.space()
		if c.peek() != ':' {
			return c.wanted("a colon")
		}
		c.i++
		c.space()
		if err := c.value(); err != nil {
			return err
		}
		c.space()
		if b := c.peek(); b == '}' {
			break
		} else if b != ',' {
			return c.wanted("a comma or the end of the object")
		}
		c.i++
		c.space()
	}
	err := c.unique(base)
	c.pop(base)
	c.i++
	c.depth--
	return err
}

// unique compares the names of the innermost object, which begin at base; many are sorted first.
func (c *checker) unique(base int) error {
	if c.n <= len(c.few) {
		for i := base + 1; i < c.n; i++ {
			a := c.few[i]
			for _, b := range c.few[base:i] {
				if (a.escaped || b.escaped || a.to-a.from == b.to-b.from) && string(c.decoded(a)) == string(c.decoded(b)) {
					return fmt.Errorf("the name %q stands twice", c.decoded(a))
				}
			}
		}
		return nil
	}
	names := make([][]byte, 0, c.n-base)
	for i := base; i < c.n; i++ {
		names = append(names, c.text(i))
	}
	slices.SortFunc(names, bytes.Compare)
	for i := 1; i < len(names); i++ {
		if string(names[i]) == string(names[i-1]) {
			return fmt.Errorf("the name %q stands twice", names[i])
		}
	}
	return nil
}

func (c *checker) wanted(what string) error {
	if c.i >= len(c.in) {
		return errCut
	}
	return fmt.Errorf("found %q, want %s", c.in[c.i], what)
}

// plain returns how many bytes at the start of b are ordinary ASCII: no quote, backslash or control character.
func plain(b []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// The lowest byte whose high bit is set here is the first that is not plain: a borrow comes only from
		// a byte that is flagged itself.
		if m := (x | (x - ' '*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) & high; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// str passes a string and reports whether it has escapes.
func (c *checker) str() (escaped bool, err error) {
	c.i++
	for c.i < len(c.in) {
		c.i += plain(c.in[c.i:])
		if c.i >= len(c.in) {
			break
		}
		switch b := c.in[c.i]; {
		case b == '"':
			c.i++
			return escaped, nil
		case b == '\\':
			escaped = true
			if err := c.escape(); err != nil {
				return true, err
			}
		case b < ' ':
			return false, errors.New("a control character in a string has to be escaped")
		default:
			r, n := utf8.DecodeRune(c.in[c.i:])
			if r == utf8.RuneError && n <= 1 {
				return false, errors.New("invalid UTF-8")
			}
			c.i += n
		}
	}
	return false, errCut
}

func (c *checker) escape() error {
	if c.i+1 >= len(c.in) {
		return errCut
	}
	switch c.in[c.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.i += 2
		return nil
	case 'u':
	default:
		return errors.New("an unknown escape")
	}
	r, ok := hex4(c.in[c.i+2:])
	switch {
	case !ok:
		return errors.New("want four hexadecimal digits")
	case 0xD800 <= r && r < 0xDC00:
		if rest := c.in[c.i+6:]; len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
			if low, ok := hex4(rest[2:]); ok && 0xDC00 <= low && low < 0xE000 {
				c.i += 12
				return nil
			}
		}
		return errors.New("half of a surrogate pair")
	case 0xDC00 <= r && r < 0xE000:
		return errors.New("half of a surrogate pair")
	}
	c.i += 6
	return nil
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, d := range b[:4] {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d && d <= 'f':
			d -= 'a' - 10
		case 'A' <= d && d <= 'F':
			d -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func (c *checker) number() error {
	start := c.i
	if c.peek() == '-' {
		c.i++
	}
	switch b := c.peek(); {
	case b == '0':
		c.i++
	case '1' <= b && b <= '9':
		c.digits()
	default:
		return c.wanted("a digit")
	}
	whole := true
	if c.peek() == '.' {
		whole = false
		c.i++
		if !c.digits() {
			return c.wanted("a digit")
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		whole = false
		c.i++
		if b := c.peek(); b == '+' || b == '-' {
			c.i++
		}
		if !c.digits() {
			return c.wanted("a digit")
		}
	}
	text := c.in[start:c.i]
	if whole {
		if len(text) < 16 {
			return nil
		}
		if n, err := strconv.ParseInt(string(text), 10, 64); err != nil || n > maxExact || n < -maxExact {
			return fmt.Errorf("the integer %s is beyond +-(2^53-1); write it as a string", text)
		}
		return nil
	}
	if f, err := strconv.ParseFloat(string(text), 64); err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("the number %s is not finite", text)
	}
	return nil
}

func (c *checker) digits() bool {
	start := c.i
	for c.i < len(c.in) && '0' <= c.in[c.i] && c.in[c.i] <= '9' {
		c.i++
	}
	return c.i > start
}
