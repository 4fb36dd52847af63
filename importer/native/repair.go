package native

import (
	"bytes"
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
)

// maxMarks is how many missing events are marked in one file.
const maxMarks = 1 << 16

// mend takes in a file that does not fit, as an older writer may have left it. Good records, each of which its sum proves, keep
// their seqs, and their bytes; a session/lost stands for each seq before the last one that has none. Of several records with one seq, one
// behind the other, the first whose link follows counts, and the first of all if none does; what comes later for a seq that is
// taken is passed over, and named unless it is the same again. Up to the first fault the links are those of the file; behind it they
// are computed, as in every export.
type mend struct {
	*reader
	have  map[string]bool // blobs that stand in the file
	taken []proof         // of the record at each seq; zero: a mark
	next  *record.Raw     // the record that may be the one of the seq that is due
	good  bool            // its link follows
	last  session.Link    // of the last record in the file; reader.link: of the last that is taken in
	time  int64           // of the last event
	marks int
}

// proof is what a record ends in: its link and its sum.
type proof [22]byte

func proofOf(raw *record.Raw) (p proof) {
	line := raw.Line()
	copy(p[:], line[len(line)-len(`"}`)-len(p):])
	return p
}

// changed says that what is taken in is not the file.
func (m *mend) changed(what string, n int64) {
	m.log.Copy = true
	m.log.Fidelity.Drop(what, n)
}

func (m *mend) unreadable(e *FaultError) {
	m.changed(fmt.Sprintf("a line that cannot be taken in (%v)", e), 1)
}

func (m *mend) record(ctx context.Context, raw *record.Raw) error {
	if err := raw.Valid(); err != nil {
		return m.fault(err)
	}
	missing := ""
	record.Blobs(raw.Data, func(name string) {
		if !m.have[name] {
			missing = name
		}
	})
	if missing != "" {
		return m.fault(fmt.Errorf("the record at seq %d names the text %s, which the file does not have", raw.Seq, missing))
	}
	due := session.Seq(len(m.taken))
	if m.next != nil && raw.Seq > due {
		if err := m.settle(ctx); err != nil {
			return err
		}
		due++
	}
	_, follows := raw.CheckLink(m.link)
	if _, ok := raw.CheckLink(m.last); ok && m.next == nil {
		follows = true
	}
	m.last, _ = raw.Link()
	switch {
	case raw.Seq < due:
		m.passed(raw, m.taken[raw.Seq] == proofOf(raw))
	case m.next == nil:
		if raw.Seq-due > session.Seq(maxMarks-m.marks) {
			return m.fault(fmt.Errorf("the record has seq %d, %d is the next: that is too far", raw.Seq, due))
		}
		behind := raw.Seq > due
		for ; due < raw.Seq; due++ {
			if err := m.mark(due); err != nil {
				return err
			}
		}
		m.keep(raw, follows || behind)
	case proofOf(m.next) == proofOf(raw):
		m.passed(raw, true)
	case follows && !m.good:
		m.passed(m.next, false)
		m.keep(raw, true)
	default:
		m.passed(raw, false)
	}
	return nil
}

// keep remembers raw, which is of the line that is read.
func (m *mend) keep(raw *record.Raw, good bool) {
	own, _ := record.Parse(bytes.Clone(raw.Line()))
	m.next, m.good = &own, good
}

// passed tells of a record that is not taken in.
func (m *mend) passed(raw *record.Raw, again bool) {
	if again {
		m.changed("records that stand there twice: once is enough", 1)
		return
	}
	m.changed(fmt.Sprintf("another record of seq %d, which is taken", raw.Seq), 1)
}

// settle takes in the record that waits.
func (m *mend) settle(ctx context.Context) error {
	raw := m.next
	if raw == nil {
		return nil
	}
	if !m.good {
		m.changed("records whose link did not follow: they are linked anew", 1)
	}
	m.next, m.time = nil, raw.Time
	m.link, _ = raw.Link()
	m.taken = append(m.taken, proofOf(raw))
	return m.accept(ctx, raw)
}

// mark puts a session/lost at seq.
func (m *mend) mark(seq session.Seq) error {
	data, err := json.Marshal(session.Lost{})
	if err != nil {
		return err
	}
	if seq == 0 {
		m.time = m.head.Header.CreatedAt
	}
	m.taken = append(m.taken, proof{})
	m.marks++
	m.log.Events++
	m.log.Fidelity.Notes++
	m.changed("events that are missing: a mark stands for each", 1)
	return m.emit(session.Event{Seq: seq, Time: m.time, Type: session.TypeLost, Op: session.Append(), Data: data})
}
