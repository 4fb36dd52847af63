package importer

import (
	"bufio"
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxLine is the longest line that is read. A longer one is skipped and counted.
const MaxLine = 64 << 20

// Line is one line of a file, without its LF. Text is valid until the next one is read.
type Line struct {
	Text  []byte
	Bytes int64 // length in the file, without LF; more than len(Text) for a line that is too long
	LF    bool  // it ends in LF: only the last one may not
}

// TooLong reports whether Text is only the beginning of the line.
func (l Line) TooLong() bool { return l.Bytes > int64(len(l.Text)) }

// Lines reads lines. They end in LF and in nothing else: a CR belongs to its line.
type Lines struct {
	br  *bufio.Reader
	buf []byte
	max int
}

// NewLines reads lines of src.
func NewLines(src io.Reader) *Lines {
	return &Lines{br: bufio.NewReaderSize(src, 64<<10), max: MaxLine}
}

// Next returns the next line, io.EOF at the end.
func (l *Lines) Next() (Line, error) {
	part, err := l.br.ReadSlice('\n')
	if err == nil {
		return Line{Text: part[:len(part)-1], Bytes: int64(len(part) - 1), LF: true}, nil
	}
	l.buf = l.buf[:0]
	n := int64(0)
	for {
		lf := err == nil
		if lf {
			part = part[:len(part)-1]
		}
		n += int64(len(part))
		l.buf = append(l.buf, part[:min(len(part), l.max-len(l.buf))]...)
		switch {
		case lf:
			return Line{Text: l.buf, Bytes: n, LF: true}, nil
		case err == io.EOF && n == 0:
			return Line{}, io.EOF
		case err == io.EOF:
			return Line{Text: l.buf, Bytes: n}, nil
		case err != bufio.ErrBufferFull:
			return Line{}, err
		}
		part, err = l.br.ReadSlice('\n')
	}
}

// lenient reads what other programs take for JSON; Tidy makes it acceptable later.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// Values calls f with each JSON value of a line: two objects with nothing between them are two values. rest is
// what could not be read, from the first byte that belongs to no whole value; nil if nothing.
func Values(line []byte, f func(raw []byte) error) (rest []byte, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(line), lenient...)
	at := int64(0)
	for {
		v, err := dec.ReadValue()
		switch {
		case err == io.EOF:
			return nil, nil
		case err != nil:
			return bytes.TrimLeft(line[at:], " \t\r"), nil
		}
		at = dec.InputOffset()
		if err := f(line[at-int64(len(v)) : at : at]); err != nil {
			return nil, err
		}
	}
}
