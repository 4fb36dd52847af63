package importer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Limits of what a compressed file may make us hold.
const (
	maxWindow    = 64 << 20 // of a frame
	frameBuffer  = 4 << 20  // compressed: a frame up to this size is checked whole before a byte of it is believed
	frameContent = 64 << 20 // .. if its content is not larger than this
)

// Plain gives the plain bytes of a plain or zstd file. Of a zstd file the frames are decoded one by one: a frame
// that is cut off at the end of the file, or whose checksum is wrong, is left out and counted, and does not
// harm the others. (One that is too large to be held is passed on as it is decoded.)
type Plain struct {
	br  *bufio.Reader
	dec *zstd.Decoder
	cur io.Reader // of the frame at hand; nil: between frames
	big *frame    // what cur decodes, if the frame is passed on as it is decoded
	buf []byte

	zstd bool
	err  error

	TornFrame int64 // compressed bytes of a last frame that is not whole
	BadFrames int   // frames that are whole and cannot be decoded
}

// NewPlain looks at the first bytes of src. Close frees what it holds.
func NewPlain(src io.Reader) (*Plain, error) {
	p := &Plain{br: bufio.NewReaderSize(src, 64<<10)}
	head, err := p.br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(head) == 4 && isZstd(head) {
		p.zstd = true
		p.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(frameContent))
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// isZstd reports whether b begins a frame, or a skippable one.
func isZstd(b []byte) bool {
	m := binary.LittleEndian.Uint32(b)
	return m == 0xFD2FB528 || m&^0xF == 0x184D2A50
}

// Close frees the decoder.
func (p *Plain) Close() {
	if p.dec != nil {
		p.dec.Close()
	}
}

// Read reads plain bytes.
func (p *Plain) Read(b []byte) (int, error) {
	if !p.zstd {
		return p.br.Read(b)
	}
	for p.err == nil {
		if p.cur == nil {
			p.err = p.nextFrame()
			continue
		}
		n, err := p.cur.Read(b)
		if err != nil {
			p.cur = nil
			if p.big != nil {
				p.endBig(err)
			}
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
	}
	return 0, p.err
}

// nextFrame makes cur the content of the next good frame. io.EOF: there is none.
func (p *Plain) nextFrame() error {
	if _, err := p.br.Peek(1); err != nil {
		return err
	}
	f := &frame{src: p.br}
	p.buf = p.buf[:0]
	whole, err := f.fill(&p.buf, frameBuffer)
	var torn *tornFrame
	switch {
	case errors.As(err, &torn):
		p.TornFrame = f.size
		return io.EOF
	case err != nil:
		return err
	}
	if whole {
		content, err := p.dec.DecodeAll(p.buf, nil)
		if err == nil {
			p.cur = bytes.NewReader(content)
			return nil
		}
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) && !errors.Is(err, zstd.ErrWindowSizeExceeded) {
			p.BadFrames++
			return nil
		}
	}
	if err := p.dec.Reset(io.MultiReader(bytes.NewReader(p.buf), f)); err != nil {
		p.BadFrames++
		return nil
	}
	p.cur, p.big = p.dec, f
	return nil
}

// endBig settles a frame that was passed on as it was decoded.
func (p *Plain) endBig(err error) {
	f := p.big
	p.big = nil
	if err == io.EOF {
		return
	}
	var torn *tornFrame
	if _, derr := io.Copy(io.Discard, f); errors.As(derr, &torn) || errors.As(err, &torn) {
		p.TornFrame, p.err = f.size, io.EOF
	} else if derr != nil {
		p.err = derr
	} else {
		p.BadFrames++
	}
}

// tornFrame says that the file ends within a frame, or goes on with what is none.
type tornFrame struct{ why string }

func (e *tornFrame) Error() string { return "importer: the last zstd frame is not whole: " + e.why }

// frame reads the bytes of one frame and ends where it ends: its blocks are walked, not decoded.
type frame struct {
	src  *bufio.Reader
	size int64 // read so far

	begun, last, done bool
	sum               bool  // a checksum follows the last block
	left              int64 // of the part at hand
	err               error
}

// fill reads the frame into buf as far as it fits into limit; whole: all of it.
func (f *frame) fill(buf *[]byte, limit int) (whole bool, err error) {
	var part [32 << 10]byte
	for len(*buf) < limit {
		n, err := f.Read(part[:])
		*buf = append(*buf, part[:n]...)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return f.done && f.left == 0, nil
}

func (f *frame) Read(b []byte) (int, error) {
	if len(b) < 32 {
		return 0, io.ErrShortBuffer
	}
	for f.err == nil {
		if f.left > 0 {
			n, err := f.src.Read(b[:min(int64(len(b)), f.left)])
			f.left -= int64(n)
			f.size += int64(n)
			if err == io.EOF {
				err = &tornFrame{"the file ends"}
			}
			if n > 0 {
				return n, nil
			}
			f.err = err
			continue
		}
		if f.done {
			f.err = io.EOF
			continue
		}
		n, err := f.part(b)
		f.size += int64(n)
		if err != nil {
			f.err = err
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, f.err
}

// part reads the next header (of the frame or of a block) into b and says how much follows it.
func (f *frame) part(b []byte) (int, error) {
	if !f.begun {
		f.begun = true
		head, err := f.src.Peek(zstd.HeaderMaxSize)
		if err != nil && err != io.EOF {
			return 0, err
		}
		var h zstd.Header
		if err := h.Decode(head); err != nil {
			n, _ := io.Copy(io.Discard, f.src) // what is no frame has no end either
			f.size += n
			return 0, &tornFrame{"no frame header"}
		}
		f.sum = h.HasCheckSum
		if h.Skippable {
			f.done, f.left = true, int64(h.SkippableSize)
		}
		return f.take(b, h.HeaderSize)
	}
	if f.last {
		f.done = true
		if !f.sum {
			return 0, nil
		}
		return f.take(b, 4)
	}
	n, err := f.take(b, 3)
	if err != nil {
		return n, err
	}
	bh := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	f.last = bh&1 != 0
	f.left = int64(bh >> 3)
	if bh>>1&3 == 1 { // one byte, repeated
		f.left = 1
	}
	return n, nil
}

func (f *frame) take(b []byte, n int) (int, error) {
	n, err := io.ReadFull(f.src, b[:n])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = &tornFrame{fmt.Sprintf("the file ends after %d bytes of it", f.size+int64(n))}
	}
	return n, err
}
