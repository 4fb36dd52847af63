package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Source opens a file for reading, more than once.
type Source func() (io.ReadCloser, error)

// Options says where sessions go and what an importer needs from outside.
type Options struct {
	Store    store.Store // it must be able to take in sessions and to list them
	Registry *session.Registry
	Formats  Formats
	// Now is the time in Unix milliseconds: a session whose source does not say when it was made is made now.
	Now func() int64
	// Project returns the project that a directory belongs to, and what stays of it when it is moved ("": not known);
	// nil: the directory.
	Project func(cwd string) (project, id string)
}

// Importer imports files into one store, one after the other. It is not safe for concurrent use.
type Importer struct {
	opt   Options
	taker store.Taker
	known map[string][]session.Header // imported sessions, by tool and id there; nil: not looked for yet
	sums  map[string]session.ID       // by tool and hash of the file
}

// New returns an importer.
func New(o Options) (*Importer, error) {
	t, ok := o.Store.(store.Taker)
	if !ok {
		return nil, errors.New("importer: this store cannot take in sessions")
	}
	return &Importer{opt: o, taker: t}, nil
}

// Result says what became of a file.
type Result struct {
	Tool     string
	ID       session.ID
	Events   session.Seq
	Fidelity Fidelity
	// Existing: the same bytes, or the same session, were there already; nothing was written.
	Existing bool
	Older    session.ID // the session that an earlier, shorter state of the file became
	Tail     int64      // bytes behind the last whole line
}

// UnknownFormatError says that no format knows a file.
type UnknownFormatError struct{ Formats []string }

func (e *UnknownFormatError) Error() string {
	return fmt.Sprintf("it is no session file of a kind that is known here (%s)", strings.Join(e.Formats, ", "))
}

// errChanged says that a file was written to while it was imported.
var errChanged = errors.New("it changed while it was read; import it again when its program is done")

// batchBytes is how much of a log is stored at once: a session of this size is stored whole or not at all. Of a
// larger one the beginning may be left behind; the next import of the file completes it.
const batchBytes = 32 << 20

// Import imports one file as format f; nil: whatever it is. It is stored when Import returns.
func (im *Importer) Import(ctx context.Context, f Format, src Source) (Result, error) {
	first, err := im.read(ctx, f, src, nil, func(session.Event) error { return nil })
	if err != nil {
		return Result{Tool: toolOf(first, f)}, err
	}
	log := first.log
	res := Result{Tool: first.format.Name(), Events: log.Events, Fidelity: log.Fidelity, Tail: log.Tail.Bytes}
	if err := im.look(ctx); err != nil {
		return res, err
	}
	j := &job{im: im, first: first, src: src, res: &res}
	return res, j.run(ctx)
}

func toolOf(r reading, f Format) string {
	switch {
	case r.format != nil:
		return r.format.Name()
	case f != nil:
		return f.Name()
	}
	return ""
}

// look reads the headers of the store once, for what was imported before.
func (im *Importer) look(ctx context.Context) error {
	if im.known != nil {
		return nil
	}
	l, ok := im.opt.Store.(store.Lister)
	if !ok {
		return errors.New("importer: this store cannot list")
	}
	page, err := l.List(ctx, store.Query{})
	if err != nil {
		return err
	}
	im.known, im.sums = map[string][]session.Header{}, map[string]session.ID{}
	for _, st := range page.Rows {
		im.remember(st.Header)
	}
	return nil
}

func (im *Importer) remember(h session.Header) {
	i := h.Imported
	if i == nil {
		return
	}
	im.sums[i.Tool+" "+i.SHA256] = h.ID
	if i.Source != "" {
		key := i.Tool + " " + i.Source
		im.known[key] = append(im.known[key], h)
	}
}

// reading is one pass over a file.
type reading struct {
	format Format
	log    *Log
	sum    string
}

// Head returns the first plain bytes of a file, at most SniffBytes.
func Head(src Source) ([]byte, error) {
	rc, err := src()
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	plain, err := NewPlain(rc)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	head := make([]byte, SniffBytes)
	n, err := io.ReadFull(plain, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return head[:n], err
}

// read reads a file once and hashes all of it.
func (im *Importer) read(ctx context.Context, f Format, src Source, blobs Blobs, emit func(session.Event) error) (r reading, err error) {
	rc, err := src()
	if err != nil {
		return r, err
	}
	defer rc.Close()
	var sum hash.Hash = sha256.New()
	tee := io.TeeReader(rc, sum)
	plain, err := NewPlain(tee)
	if err != nil {
		return r, err
	}
	defer plain.Close()
	br := bufio.NewReaderSize(plain, SniffBytes)
	head, err := br.Peek(SniffBytes)
	if err != nil && err != io.EOF {
		return r, err
	}
	if r.format = f; f == nil {
		if r.format = im.opt.Formats.Sniff(head); r.format == nil {
			return r, &UnknownFormatError{im.opt.Formats.Names()}
		}
	}
	if r.log, err = r.format.Read(ctx, br, blobs, emit); err != nil {
		return r, err
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return r, err
	}
	if n := plain.TornFrame; n > 0 {
		r.log.Fidelity.Drop("bytes of a last zstd frame that is not whole", n)
	}
	if n := plain.BadFrames; n > 0 {
		r.log.Fidelity.Drop("zstd frames that cannot be decoded", int64(n))
	}
	if n := r.log.Tail.Bytes; n > 0 {
		r.log.Fidelity.Drop("bytes of a last line that is not whole", n)
	}
	r.log.Fidelity.Sort()
	r.sum = hex.EncodeToString(sum.Sum(nil))
	return r, nil
}

// job is the import of one file that was read once.
type job struct {
	im    *Importer
	first reading
	src   Source
	res   *Result
	begun session.Seq // length of res.Older, where that is the session itself
}

func (j *job) run(ctx context.Context) error {
	tool, sum := j.res.Tool, j.first.sum
	if id, ok := j.im.sums[tool+" "+sum]; ok {
		done, err := j.existing(ctx, id)
		if done || err != nil {
			return err
		}
	}
	if h := j.first.log.Header; h != nil && !j.first.log.Copy {
		done, err := j.move(ctx, *h)
		if done || err != nil {
			return err
		}
	}
	for again := 0; ; again++ {
		h := j.header(idFor(tool, sum, again))
		older, err := j.older(ctx, h.Imported.Source)
		if err != nil {
			return err
		}
		if older != "" {
			j.res.Older = older
		}
		h.Imported.Older = j.res.Older
		err = j.store(ctx, h)
		if e, ok := errors.AsType[*store.ExistsError](err); !ok || !e.Purged {
			return err
		}
		// It was deleted for good, and that id with it.
	}
}

// idFor derives the id of an imported file, so that two who import it at once make one session. again counts how often
// such a session was deleted for good: an id is never used again.
func idFor(tool, sum string, again int) session.ID {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	text := "strandline import\n" + tool + "\n" + sum
	if again > 0 {
		text += fmt.Sprintf("\n%d", again)
	}
	s := sha256.Sum256([]byte(text))
	id := make([]byte, 20)
	for i := range id {
		id[i] = alphabet[s[i]%32]
	}
	return session.ID(id)
}

// header makes the header of a session that was another program's.
func (j *job) header(id session.ID) session.Header {
	l := j.first.log
	h := session.Header{Format: session.Format, ID: id, CreatedAt: l.CreatedAt, Kind: session.KindImported,
		Cwd: short(l.Cwd), Depth: l.Depth,
		Imported: &session.Imported{Tool: j.res.Tool, SHA256: j.first.sum, Events: l.Events, Source: short(l.Source),
			Parent: short(l.Parent), SeedLength: l.SeedLength, Origin: short(l.Origin)}}
	if n := l.Tail.Bytes; n > 0 {
		h.Imported.Tail = &session.Tail{Bytes: n, Raw: l.Tail.Raw}
	}
	if own := l.Header; own != nil { // a session of this program that cannot keep its id
		h.CreatedAt, h.Cwd, h.Depth, h.Imported.Source = own.CreatedAt, own.Cwd, own.Depth, string(own.ID)
		if own.Parent != nil {
			h.Imported.Parent, h.Imported.SeedLength = string(own.Parent.ID), own.SeedLength
		}
		if own.Kind == session.KindSubagent {
			h.Imported.Origin = string(own.Kind)
		}
	}
	if h.CreatedAt <= 0 {
		h.CreatedAt = j.im.opt.Now()
	}
	h.Project = h.Cwd
	if p := j.im.opt.Project; p != nil && h.Cwd != "" {
		h.Project, h.ProjectID = p(h.Cwd)
	}
	return h
}

// short bounds what a header keeps of a foreign text.
func short(s string) string {
	const most = 4096
	return Valid(s[:min(len(s), most)])
}

// existing is for a session that was made of the same bytes: nothing is written, except that an import that was
// killed is completed.
func (j *job) existing(ctx context.Context, id session.ID) (done bool, err error) {
	st, err := j.im.opt.Store.Stat(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	j.res.ID, j.res.Existing = id, true
	if i := st.Header.Imported; i != nil {
		j.res.Older = i.Older
		if st.Pos.Next < i.Events && st.State != store.StateDamaged {
			j.res.Existing = false
			return true, j.fill(ctx, id)
		}
	}
	return true, nil
}

// older finds the session that the longest earlier state of the file became, if it is longer than one that was
// found already.
func (j *job) older(ctx context.Context, source string) (session.ID, error) {
	list := slices.Clone(j.im.known[j.res.Tool+" "+source])
	slices.SortStableFunc(list, func(a, b session.Header) int { return cmp.Compare(b.Imported.Events, a.Imported.Events) })
	for _, h := range list {
		n := h.Imported.Events
		if source == "" || n <= j.begun || n >= j.first.log.Events {
			continue
		}
		same, err := j.begins(ctx, h.ID, n)
		if same || err != nil {
			return h.ID, err
		}
	}
	return "", nil
}

// errEnough ends a pass early.
var errEnough = errors.New("enough")

// begins reports whether the first n stored events of a session are the first n of the file.
func (j *job) begins(ctx context.Context, id session.ID, n session.Seq) (bool, error) {
	snap, err := j.im.opt.Store.Read(ctx, id)
	if err != nil {
		return false, ignoreLost(err)
	}
	defer snap.Close()
	if snap.Prefix.Len() < n {
		return false, nil
	}
	errOther := errors.New("another")
	var a, b []byte
	blobs, _ := j.im.opt.Store.(store.Blobs)
	_, err = j.im.read(ctx, j.first.format, j.src, lookup{blobs}, func(ev session.Event) error {
		if ev.Seq >= n {
			return errEnough
		}
		old, err := snap.Prefix.At(ev.Seq)
		if err != nil {
			return err
		}
		a, _ = record.Append(a[:0], ev, session.Link{}, session.None)
		b, _ = record.Append(b[:0], old, session.Link{}, session.None)
		if !bytes.Equal(a, b) {
			return errOther
		}
		return nil
	})
	switch {
	case err == nil || errors.Is(err, errEnough):
		return true, nil
	case errors.Is(err, errOther) || errors.Is(err, store.ErrNotFound):
		return false, nil
	}
	return false, err
}

// ignoreLost: a session that cannot be read is not the one that is looked for.
func ignoreLost(err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrUnsupported) {
		return nil
	}
	return err
}

// lookup reads blobs of a store and adds none.
type lookup struct{ blobs Blobs }

func (l lookup) PutBlob(_ context.Context, data []byte) (string, error) {
	return record.BlobName(data), nil
}

func (l lookup) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if l.blobs == nil {
		return nil, &store.NotFoundError{ID: name}
	}
	return l.blobs.GetBlob(ctx, name)
}
