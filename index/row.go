package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A session is two blobs. The head is what every list reads of all sessions: small, in a table of its own, decoded by
// hand. The body is what a shown row needs. Each ends in a sum over its session's id and itself, and the head names the
// sum of its body: what does not fit was not written so.

// head is what a list orders and filters by.
type head struct {
	mark     store.Mark // without Held
	activity int64
	created  int64
	readable bool // its header was read
	kind     session.SessionKind
	project  string // or its cwd, where it has none
	// projectID is that of its header.
	projectID string
	body      uint64 // the sum of its body
}

// body is all the rest.
type body struct {
	Stat  store.Stat `json:"stat"`
	Facts *Facts     `json:"facts,omitzero"` // nil: its log was not read yet
	Hours uint64     `json:"hours,omitzero"` // the sums of its rows of the table hours, added
	Kind  string     `json:"kind,omitzero"`  // of the registry that Facts were folded under
	Seen  store.Pos  `json:"seen"`           // the end of the log when Facts were complete
	Check string     `json:"check,omitzero"` // of store.Checker, before Facts were read

	// What reading the log found that its end does not tell; "" if nothing.
	Bad    store.State `json:"bad,omitzero"`
	Reason string      `json:"reason,omitzero"`
}

// kindOf names what a registry makes of events.
func kindOf(reg *session.Registry) string {
	var b []byte
	for _, k := range reg.Kinds() {
		b = fmt.Appendf(b, "%s %v\n", k.Type, k.Usage)
	}
	return fmt.Sprintf("%x", crc64.Checksum(b, table))
}

// errWrong says that a row is not one that was written.
var errWrong = errors.New("index: a row does not prove itself")

var table = crc64.MakeTable(crc64.ECMA)

// sumOf is the sum of a blob of a session.
func sumOf(id session.ID, what byte, b []byte) uint64 {
	h := crc64.Update(0, table, append([]byte(id), 0, what))
	return crc64.Update(h, table, b)
}

const (
	ofHead  = 'h'
	ofBody  = 'b'
	ofHours = 'u'
	ofCover = 'c'
	ofPack  = 'p'
	ofTrust = 't'
)

// seal appends the sum.
func seal(id session.ID, what byte, b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, sumOf(id, what, b))
}

// sealed returns the sum of what was sealed.
func sealed(b []byte) uint64 { return binary.BigEndian.Uint64(b[len(b)-8:]) }

// unseal returns what was sealed, and its sum.
func unseal(id session.ID, what byte, b []byte) ([]byte, uint64, error) {
	n := len(b) - 8
	if n < 0 {
		return nil, 0, errWrong
	}
	sum := binary.BigEndian.Uint64(b[n:])
	if sum != sumOf(id, what, b[:n]) {
		return nil, 0, errWrong
	}
	return b[:n:n], sum, nil
}

func (h head) encode(id session.ID) []byte { return seal(id, ofHead, h.append(nil)) }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (h head) append(b []byte) []byte {
	b = appendText(b, h.mark.Stamp)
	b = appendText(b, h.mark.Past)
	b = binary.AppendVarint(b, h.activity)
	b = binary.AppendVarint(b, h.created)
	readable := byte(0)
	if h.readable {
		readable = 1
	}
	b = append(b, readable)
	b = appendText(b, string(h.kind))
	b = appendText(b, h.project)
	b = appendText(b, h.projectID)
	return binary.BigEndian.AppendUint64(b, h.body)
}

func decodeHead(id session.ID, b []byte) (h head, err error) {
	if b, _, err = unseal(id, ofHead, b); err != nil {
		return h, err
	}
	d := decoder{text: string(b)}
	if h = d.head(id); d.bad || d.text != "" {
		return h, errWrong
	}
	return h, nil
}

// decoder reads what append wrote. What it returns are parts of text. After the first error it is bad and empty.
type decoder struct {
	text string
	bad  bool
}

func (d *decoder) take(n int) string {
	if n < 0 || n > len(d.text) {
		d.text, d.bad = "", true
		return ""
	}
	s := d.text[:n]
	d.text = d.text[n:]
	return s
}

func (d *decoder) uint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c := d.take(1)
		if c == "" {
			return 0
		}
		if v |= uint64(c[0]&0x7f) << shift; c[0] < 0x80 {
			return v
		}
	}
	d.text, d.bad = "", true
	return 0
}

func (d *decoder) num() int64 {
	u := d.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) str() string {
	n := d.uint()
	if n > uint64(len(d.text)) {
		n = uint64(len(d.text)) + 1 // too many
	}
	return d.take(int(n))
}

func (d *decoder) head(id session.ID) head {
	h := head{mark: store.Mark{ID: id, Stamp: d.str(), Past: d.str()}}
	h.activity, h.created = d.num(), d.num()
	h.readable = d.take(1) == "\x01"
	h.kind, h.project, h.projectID = session.SessionKind(d.str()), d.str(), d.str()
	if sum := d.take(8); sum != "" {
		h.body = binary.BigEndian.Uint64([]byte(sum))
	}
	return h
}

// headOf returns the head of a session that is as st says, without its body's sum.
func headOf(m store.Mark, st store.Stat) head {
	h := head{mark: store.Mark{ID: m.ID, Stamp: m.Stamp, Past: m.Past}, activity: st.LastActivity, created: st.Header.CreatedAt,
		readable: st.Header.ID != "", kind: st.Header.Kind, project: st.Header.Project, projectID: st.Header.ProjectID}
	if h.project == "" {
		h.project = st.Header.Cwd
	}
	return h
}

func (b body) encode(id session.ID) ([]byte, error) {
	b.Stat.Holder = nil
	text, err := json.Marshal(b, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("index: the row of %s: %w", id, err)
	}
	return seal(id, ofBody, text), nil
}

func decodeBody(id session.ID, want uint64, text []byte) (b body, err error) {
	text, sum, err := unseal(id, ofBody, text)
	if err != nil || sum != want {
		return b, errWrong
	}
	if json.Unmarshal(text, &b, jsontext.AllowInvalidUTF8(true)) != nil {
		return b, errWrong
	}
	return b, nil
}
