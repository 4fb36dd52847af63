// Package native reads a session that this program exported as one file (docs/format.md, "Export"): the header,
// the records as they were stored, and the large values that they refer to. Every sum and every link is
// verified; what does not fit ends the import with an error, because a copy that is not known to be whole must
// not pass for the session.
//
// A file that is cut off is read as far as its records are good. Who asks for it gets a copy of a file that does not fit, too:
// repair.go says what is in that.
package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
)

// Name is the name of the format.
const Name = "native"

// Format reads the files. The zero value is ready.
type Format struct {
	// Repair takes in what is good of a file that does not fit, with marks where events are missing, as a copy.
	Repair bool
}

var _ importer.Format = Format{}

// Name returns Name.
func (Format) Name() string { return Name }

// Sniff knows a file by its first line.
func (Format) Sniff(head []byte) bool { return record.IsExport(head) }

// FaultError says what does not fit in a file. A Format that repairs takes in the rest.
type FaultError struct {
	Line int // from 1 on
	Err  error
}

func (e *FaultError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *FaultError) Unwrap() error { return e.Err }

// reader is one pass over a file.
type reader struct {
	blobs importer.Blobs
	emit  func(session.Event) error
	log   importer.Log
	head  record.Export
	link  session.Link
	line  int
	mend  *mend // nil: nothing is repaired
}

// Read reads a file.
func (f Format) Read(ctx context.Context, src io.Reader, blobs importer.Blobs, emit func(session.Event) error) (*importer.Log, error) {
	r := &reader{blobs: blobs, emit: emit}
	if f.Repair {
		r.mend = &mend{reader: r, have: map[string]bool{}}
	}
	lines := importer.NewLines(src)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		r.line++
		switch {
		case r.line == 1:
			err = r.first(line.Text)
		case !line.LF && !whole(line):
			r.log.Tail = importer.Cut(line.Text, line.Bytes)
		case line.TooLong():
			err = r.fault(fmt.Errorf("it has %d bytes: no record is so long", line.Bytes))
		case record.IsBlob(line.Text):
			err = r.blob(ctx, line.Text)
		case bytes.HasPrefix(line.Text, []byte(`{"seq":`)):
			err = r.record(ctx, line.Text)
		default:
			r.log.Fidelity.Drop("lines of a later version", 1)
		}
		if fault, ok := errors.AsType[*FaultError](err); ok && r.mend != nil {
			r.mend.unreadable(fault)
			err = nil
		}
		if err != nil {
			return nil, err
		}
	}
	if r.line == 0 {
		return nil, importer.ErrNotThis
	}
	if r.mend != nil {
		if err := r.mend.settle(ctx); err != nil {
			return nil, err
		}
	}
	if n := r.head.Events; r.log.Events < n {
		r.log.Copy = true
		r.log.Fidelity.Drop("events that the file says it has, and has not", int64(n-r.log.Events))
	}
	if r.head.Incomplete != "" {
		r.log.Copy = true
		r.log.Fidelity.Drop("what was not exported: "+r.head.Incomplete, 1)
	}
	r.log.Fidelity.Sort()
	return &r.log, nil
}

// whole reports whether a last line without LF is all of it.
func whole(line importer.Line) bool {
	if line.TooLong() {
		return false
	}
	_, err := record.Parse(line.Text)
	_, _, blobErr := record.ParseBlob(line.Text)
	return err == nil || blobErr == nil
}

func (r *reader) first(line []byte) error {
	head, err := record.ParseExport(line)
	var newer *record.FormatError
	switch {
	case errors.As(err, &newer):
		return &importer.VersionError{Tool: Name, Have: newer.Major, Know: session.Format}
	case err != nil && !record.IsExport(line):
		return importer.ErrNotThis
	case err != nil:
		return fmt.Errorf("line 1: %w", err)
	}
	r.head = head
	r.log.Header = &head.Header
	r.log.Source = string(head.Header.ID)
	if n := head.Redacted; n != nil && *n > 0 {
		r.log.Copy = true
		r.log.Fidelity.Drop("credentials that were taken out when it was exported; its records are linked anew", int64(*n))
	}
	return nil
}

func (r *reader) blob(ctx context.Context, line []byte) error {
	name, content, err := record.ParseBlob(line)
	if err != nil {
		return r.fault(err)
	}
	if r.mend != nil {
		r.mend.have[name] = true
	}
	if r.blobs == nil {
		return nil
	}
	got, err := r.blobs.PutBlob(ctx, bytes.Clone(content))
	if err == nil && got != name {
		err = fmt.Errorf("the store calls the blob %s %s", name, got)
	}
	return err
}

// fault says that something is wrong with the line.
func (r *reader) fault(err error) error { return &FaultError{r.line, err} }

func (r *reader) record(ctx context.Context, line []byte) error {
	raw, err := record.Parse(line)
	if err == nil && r.mend != nil {
		return r.mend.record(ctx, &raw)
	}
	if err != nil {
		return r.fault(err)
	}
	if raw.Seq != r.log.Events {
		return r.fault(fmt.Errorf("the record has seq %d, %d is the next", raw.Seq, r.log.Events))
	}
	if err := raw.Valid(); err != nil {
		return r.fault(err)
	}
	link, ok := raw.CheckLink(r.link)
	if !ok {
		return r.fault(fmt.Errorf("the record at seq %d is not the one that followed: its link is wrong", raw.Seq))
	}
	r.link = link
	return r.accept(ctx, &raw)
}

// accept hands over the event of a record.
func (r *reader) accept(ctx context.Context, raw *record.Raw) error {
	ev := raw.Event()
	if r.blobs != nil {
		data, err := record.Internalize(ev.Data, func(name string) ([]byte, error) { return r.blobs.GetBlob(ctx, name) })
		if err != nil {
			return r.fault(err)
		}
		ev.Data = data
		if data, err = session.CheckData(ev.Data); err != nil {
			return r.fault(err)
		}
		if !bytes.Equal(data, ev.Data) {
			return r.fault(fmt.Errorf("the data at seq %d is not in the form in which a log keeps it", ev.Seq))
		}
		ev.Data = jsontext.Value(data)
	}
	r.log.Events++
	r.log.Fidelity.Kept++
	return r.emit(ev)
}
