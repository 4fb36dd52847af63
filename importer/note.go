package importer

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/session"
)

// TypeNote is the type of what has no meaning here: an ignorable event that keeps the line of the source.
const TypeNote = "import/note"

// Kinds is the vocabulary of this package.
func Kinds() []session.Kind {
	return []session.Kind{
		{Type: TypeNote, Owner: "importer", Doc: "a line of an imported file that has no meaning here, kept as it was"},
	}
}

// Note returns the event at seq that keeps a line of the source. why says in a few words what it is; typ is the
// source's type of it, if it has one. A line that is too long for a log is cut.
func Note(seq session.Seq, time int64, why, typ string, line []byte) session.Event {
	const most = 16 << 20
	o := NewObject("why", why)
	if typ != "" {
		o.SetString("type", typ[:min(len(typ), 200)])
	}
	if n := len(line); n > most {
		o.SetInt("bytes", int64(n))
		line = line[:most]
	}
	switch {
	case line == nil:
	case utf8.Valid(line):
		o.SetString("line", string(line))
	default:
		o.SetString("base64", base64.StdEncoding.EncodeToString(line))
	}
	data, err := session.CheckData(o.Encode())
	if err != nil {
		data = []byte(`{"why":"unreadable"}`) // not reached: texts of any length are acceptable
	}
	return session.Event{Seq: seq, Time: time, Type: TypeNote, Ignorable: true, Data: data}
}
