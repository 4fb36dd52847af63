package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// JSONL writes the log in the native form (docs/format.md, "Export"): a first line, the records as they are
// stored and linked from the beginning, and the blobs that they refer to. Without a Redactor a store that
// takes it in has the same log; with one the records are linked anew and the first line says how many
// credentials were replaced, for which everything is read twice.
//
// The log is written as far as it can be read; the first line and the report say what is missing. What was
// written before an error is no export.
func JSONL(ctx context.Context, w io.Writer, src Source) (Report, error) {
	rep := Report{Events: src.Snap.Prefix.Len(), Incomplete: incomplete(src.Snap)}
	line := record.Export{Events: rep.Events, Incomplete: rep.Incomplete}
	var n int
	line.Header, n = src.header()
	if src.Redact != nil {
		count := jsonl{src: src, w: io.Discard}
		if err := count.records(ctx); err != nil {
			return rep, err
		}
		rep.Redacted = n + count.redacted
		line.Redacted = &rep.Redacted
	}
	first, err := record.AppendExport(nil, line)
	if err != nil {
		return rep, err
	}
	if _, err := w.Write(first); err != nil {
		return rep, err
	}
	j := jsonl{src: src, w: w}
	err = j.records(ctx)
	rep.MissingBlobs = j.missing
	return rep, err
}

// jsonl is one pass over a log.
type jsonl struct {
	src      Source
	w        io.Writer
	buf      []byte
	link     session.Link
	sent     map[string]string // name of an attachment to its name in the export, "" if it is not there
	strings  map[string]bool   // names of long strings that were sent
	redacted int
	missing  []string
}

func (j *jsonl) records(ctx context.Context) error {
	p := j.src.Snap.Prefix
	j.sent, j.strings = map[string]string{}, map[string]bool{}
	for ev, err := range p.Range(0, p.Len()) {
		if err == nil {
			err = done(ctx)
		}
		if err == nil {
			err = j.record(ctx, ev)
		}
		if err != nil {
			return fmt.Errorf("export of session %s: %w", j.src.Snap.Header.ID, err)
		}
	}
	return nil
}

func (j *jsonl) record(ctx context.Context, ev session.Event) error {
	j.buf = j.buf[:0]
	if r := j.src.Redact; r != nil {
		var n int
		ev.Data, n = r.JSON(ev.Data)
		j.redacted += n
		if len(ev.Extra) > 0 {
			members, n := r.JSON(append(append([]byte{'{'}, ev.Extra...), '}'))
			ev.Extra = members[1 : len(members)-1]
			j.redacted += n
		}
	}
	data, err := j.attach(ctx, ev.Data)
	if err != nil {
		return err
	}
	ev.Data, err = record.Externalize(data, record.BlobLimit, func(raw []byte) (string, error) {
		name := record.BlobName(raw)
		if !j.strings[name] {
			j.strings[name] = true
			j.buf = record.AppendBlob(j.buf, name, raw)
		}
		return name, nil
	})
	if err != nil {
		return err
	}
	j.buf, j.link = record.Append(j.buf, ev, j.link, session.None)
	_, err = j.w.Write(j.buf)
	if cap(j.buf) > 1<<20 {
		j.buf = nil // one big event is not kept for the others
	}
	return err
}

// attach puts before the record the blobs that its texts name, and returns data with the names that they
// have in the export: that of a text without its credentials is another one.
func (j *jsonl) attach(ctx context.Context, data jsontext.Value) (jsontext.Value, error) {
	if j.src.Blobs == nil {
		return data, nil
	}
	mine := false
	err := record.FindBlobNames(data, func(name string, at int) error {
		as, ok := j.sent[name]
		if !ok {
			var err error
			if as, err = j.blob(ctx, name); err != nil {
				return err
			}
			j.sent[name] = as
		}
		if as == "" || as == name {
			return nil
		}
		if !mine {
			data, mine = bytes.Clone(data), true
		}
		copy(data[at:], as)
		return nil
	})
	return data, err
}

// blob puts one attachment into the export and returns its name there, "" if the store does not have it.
func (j *jsonl) blob(ctx context.Context, name string) (string, error) {
	content, err := j.src.Blobs.GetBlob(ctx, name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDamaged) {
		j.missing = append(j.missing, name)
		return "", nil
	}
	if err != nil {
		return "", err
	}
	content, n := j.src.content(content)
	if n > 0 {
		j.redacted += n
		name = record.BlobName(content)
	}
	if !j.strings[name] {
		j.strings[name] = true
		j.buf = record.AppendBlob(j.buf, name, content)
	}
	return name, nil
}
