package session

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Format is the major format that this version writes.
const Format = 1

// SessionKind says who made a session.
type SessionKind string

// The kinds of session.
const (
	KindRoot     SessionKind = "root"
	KindFork     SessionKind = "fork"
	KindSubagent SessionKind = "subagent"
	KindHeadless SessionKind = "headless"
	KindImported SessionKind = "imported"
)

// Header is what is fixed when a session is made; it is written once and never changed.
type Header struct {
	Format     int         `json:"format"`
	ID         ID          `json:"id"`
	CreatedAt  int64       `json:"createdAt"` // Unix milliseconds; of a fork not before its last inherited event
	Kind       SessionKind `json:"kind"`
	Cwd        string      `json:"cwd"`
	Project    string      `json:"project,omitzero"`
	ProjectID  string      `json:"projectId,omitzero"` // what stays when the project's directory is moved; opaque
	Parent     *Parent     `json:"parent,omitzero"`
	SeedLength Seq         `json:"seedLength,omitzero"` // events inherited from the parent at the fork
	Depth      int         `json:"depth,omitzero"`      // of delegation
	Imported   *Imported   `json:"imported,omitzero"`

	Extra jsontext.Value `json:",embed"` // members this version does not know; kept
}

// Parent is the lineage of a fork: the session and the seq it was cut at (None for an empty source),
// the link there, and where each inherited event lies.
type Parent struct {
	ID   ID   `json:"id"`
	Seq  Seq  `json:"seq"`
	Link Link `json:"link"`
	// Spans name the session whose own files hold each part of the inherited prefix, in order and
	// without gaps from 0, so that a fork of a fork of a fork is read without recursion.
	Spans []OriginSpan `json:"spans"`
	// Activity is the activity time at the fork point, so that a list does not need the parent.
	Activity int64 `json:"activity,omitzero"`
	// Trail holds links at some seqs before Seq, ascending: of records in each of Spans, and of the last one in each. It tells
	// what was forked from what a session wrote there later, should the record at the end be lost. nil: that was not noted.
	Trail []Waypoint `json:"trail,omitzero"`

	Extra jsontext.Value `json:",embed"` // members this version does not know; kept
}

// Waypoint is the link of the record at Seq.
type Waypoint struct {
	Seq  Seq  `json:"seq"`
	Link Link `json:"link"`
}

// OriginSpan says that the seqs from the end of the span before it to End-1 are in the own files of ID.
type OriginSpan struct {
	ID  ID  `json:"id"`
	End Seq `json:"end"`
}

// Imported names the file that a session was imported from, and what that file said of its origin: an
// import holds all its events itself, whatever it shared with another session where it came from.
type Imported struct {
	Tool   string `json:"tool"`
	SHA256 string `json:"sha256"` // of the file, in hexadecimal; "" of a fork from another store
	Events Seq    `json:"events"`

	Source string `json:"source,omitzero"` // the session's id there
	// Older is an earlier import of the same session, when the file was shorter: its events begin this one.
	Older ID `json:"older,omitzero"`
	// Parent is the id there of the session that it was forked from, or made by; SeedLength is how many
	// events it has from it, and Origin what it was made for.
	Parent     string `json:"parent,omitzero"`
	SeedLength Seq    `json:"seedLength,omitzero"`
	Origin     string `json:"origin,omitzero"`
	// Tail is what stood behind the last whole line: Bytes in all, and the first of them.
	Tail *Tail `json:"tail,omitzero"`

	Extra jsontext.Value `json:",embed"` // members this version does not know; kept
}

// Tail is a torn end of an imported file.
type Tail struct {
	Bytes int64  `json:"bytes"`
	Raw   []byte `json:"raw"` // base64 in JSON
}

// OwnFrom is the seq below which queue and open questions are not this session's own: a fork does not
// inherit its parent's pending input, nor an import its source's.
func (h Header) OwnFrom() Seq {
	n := h.SeedLength
	if h.Imported != nil {
		n = max(n, h.Imported.Events)
	}
	return n
}

// Shared is how many of the first events were logged by another session: their usage counts there.
func (h Header) Shared() Seq {
	n := h.SeedLength
	if h.Imported != nil {
		n = max(n, h.Imported.SeedLength)
	}
	return n
}

// MayBeEmpty reports whether a session with this header can be stored without an event: a fork of an empty
// source, and the import of a file that held none.
func (h Header) MayBeEmpty() bool {
	return h.Parent != nil || h.Imported != nil && h.Imported.Events == 0
}

// Origin returns the session that logged seq: h.ID, or an ancestor for an inherited seq.
func (h Header) Origin(seq Seq) ID {
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			if seq < sp.End {
				return sp.ID
			}
		}
	}
	return h.ID
}

// Spans returns the origin spans of the first n events of the session with header h: what a child
// forked at n-1 writes into its header.
func (h Header) Spans(n Seq) []OriginSpan {
	var out []OriginSpan
	from := Seq(0)
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			if from >= n {
				return out
			}
			out = append(out, OriginSpan{sp.ID, min(sp.End, n)})
			from = sp.End
		}
	}
	if from < n {
		out = append(out, OriginSpan{h.ID, n})
	}
	return out
}

// maxTrail is how many links a trail has at most besides those at the ends of spans.
const maxTrail = 64

// Trail returns the trail of a child that is forked at seq, where own are the links of the part that seq is in. What comes
// before that part is what h says of it; of too many the oldest are left out, and none at the end of a span.
func (h Header) Trail(seq Seq, own []Waypoint) []Waypoint {
	out := []Waypoint{}
	spans := h.Spans(seq + 1)
	last := Seq(0) // where the part that seq is in begins
	if n := len(spans); n > 1 {
		last = spans[n-2].End
	}
	if p := h.Parent; p != nil && p.Trail != nil {
		for _, w := range append(slices.Clip(p.Trail), Waypoint{p.Seq, p.Link}) {
			if w.Seq < last {
				out = append(out, w)
			}
		}
	}
	for _, w := range own {
		if w.Seq >= last && w.Seq < seq {
			out = append(out, w)
		}
	}
	over := len(out) - len(spans) - maxTrail
	return slices.DeleteFunc(out, func(w Waypoint) bool {
		if over <= 0 || slices.ContainsFunc(spans, func(sp OriginSpan) bool { return sp.End == w.Seq+1 }) {
			return false
		}
		over--
		return true
	})
}

// Ending returns the link of the last record of the span of id, and the part of the trail that is in that span. ok is false if there is no
// such link; links is nil if there is no trail.
func (p *Parent) Ending(id ID) (link Link, links []Waypoint, ok bool) {
	from := Seq(0)
	for i, sp := range p.Spans {
		if sp.ID != id {
			from = sp.End
			continue
		}
		if i == len(p.Spans)-1 {
			link, ok = p.Link, true
		}
		if p.Trail != nil {
			links = []Waypoint{}
		}
		for _, w := range p.Trail {
			switch {
			case w.Seq == sp.End-1:
				link, ok = w.Link, true
			case w.Seq >= from && w.Seq < sp.End:
				links = append(links, w)
			}
		}
		return link, links, ok
	}
	return link, nil, false
}

// Validate checks what every reader relies on.
func (h Header) Validate() error {
	var errs []error
	if err := ValidID(h.ID); err != nil {
		errs = append(errs, err)
	}
	if h.Format != Format {
		errs = append(errs, fmt.Errorf("format %d is not %d", h.Format, Format))
	}
	if h.Kind == "" {
		errs = append(errs, errors.New("no kind"))
	}
	if h.SeedLength < 0 || h.Depth < 0 {
		errs = append(errs, errors.New("a negative length"))
	}
	if h.SeedLength > 0 && h.Parent == nil {
		errs = append(errs, errors.New("a seedLength without a parent"))
	}
	if p := h.Parent; p != nil {
		if p.Seq != h.SeedLength-1 {
			errs = append(errs, fmt.Errorf("parent seq %d does not fit seedLength %d", p.Seq, h.SeedLength))
		}
		end := Seq(0)
		for _, sp := range p.Spans {
			if sp.End <= end || ValidID(sp.ID) != nil {
				errs = append(errs, fmt.Errorf("span %s to %d is empty or has a bad id", sp.ID, sp.End))
			}
			end = sp.End
		}
		if end != h.SeedLength {
			errs = append(errs, fmt.Errorf("spans end at %d, seedLength is %d", end, h.SeedLength))
		}
		from := Seq(0)
		for _, w := range p.Trail {
			if w.Seq < from || w.Seq >= p.Seq {
				errs = append(errs, fmt.Errorf("the trail names %d, which is not between the one before and %d", w.Seq, p.Seq))
			}
			from = w.Seq + 1
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("session: header: %w", errors.Join(errs...))
	}
	return nil
}

// ValidID checks that id is lower case and safe as a file name: 4 to 64 characters a-z, 0-9, '-' and
// '_', beginning with a letter or digit.
func ValidID(id ID) error {
	if len(id) < 4 || len(id) > 64 {
		return fmt.Errorf("session: id %q: want 4 to 64 characters", id)
	}
	for i, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case (c == '-' || c == '_') && i > 0:
		default:
			return fmt.Errorf("session: id %q: only a-z, 0-9, '-' and '_' are allowed", id)
		}
	}
	return nil
}
