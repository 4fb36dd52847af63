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

func (h head) encode(id session.ID) []byte {
	var b []byte
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	text(h.mark.Stamp)
	text(h.mark.Past)
	b = binary.AppendVarint(b, h.activity)
	b = binary.AppendVarint(b, h.created)
	readable := byte(0)
	if h.readable {
		readable = 1
	}
	b = append(b, readable)
	text(string(h.kind))
	text(h.project)
	text(h.projectID)
	b = binary.BigEndian.AppendUint64(b, h.body)
	return seal(id, ofHead, b)
}

func decodeHead(id session.ID, b []byte) (h head, err error) {
	if b, _, err = unseal(id, ofHead, b); err != nil {
		return h, err
	}
	ok := true
	text := func() string {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			ok, b = false, nil
			return ""
		}
		s := string(b[k : k+int(n)])
		b = b[k+int(n):]
		return s
	}
	num := func() int64 {
		n, k := binary.Varint(b)
		if k <= 0 {
			ok, b = false, nil
			return 0
		}
		b = b[k:]
		return n
	}
	h.mark = store.Mark{ID: id, Stamp: text(), Past: text()}
	h.activity, h.created = num(), num()
	if len(b) > 0 {
		h.readable, b = b[0] == 1, b[1:]
	}
	h.kind, h.project, h.projectID = session.SessionKind(text()), text(), text()
	if !ok || len(b) != 8 {
		return h, errWrong
	}
	h.body = binary.BigEndian.Uint64(b)
	return h, nil
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
