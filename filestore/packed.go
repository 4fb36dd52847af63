package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/vfs"
)

// A packed segment holds the text of a segment in independent zstd frames, each of whole lines, and behind them the
// seek table of zstd's seekable format, in a frame that every decoder skips. Opened it looks like the plain file:
// its text by offset, a frame decoded when it is asked for.

const (
	packSuffix = segSuffix + ".zst"
	frameText  = 128 << 10                       // a frame is complete with the line that reaches this
	maxFrame   = frameText + record.MaxLine      // so no frame holds more
	maxPacked  = maxFrame + maxFrame/128 + 1<<10 // what zstd makes of that at worst
	maxFrames  = 1 << 24

	skipMagic = 0x184D2A5E
	seekMagic = 0x8F92EAB1
	seekFoot  = 9
)

// frame is where a frame stands in the file and its text in the text.
type frame struct{ off, at int64 }

// packedFile shows the text of a packed segment. A frame that cannot be decoded shows as zeros that end in a line
// end: readers meet it as one bad line of its length, and go on behind it.
type packedFile struct {
	vfs.File
	dec    *zstd.Decoder
	frames []frame // and one that stands for the end

	mu   sync.Mutex
	cur  int           // guarded by mu: the frame in text; -1: none
	text []byte        // guarded by mu
	bad  map[int]error // guarded by mu: the frames that were seen to be bad
	room [2]*[]byte    // guarded by mu: where frames are read and decoded
}

// openSegment opens a segment, plain or packed, for reading its text.
func (s *Store) openSegment(path string) (vfs.File, error) {
	f, err := s.fs.OpenFile(path, vfs.ReadOnly)
	if err != nil || !isPacked(path) {
		return f, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return f, nil
	}
	p := &packedFile{File: f, dec: s.decoder(), cur: -1, bad: map[int]error{}}
	if err == nil {
		p.frames, err = readTable(f, info.Size())
	}
	if err == nil && p.frames == nil { // the table is bad: the frames are still there
		p.frames, err = p.walk(info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// readTable reads the seek table; nil if there is none that fits the file.
func readTable(f vfs.File, size int64) ([]frame, error) {
	var foot [seekFoot]byte
	if size < seekFoot+8 {
		return nil, nil
	}
	if _, err := f.ReadAt(foot[:], size-seekFoot); err != nil && err != io.EOF {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(foot[:]))
	entry := int64(8)
	if foot[4]&0x80 != 0 {
		entry += 4 // with a checksum
	}
	table := n*entry + seekFoot
	if binary.LittleEndian.Uint32(foot[5:]) != seekMagic || foot[4]&0x7c != 0 || n > maxFrames || table+8 > size {
		return nil, nil
	}
	b := make([]byte, 8+n*entry)
	if _, err := f.ReadAt(b, size-table-8); err != nil && err != io.EOF {
		return nil, err
	}
	if binary.LittleEndian.Uint32(b) != skipMagic || int64(binary.LittleEndian.Uint32(b[4:])) != table {
		return nil, nil
	}
	frames := make([]frame, 1, n+1)
	for b = b[8:]; len(b) > 0; b = b[entry:] {
		last := frames[len(frames)-1]
		c, d := int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:]))
		if c == 0 || d == 0 || c > maxPacked || d > maxFrame {
			return nil, nil
		}
		frames = append(frames, frame{last.off + c, last.at + d})
	}
	if frames[n].off != size-table-8 {
		return nil, nil
	}
	return frames, nil
}

// walk finds the frames by their headers. What cannot be walked through is one bad frame of one byte of text.
func (p *packedFile) walk(size int64) ([]frame, error) {
	frames := []frame{{}}
	for {
		last := frames[len(frames)-1]
		if last.off == size {
			return frames, nil
		}
		n, text, err := p.frameAt(last.off, size)
		if err != nil {
			if !errors.Is(err, errFrame) {
				return nil, err
			}
			p.bad[len(frames)-1] = err
			return append(frames, frame{size, last.at + 1}), nil
		}
		if text > 0 {
			frames = append(frames, frame{last.off + n, last.at + text})
		} else {
			frames[len(frames)-1].off += n // skippable: of no text
		}
	}
}

var errFrame = errors.New("bytes that are no frame")

// frameAt measures the frame at off: its bytes and those of its text (0: skippable).
func (p *packedFile) frameAt(off, size int64) (n, text int64, err error) {
	var b [zstd.HeaderMaxSize]byte
	read := func(at int64, b []byte) (int, error) {
		if at >= size {
			return 0, nil
		}
		k, err := p.File.ReadAt(b[:min(int64(len(b)), size-at)], at)
		if err == io.EOF {
			err = nil
		}
		return k, err
	}
	k, err := read(off, b[:])
	if err != nil {
		return 0, 0, err
	}
	var h zstd.Header
	if e := h.Decode(b[:k]); e != nil {
		return 0, 0, fmt.Errorf("%w: %w", errFrame, e)
	}
	if h.Skippable {
		n = int64(h.HeaderSize) + int64(h.SkippableSize)
		if n > size-off {
			return 0, 0, errFrame
		}
		return n, 0, nil
	}
	if !h.HasFCS || h.FrameContentSize == 0 || h.FrameContentSize > maxFrame {
		return 0, 0, errFrame
	}
	at := off + int64(h.HeaderSize)
	for last := false; !last; {
		if k, err = read(at, b[:3]); err != nil {
			return 0, 0, err
		}
		if k < 3 {
			return 0, 0, errFrame
		}
		block := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		last = block&1 != 0
		n := int64(block >> 3)
		if block>>1&3 == 1 {
			n = 1 // one byte, repeated
		}
		at += 3 + n
		if at-off > maxPacked {
			return 0, 0, errFrame
		}
	}
	if h.HasCheckSum {
		at += 4
	}
	if at > size {
		return 0, 0, errFrame
	}
	return at - off, int64(h.FrameContentSize), nil
}

func (p *packedFile) size() int64 { return p.frames[len(p.frames)-1].at }

// Stat is that of the file, with the size of its text.
func (p *packedFile) Stat() (fs.FileInfo, error) {
	info, err := p.File.Stat()
	if err != nil {
		return nil, err
	}
	return packedInfo{info, p.size()}, nil
}

type packedInfo struct {
	fs.FileInfo
	size int64
}

func (i packedInfo) Size() int64 { return i.size }

func (p *packedFile) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cur, p.text = -1, nil
	for i, r := range p.room {
		if r != nil {
			windows.Put(r)
			p.room[i] = nil
		}
	}
	return p.File.Close()
}

// ReadAt reads the text.
func (p *packedFile) ReadAt(b []byte, off int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	i := sort.Search(len(p.frames), func(i int) bool { return p.frames[i].at > off }) - 1
	for n < len(b) {
		if off < 0 || i < 0 || i >= len(p.frames)-1 {
			return n, io.EOF
		}
		if err := p.load(i); err != nil {
			return n, err
		}
		k := copy(b[n:], p.text[off-p.frames[i].at:])
		n, off, i = n+k, off+int64(k), i+1
	}
	return n, nil
}

// load decodes frame i. Errors are those of the medium.
func (p *packedFile) load(i int) error {
	if p.cur == i {
		return nil
	}
	p.cur = -1
	for k := range p.room {
		if p.room[k] == nil {
			p.room[k] = windows.Get().(*[]byte)
		}
	}
	want := int(p.frames[i+1].at - p.frames[i].at)
	out := grow(p.room[1], want)
	if p.bad[i] == nil {
		in := grow(p.room[0], int(p.frames[i+1].off-p.frames[i].off))
		n, err := p.File.ReadAt(in, p.frames[i].off)
		if err != nil && err != io.EOF {
			return err
		}
		if n < len(in) {
			p.bad[i] = io.ErrUnexpectedEOF
		} else if text, err := p.dec.DecodeAll(in, out[:0]); err != nil {
			p.bad[i] = err
		} else if len(text) != want {
			p.bad[i] = errors.New("it has another length than the table says")
		}
	}
	if p.bad[i] != nil {
		clear(out)
		out[want-1] = '\n'
	}
	p.cur, p.text = i, out
	return nil
}

// grow returns the first n bytes of *b, which is made bigger if it must be.
func grow(b *[]byte, n int) []byte {
	if len(*b) < n {
		*b = make([]byte, n)
	}
	return (*b)[:n:n]
}

// why says which bad frame stands behind n bytes of text at off; "" if none does.
func (p *packedFile) why(off, n int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range len(p.frames) - 1 {
		if err := p.bad[i]; err != nil && p.frames[i].at < off+n && off < p.frames[i+1].at {
			return fmt.Sprintf("the frame of %d bytes at byte %d of the file cannot be decoded: %v",
				p.frames[i+1].off-p.frames[i].off, p.frames[i].off, err)
		}
	}
	return ""
}

// explain says of the bad ones of items which frame is behind it.
func (p *packedFile) explain(items []item) {
	for i := range items {
		if it := &items[i]; !it.good && it.why == "" {
			it.why = p.why(it.bad.Offset, it.bad.Bytes)
		}
	}
}

// newDecoder returns the decoder of a store. It has no goroutines and bounded memory.
func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxFrame), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("filestore: " + err.Error()) // an option that this package gives is wrong
	}
	return d
}

// packWriter makes the bytes of a packed segment. Its errors are those of out.
type packWriter struct {
	enc    *zstd.Encoder
	out    func([]byte) error
	text   []byte // of the frame that is not full
	packed []byte
	table  []byte
	n      uint32
	bytes  int64 // written
}

func newPackWriter(out func([]byte) error) (*packWriter, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true),
		zstd.WithSingleSegment(true), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return nil, err
	}
	return &packWriter{enc: enc, out: out}, nil
}

// Write takes text in. All of it together must be whole lines.
func (p *packWriter) Write(b []byte) (int, error) {
	n := len(b)
	p.text = append(p.text, b...)
	for from := max(len(p.text)-n, frameText-1); len(p.text) > from; from = frameText - 1 {
		k := bytes.IndexByte(p.text[from:], '\n')
		if k < 0 {
			break
		}
		if err := p.frame(from + k + 1); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (p *packWriter) frame(n int) error {
	p.packed = p.enc.EncodeAll(p.text[:n], p.packed[:0])
	p.table = binary.LittleEndian.AppendUint32(p.table, uint32(len(p.packed)))
	p.table = binary.LittleEndian.AppendUint32(p.table, uint32(n))
	p.n++
	p.text = append(p.text[:0], p.text[n:]...)
	p.bytes += int64(len(p.packed))
	return p.out(p.packed)
}

// finish writes what is left, and the table.
func (p *packWriter) finish() error {
	if len(p.text) > 0 {
		if err := p.frame(len(p.text)); err != nil {
			return err
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, skipMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.table)+seekFoot))
	b = append(b, p.table...)
	b = binary.LittleEndian.AppendUint32(b, p.n)
	b = append(b, 0)
	b = binary.LittleEndian.AppendUint32(b, seekMagic)
	p.bytes += int64(len(b))
	return p.out(b)
}

// undamaged says why the text that was read of a file is not what was written to it.
func undamaged(f vfs.File) error {
	p, ok := f.(*packedFile)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, err := range p.bad {
		return fmt.Errorf("the frame at byte %d of a packed segment cannot be decoded: %w", p.frames[i].off, err)
	}
	return nil
}
