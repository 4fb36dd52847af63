package dsh

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
)

// fate is what became of an event.
type fate int

const (
	kept fate = iota
	mapped
	note
)

// held is an answer that waits for the row behind it: in June 2026 that told its usage.
type held struct {
	ev   session.Event
	data importer.Object
	how  fate
	what string
}

// settle puts the answer that was held.
func (r *reader) settle() error {
	h := r.held
	if h == nil {
		return nil
	}
	r.held = nil
	return r.accept(h.ev, h.how, h.what)
}

// event takes a row that is one event.
func (r *reader) event(typ string, o importer.Object, raw []byte) error {
	usage := r.usageFor(typ, o)
	var at *int64
	if s, ok := o.Int("seq"); ok && s >= 0 {
		at = &s
	}
	seq, err := r.place(at)
	if err != nil {
		return err
	}
	if usage {
		return r.put(importer.Note(seq, timeOf(o), "usage, which stands on the answer before it", typ, raw), note, "usage rows")
	}
	ev, how, what := r.convert(seq, typ, o, raw)
	if ev.Type == session.TypeAssistantMessage && how != note {
		if data, ok := importer.ParseObject(ev.Data); ok && !data.Has("usage") {
			ev.Data = bytes.Clone(ev.Data)
			r.held = &held{ev, data, how, what}
			return nil
		}
	}
	return r.put(ev, how, what)
}

// usageFor gives the held answer the usage of a row of its own.
func (r *reader) usageFor(typ string, o importer.Object) bool {
	if typ != "usage" || r.held == nil {
		return false
	}
	data, _ := o.Object("data")
	u, ok := data.Object("usage")
	if !ok {
		return false
	}
	h := r.held
	for _, name := range []string{"turn", "step"} {
		a, _ := data.Int(name)
		b, _ := h.data.Int(name)
		if a != b {
			return false
		}
	}
	h.data.Set("usage", u.Encode())
	v, _, ok := importer.Tidy(h.data.Encode())
	if k, _ := r.kind(h.ev.Type); !ok || k.Check != nil && k.Check(v) != nil {
		return false
	}
	h.ev.Data, h.how, h.what = v, mapped, "usage rows moved to their answers"
	return true
}

func timeOf(o importer.Object) int64 {
	t, ok := o.Int("time")
	if !ok {
		return 0
	}
	return t
}

// convert makes the event at seq of a row.
func (r *reader) convert(seq session.Seq, typ string, o importer.Object, raw []byte) (session.Event, fate, string) {
	t := timeOf(o)
	fail := func(why string) (session.Event, fate, string) {
		return importer.Note(seq, t, why, typ, raw), note, why + ": " + clip(typ)
	}
	to, known := types[typ]
	switch {
	case retired[typ]:
		return fail("retired type")
	case typ == "system/message":
		r.system[seq] = true
		return fail("system prompt as a message")
	case !known:
		if to, known = family(typ); !known {
			r.log.Fidelity.Stranger(clip(typ))
			return fail("unknown type")
		}
	}
	value := o.Get("data")
	if value == nil {
		value = []byte("{}")
	}
	data, ok := importer.ParseObject(value)
	if !ok {
		return fail("malformed")
	}
	how, what := kept, ""
	change := func(w string) {
		if how == kept {
			how, what = mapped, w
		}
	}
	if to.name != typ {
		change(typ + " as " + to.name)
	}
	k, _ := r.kind(to.name)
	if to.shape != nil {
		w, ok := to.shape(r, &data)
		if !ok {
			return fail("malformed")
		}
		if w != "" {
			change(w)
		}
	}
	encoded := []byte(value)
	if data.Changed() {
		encoded = data.Encode()
	}
	v, mended, ok := importer.Tidy(encoded)
	if mended {
		change("data that no log can keep, mended")
	}
	if !ok || k.Check != nil && k.Check(v) != nil {
		return fail("malformed")
	}
	ev := session.Event{Seq: seq, Time: t, Type: to.name, Data: v, Ignorable: to.foreign}
	if t > maxTime || t < -maxTime {
		ev.Time = 0
	}
	if w, ok := r.surface(&ev, k.Class, o); !ok {
		return fail("replaces a system prompt")
	} else if w != "" {
		change(w)
	}
	r.members(&ev, o)
	return ev, how, what
}

// kind returns the declaration of a type.
func (r *reader) kind(typ string) (session.Kind, bool) { return r.reg.Lookup(typ) }

// members keeps what else a row has beside what is known of it.
func (r *reader) members(ev *session.Event, o importer.Object) {
	var extra importer.Object
	o.Each(func(name string, v jsontext.Value) {
		switch name {
		case "type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable":
		default:
			extra.Set(name, v)
		}
	})
	if extra.Len() == 0 {
		return
	}
	v, _, ok := importer.Tidy(extra.Encode())
	if ok && len(v) < 2048 {
		ev.Extra = v[1 : len(v)-1]
		if record.Check(*ev) == nil {
			return
		}
	}
	ev.Extra = nil
	r.log.Fidelity.Drop("members of events that cannot be kept", int64(extra.Len()))
}

// put stores an event behind all before it.
func (r *reader) put(ev session.Event, how fate, what string) error {
	if err := r.settle(); err != nil {
		return err
	}
	return r.accept(ev, how, what)
}

// accept folds an event and hands it over. What the strict rules of the surface refuse is mended as far as the
// file says what was meant; the rest is for the fold of a stored log to bend.
func (r *reader) accept(ev session.Event, how fate, what string) error {
	if err := r.st.Apply(ev); err != nil {
		if r.mend(&ev) && r.st.Apply(ev) == nil {
			how, what = max(how, mapped), "replacements whose range was not on the surface"
		} else {
			r.st.Load(ev)
			r.log.Fidelity.Change("events that break a rule of the log; docs/import.md says how they are read")
		}
	}
	switch how {
	case kept:
		r.log.Fidelity.Kept++
	case mapped:
		r.log.Fidelity.Mapped++
		r.log.Fidelity.Change(what)
	case note:
		r.log.Fidelity.Notes++
		if what != "" {
			r.log.Fidelity.Drop(what, 1)
		}
	}
	r.log.Events++
	if err := r.emit(ev); err != nil {
		return fmt.Errorf("at event %d: %w", ev.Seq, err)
	}
	return nil
}

func clip(s string) string {
	s = importer.Valid(s[:min(len(s), 400)])
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
}
