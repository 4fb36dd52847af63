package session

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// prepared is a draft as far as it can be judged without the state: the greater part of the work. It is done before the
// session's lock is taken, so that who follows the session gets at it while others append.
type prepared struct {
	ev    Event // without seq and time
	k     *Kind
	known bool
	data  error // why the data cannot be kept
	big   bool  // no record can hold it
	shape error // why the data is not that of its type
}

func (s *Session) prepare(d *Draft) (p prepared) {
	p.k, p.known = s.env.Registry.lookup(d.Type)
	if p.k.reserved {
		p.ev.Type = d.Type
		return p
	}
	if p.ev, p.data = d.Event(0, 0); p.data != nil {
		return p
	}
	n := len(p.ev.Data) + p.ev.Sources.size() + len(p.ev.Type)
	p.big = n > MaxRecord-maxEnvelope && !fits(p.ev)
	p.shape = p.k.shape(p.ev.Data)
	return p
}

// accept makes the event that follows the log with the given tail and folds it into st, or says why not and
// changes nothing.
func (s *Session) accept(st *State, p *prepared, tail []Event) error {
	ev := &p.ev
	ev.Seq = st.next
	if p.k.reserved {
		return st.reject(ev, "only a session's constructor and its store write this type", nil)
	}
	ev.Time = s.env.Now()
	if p.data != nil {
		return st.reject(ev, "data", p.data)
	}
	for _, v := range s.env.Validators {
		if err := v(st.Clone(), *ev); err != nil {
			return st.reject(ev, "vetoed", err)
		}
	}
	if p.big {
		return st.reject(ev, "with its citations it is too big for one record", nil)
	}
	if err := st.check(ev, p.k, p.known, p.shape); err != nil {
		return err
	}
	if ev.Type == TypeToolResult && ev.Op.Kind == OpReplace {
		old, err := Join(s.prefix, tail).At(ev.Op.Start)
		if err == nil {
			err = sameButContent(old, *ev)
		}
		if err != nil {
			return st.reject(ev, "surface", err)
		}
	}
	st.fold(ev, p.k, p.known)
	return nil
}

// sameButContent holds a tool/result that replaces another to the rule that only the inner content differs.
func sameButContent(old, ev Event) error {
	var text [2][]byte
	for i, e := range []Event{old, ev} {
		r, err := DecodeData[ToolResult](e)
		if err != nil {
			return err
		}
		r.Message = r.Message.Clone()
		for k := range r.Message.Content {
			r.Message.Content[k].Content = nil
		}
		if text[i], err = json.Marshal(r); err != nil {
			return err
		}
	}
	if !bytes.Equal(text[0], text[1]) {
		return fmt.Errorf("only the content inside the result may differ from seq %d: %s is not %s", old.Seq, text[1], text[0])
	}
	return nil
}

// Event returns the event that d becomes at seq, with data in the form in which it is kept (CheckData) and
// in memory of its own. Whether it may stand there is for State.Apply to say.
func (d Draft) Event(seq Seq, time int64) (Event, error) {
	ev := Event{Seq: seq, Time: time, Type: d.Type, Op: d.Op, Sources: slices.Clone(d.Sources), Ignorable: d.Ignorable}
	var raw []byte
	owned := false
	switch v := d.Data.(type) {
	case jsontext.Value:
		raw = v
	case []byte:
		raw = v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return ev, fmt.Errorf("session: %w: %v", ErrNotObject, err)
		}
		raw, owned = b, true
	}
	data, err := checkData(raw, owned)
	ev.Data = data
	return ev, err
}

// fits reports whether a record can hold ev once long strings are in blobs.
func fits(ev Event) bool {
	c := checker{in: ev.Data}
	return c.value() == nil && len(ev.Data)-c.saved+ev.Sources.size() <= MaxRecord-maxEnvelope
}
