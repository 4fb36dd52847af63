// Package dsh reads the session files of DeepSeek Harness, of all its vintages: headers of version 0 to 3, rows
// with and without seq and time, messages before and after they got an envelope of their own, packed chunks, and
// the names that types had at one time or another.
//
// The vocabulary is the one that this program's log comes from, so most events are stored as they are. An event
// keeps the seq that it had: a row that packs n chunks is n events, and whatever has no meaning here is a note
// at its seq. So the ranges of replacements and the length of an inherited prefix stay right. Where a file
// contradicts itself (a seq that goes back because two writers wrote, a hole) docs/import.md says what is done.
//
// The files, in reading order:
//
//	dsh.go       recognising a file; reading it line by line
//	number.go    which seq an event gets
//	event.go     from a row to an event
//	shape.go     the shapes that rows had over time
//	op.go        what a row does to the surface
//	kinds.go     the types
package dsh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/session"
)

// Name is the name of the format.
const Name = "dsh"

// maxVersion is the latest version of the header that is known.
const maxVersion = 3

// Format reads the files. The zero value is ready.
type Format struct{}

var _ importer.Format = Format{}

// Name returns Name.
func (Format) Name() string { return Name }

// Sniff knows a file by its header (type session, a createdAt in milliseconds) or, where that is missing, by an
// event in its first lines.
func (Format) Sniff(head []byte) bool {
	head = bytes.TrimPrefix(head, bom)
	for i := 0; i < 5 && len(head) > 0; i++ {
		line, rest, whole := bytes.Cut(head, []byte{'\n'})
		head = rest
		o, ok := firstObject(line, whole)
		if !ok {
			continue
		}
		if isHeader(o) {
			return true
		}
		typ, _ := o.String("type")
		if _, known := types[typ]; (known || retired[typ] || packed[typ] != "") && strings.Trim(string(o.Get("data")), " ") != "" && o.Get("data").Kind() == '{' && !o.Has("chain") {
			return true
		}
	}
	return false
}

// firstObject reads the first object of a line; of a line that is cut off (a first line longer than what there
// is to see) its first members are enough.
func firstObject(line []byte, whole bool) (o importer.Object, ok bool) {
	_, _ = importer.Values(line, func(raw []byte) error {
		if !ok {
			o, ok = importer.ParseObject(raw)
		}
		return nil
	})
	if !ok && !whole {
		for _, end := range []string{"}", `"}`} {
			for cut := len(line); cut > 0 && !ok; cut = bytes.LastIndexByte(line[:cut], ',') {
				o, ok = importer.ParseObject(append(bytes.Clone(line[:cut]), end...))
				if len(line)-cut > 4096 {
					break
				}
			}
		}
	}
	return o, ok
}

func isHeader(o importer.Object) bool {
	typ, _ := o.String("type")
	created := o.Get("createdAt")
	return typ == "session" && (created.Kind() == '0' || o.Has("delegationDepth") || o.Has("version") && !o.Has("timestamp"))
}

var bom = []byte("\xef\xbb\xbf")

// reader turns one file into events.
type reader struct {
	emit func(session.Event) error
	log  importer.Log
	st   session.State
	reg  *session.Registry
	num  numbering

	headers int
	model   [2]string // provider and model of the last request/header
	asks    map[string]string
	system  map[session.Seq]bool // notes that were system messages
	held    *held                // an answer that may still get its usage
	lost    [][]byte             // lines that could not be read since the last event: they may have been events
	lostToo int                  // .. and so many more
}

// Read reads a file.
func (Format) Read(ctx context.Context, src io.Reader, _ importer.Blobs, emit func(session.Event) error) (*importer.Log, error) {
	r := &reader{emit: emit, asks: map[string]string{}, system: map[session.Seq]bool{}}
	reg, err := session.NewRegistry(known(), importer.Kinds())
	if err != nil {
		return nil, err
	}
	r.reg = reg
	r.st = session.NewState(session.Header{ID: "import"}, reg)
	lines := importer.NewLines(src)
	for n := 0; ; n++ {
		line, err := lines.Next()
		if err == io.EOF {
			break
		}
		if err == nil && n%256 == 0 {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = r.line(line, n == 0)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if r.headers == 0 && r.log.Events == 0 {
		return nil, importer.ErrNotThis
	}
	if r.headers == 0 {
		r.log.Fidelity.Drop("no header line", 1)
	}
	r.log.SeedLength = min(r.log.SeedLength, r.log.Events)
	r.log.Fidelity.Sort()
	return &r.log, nil
}

func (r *reader) line(line importer.Line, first bool) error {
	text := line.Text
	if first {
		text = bytes.TrimPrefix(text, bom)
	}
	if line.TooLong() {
		if !line.LF {
			r.log.Tail = importer.Cut(text, line.Bytes)
			return nil
		}
		r.log.Fidelity.Drop(fmt.Sprintf("lines longer than %d MiB", importer.MaxLine>>20), 1)
		return r.unread(nil)
	}
	n := 0
	rest, err := importer.Values(text, func(raw []byte) error {
		if n++; n == 2 {
			r.log.Fidelity.Change("several objects on one line")
		}
		return r.row(raw)
	})
	switch {
	case err != nil || len(rest) == 0:
		return err
	case !line.LF:
		r.log.Tail = importer.Cut(rest, int64(len(rest)))
		return nil
	}
	r.log.Fidelity.Drop("unreadable lines", 1)
	return r.unread(bytes.Clone(rest))
}

// maxLost is how many unreadable lines are remembered until the next event tells whether they were events.
const maxLost = 1000

func (r *reader) unread(line []byte) error {
	if len(r.lost) < maxLost {
		r.lost = append(r.lost, line)
		return nil
	}
	r.lostToo++
	return nil
}

// row takes one object of the file.
func (r *reader) row(raw []byte) error {
	o, ok := importer.ParseObject(raw)
	typ, isText := o.String("type")
	switch {
	case !ok || !isText || typ == "":
		r.log.Fidelity.Drop("lines that are no events", 1)
		return r.unread(bytes.Clone(raw))
	case typ == "session":
		return r.header(o)
	case packed[typ] != "":
		return r.unpack(typ, o, raw)
	}
	return r.event(typ, o, raw)
}

// header reads the first line. A later one is another session's, or a copy: the first says whose file this is.
func (r *reader) header(o importer.Object) error {
	if r.headers++; r.headers > 1 {
		r.log.Fidelity.Drop("further header lines", 1)
		return nil
	}
	if v, ok := o.Int("version"); ok && v > maxVersion {
		return &importer.VersionError{Tool: Name, Have: int(min(v, 1<<30)), Know: maxVersion}
	}
	l := &r.log
	l.Source, _ = o.String("id")
	l.CreatedAt, _ = o.Int("createdAt")
	l.Cwd, _ = o.String("cwd")
	l.Parent, _ = o.String("parentSession")
	l.Origin, _ = o.String("origin")
	if n, ok := o.Int("seedLength"); ok && n > 0 {
		l.SeedLength = session.Seq(n)
	}
	if d, ok := o.Int("delegationDepth"); ok && d > 0 {
		l.Depth = int(min(d, 1000))
	}
	return nil
}

// end settles what waits for what comes next.
func (r *reader) end() error {
	if err := r.settle(); err != nil {
		return err
	}
	if r.lostToo > 0 {
		r.log.Fidelity.Drop("unreadable lines that are not kept", int64(r.lostToo))
	}
	return r.notes(len(r.lost))
}

// unpack takes a row that packs the deltas of a stream: each is an event of its own.
func (r *reader) unpack(typ string, o importer.Object, raw []byte) error {
	data, _ := o.Object("data")
	texts, ok := importer.Elements(data.Get("texts"))
	arg := "text"
	if !ok || typ == "tool-call-chunks" {
		texts, ok = importer.Elements(data.Get("args"))
		arg = "argumentsDelta"
	}
	if !ok || len(texts) == 0 {
		r.log.Fidelity.Drop("unreadable packed rows", 1)
		return r.unread(bytes.Clone(raw))
	}
	seq, hasSeq := o.Int("seq0")
	time, _ := o.Int("time0")
	deltas, _ := importer.Elements(data.Get("dt"))
	for i, text := range texts {
		if i > 0 && i <= len(deltas) {
			if d, ok := importer.Int(deltas[i-1]); ok {
				time += d
			}
		}
		chunk := importer.NewObject("type", packed[typ])
		chunk.Set("index", orZero(data.Get("index")))
		for _, name := range []string{"id", "name"} {
			if v := data.Get(name); v != nil {
				chunk.Set(name, v)
			}
		}
		chunk.Set(arg, text)
		d := importer.NewObject("turn", orZero(data.Get("turn")), "step", orZero(data.Get("step")), "chunk", chunk)
		var at *int64
		if s := seq + int64(i); hasSeq {
			at = &s
		}
		ours, err := r.place(at)
		if err != nil {
			return err
		}
		v, _, ok := importer.Tidy(d.Encode())
		ev := session.Event{Seq: ours, Time: time, Type: session.TypeAssistantChunk, Data: v}
		if !ok || time > maxTime || time < -maxTime {
			ev = importer.Note(ours, 0, "malformed", typ, d.Encode())
		}
		if err := r.put(ev, mapped, "packed chunks"); err != nil {
			return err
		}
	}
	return nil
}

func orZero(v jsontext.Value) jsontext.Value {
	if v == nil {
		return jsontext.Value("0")
	}
	return v
}
