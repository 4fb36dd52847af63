package record

import (
	"bytes"
	"errors"
	"io"

	"github.com/strandline-dev/strandline/session"
)

// Token is what Scanner.Next found.
type Token uint8

// The tokens.
const (
	More   Token = iota // the window holds no whole line any more: feed the next one
	Good                // Scanner.Raw is a good record
	Broken              // Scanner.Bad is a line that is not a record
	End                 // everything was read
)

// Scanner finds records in the bytes of a file that are handed to it window by window. A line that is
// no record is reported and skipped: the next good record begins behind a later LF. Nothing is ever
// skipped silently: the bytes of good records and bad lines together are all the bytes. It allocates
// nothing for a good record. The zero Scanner begins at offset 0.
type Scanner struct {
	Raw Raw   // after Good; valid until the next Feed
	Bad Bad   // after Broken
	At  int64 // offset in the file of the record or bad line

	window []byte // what is left of it
	off    int64  // offset of window[0]
	seen   int    // the first bytes of window that hold no LF
	eof    bool
	long   *Bad // a line that is longer than MaxLine, until its LF is found
}

// Reset makes the scanner begin at offset off of another file.
func (s *Scanner) Reset(off int64) { *s = Scanner{off: off} }

// Feed hands over the next window. It must begin with the bytes of Rest; eof says that nothing
// follows it. The scanner keeps window until the next Feed.
func (s *Scanner) Feed(window []byte, eof bool) { s.window, s.eof = window, eof }

// Rest returns the bytes that are not read yet, and the file's offset of the first.
func (s *Scanner) Rest() ([]byte, int64) { return s.window, s.off }

// Next returns the next thing in the window.
func (s *Scanner) Next() Token {
	k := bytes.IndexByte(s.window[s.seen:], '\n')
	if k < 0 {
		return s.noLine()
	}
	n := s.seen + k
	if s.long != nil || n >= MaxLine {
		return s.broken(n+1, true, nil)
	}
	if err := s.Raw.parse(s.window[:n:n]); err != nil {
		return s.broken(n+1, true, err)
	}
	s.At = s.off
	s.advance(n + 1)
	return Good
}

// noLine is Next for a window without a line end.
func (s *Scanner) noLine() Token {
	switch {
	case !s.eof:
		if len(s.window) > MaxLine || s.long != nil {
			s.swallow(len(s.window))
		}
		s.seen = len(s.window)
		return More
	case len(s.window) == 0 && s.long == nil:
		return End
	}
	return s.broken(len(s.window), false, nil)
}

func (s *Scanner) advance(n int) {
	s.window, s.off, s.seen = s.window[n:], s.off+int64(n), 0
}

// swallow takes the first n bytes of the window into the over-long line.
func (s *Scanner) swallow(n int) {
	if s.long == nil {
		s.long = &Bad{Offset: s.off, Kind: Long, Seq: claimedSeq(s.window), Blank: true}
	}
	s.long.add(s.window[:n])
	s.advance(n)
}

// broken reports the line in the first n bytes of the window (LF included if it has one).
func (s *Scanner) broken(n int, lf bool, err *Error) Token {
	if s.long != nil || n > MaxLine {
		s.swallow(n)
		s.Bad, s.long = *s.long, nil
		s.Bad.end(lf)
	} else {
		s.Bad = classify(s.window[:n], lf, err)
		s.Bad.Offset = s.off
		s.advance(n)
	}
	s.At = s.Bad.Offset
	return Broken
}

// Reader is a Scanner over an io.Reader. Its memory is bounded: the buffer it was given, grown to
// hold the longest line there may be when one comes.
type Reader struct {
	Scanner
	src io.Reader
	buf []byte
}

// NewReader returns a Reader of src, whose first byte has offset off in its file. buf is used as the
// window (nil: 256 KiB).
func NewReader(src io.Reader, off int64, buf []byte) *Reader {
	if len(buf) < 4096 {
		buf = make([]byte, 256<<10)
	}
	return &Reader{Scanner: Scanner{off: off}, src: src, buf: buf}
}

// Next returns Good, Broken or End; never More. An error of src ends the reading; what was read
// before it has been returned.
func (r *Reader) Next() (Token, error) {
	for {
		if t := r.Scanner.Next(); t != More {
			return t, nil
		}
		n := copy(r.buf, r.window)
		if n == len(r.buf) {
			grown := make([]byte, min(2*len(r.buf), MaxLine+1))
			copy(grown, r.buf)
			r.buf = grown
		}
		for {
			k, err := r.src.Read(r.buf[n:])
			if err != nil && !errors.Is(err, io.EOF) {
				r.Feed(r.buf[:n+k], false)
				return More, err
			}
			if k > 0 || err != nil {
				r.Feed(r.buf[:n+k], err != nil)
				break
			}
		}
	}
}

// claimedSeq reads the seq at the beginning of a line that may be bad.
func claimedSeq(line []byte) session.Seq {
	if hasAt(line, 0, kSeq) {
		if v, e := digits(line, len(kSeq)); e > 0 && e < len(line) && line[e] == ',' {
			return session.Seq(v)
		}
	}
	return session.None
}
