package record

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
)

// Limits of the format.
const (
	MaxRecord = session.MaxRecord  // bytes of a line that is written, LF included
	MaxLine   = MaxRecord + 4096   // bytes of a line that is read: a longer one is bad
	MaxDepth  = session.MaxNesting // of accepted data
	maxType   = 128
)

const (
	kSeq       = `{"seq":`
	kTime      = `,"time":`
	kType      = `,"type":"`
	kOp        = `,"surfaceOp":`
	kSources   = `,"sourceEventSeqs":[`
	kIgnorable = `,"ignorable":true`
	kData      = `,"data":{`
	kSynced    = `,"synced":`
	kChain     = `,"chain":"`

	opAppend  = `"append"`
	opReplace = `{"op":"replace","start":`
	opEnd     = `,"end":`
	opRestore = `{"op":"restore","node":`

	tailLen = len(kChain) + linkLen + sumLen + len(`"}`)
	minLine = len(`{"seq":0,"time":0,"type":"t","data":{}`) + tailLen
)

// Append appends the record of ev, LF included, behind the record that has link prev, and returns its
// link. synced is the mark of the first record of a batch, session.None for the others. ev must pass
// Check, and its Data must be in stored form (Externalize). It allocates nothing but room in dst.
func Append(dst []byte, ev session.Event, prev session.Link, synced session.Seq) ([]byte, session.Link) {
	start := len(dst)
	// The hash wants link and body side by side: the body is moved down after it.
	dst = append(dst, prev[:]...)
	dst = append(dst, kSeq...)
	dst = appendInt(dst, ev.Seq)
	dst = append(dst, kTime...)
	dst = appendInt(dst, ev.Time)
	dst = append(dst, kType...)
	dst = append(dst, ev.Type...)
	dst = append(dst, '"')
	if ev.Op.Kind != session.OpNone {
		dst = appendOp(append(dst, kOp...), ev.Op)
	}
	if ev.Sources != nil {
		dst = appendSources(append(dst, kSources...), ev.Sources)
	}
	if ev.Ignorable {
		dst = append(dst, kIgnorable...)
	}
	if len(ev.Extra) > 0 {
		dst = append(append(dst, ','), ev.Extra...)
	}
	dst = append(dst, kData[:len(kData)-1]...)
	dst = append(dst, ev.Data...)

	link := hashed(dst[start:])
	copy(dst[start:], dst[start+len(prev):])
	dst = dst[:len(dst)-len(prev)]

	if synced != session.None {
		dst = appendInt(append(dst, kSynced...), synced)
	}
	sum := sumText(dst[start:])
	lt := linkText(link)
	dst = append(dst, kChain...)
	dst = append(dst, lt[:]...)
	dst = append(dst, sum[:]...)
	return append(dst, "\"}\n"...), link
}

func appendOp(dst []byte, op session.SurfaceOp) []byte {
	switch op.Kind {
	case session.OpReplace:
		dst = appendInt(append(dst, opReplace...), op.Start)
		dst = appendInt(append(dst, opEnd...), op.End)
		return append(dst, '}')
	case session.OpRestore:
		return append(appendInt(append(dst, opRestore...), op.Node), '}')
	}
	return append(dst, opAppend...)
}

func appendSources(dst []byte, s session.Sources) []byte {
	for i, sp := range s {
		if i > 0 {
			dst = append(dst, ',')
		}
		if sp.First == sp.Last {
			dst = appendInt(dst, sp.First)
			continue
		}
		dst = appendInt(append(dst, '['), sp.First)
		dst = append(appendInt(append(dst, ','), sp.Last), ']')
	}
	return append(dst, ']')
}

// Check reports why ev cannot be a record: it looks at the envelope, and at the first and last byte of
// Data. That Data is valid JSON is for session.Append to see (Raw.Valid checks it of a stored one).
func Check(ev session.Event) error {
	reason := ""
	switch {
	case ev.Seq < 0 || ev.Seq > maxInt:
		reason = "seq is out of range"
	case ev.Time < -maxInt || ev.Time > maxInt:
		reason = "time is out of range"
	case !validType(ev.Type):
		reason = "type is not 1 to 128 printable ASCII characters without space, quote and backslash"
	case ev.Op.Kind > session.OpRestore || ev.Op.Start < 0 || ev.Op.End < 0 || ev.Op.Node < 0:
		reason = "unknown surfaceOp"
	case len(ev.Data) < 2 || ev.Data[0] != '{' || ev.Data[len(ev.Data)-1] != '}':
		reason = "data is not a JSON object"
	case len(ev.Extra) > 0:
		reason = checkMembers(ev.Extra)
	}
	for _, sp := range ev.Sources {
		if sp.First < 0 || sp.Last < sp.First || sp.Last > maxInt {
			reason = "sourceEventSeqs has a bad span"
		}
	}
	if reason == "" {
		return nil
	}
	return fmt.Errorf("record: event %d (%.40s) cannot be stored: %s", ev.Seq, ev.Type, reason)
}

func validType(s string) bool {
	if len(s) == 0 || len(s) > maxType {
		return false
	}
	for i := range len(s) {
		if !typeByte[s[i]] {
			return false
		}
	}
	return true
}

// typeByte holds the characters of types.
var typeByte = func() (t [256]bool) {
	for c := '!'; c <= '~'; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// Raw is a parsed record. Its slices lie in the line it was parsed from.
type Raw struct {
	Seq       session.Seq
	Time      int64
	Type      []byte
	Op        session.SurfaceOp
	Sources   []byte // text of sourceEventSeqs without the outer brackets; nil: absent
	Ignorable bool
	Extra     []byte      // unknown members before data, joined by commas
	Data      []byte      // stored form (Internalize)
	Synced    session.Seq // session.None: absent
	After     []byte      // unknown members behind data and synced, joined by commas

	line []byte
	body int // end of data in line
}

// Line returns the record's text without its LF.
func (r *Raw) Line() []byte { return r.line }

// Body returns the linked part: from the first brace to the end of data.
func (r *Raw) Body() []byte { return r.line[:r.body] }

// Link returns the link as it is stored, unverified; ok is false if its text is not a link at all.
func (r *Raw) Link() (l session.Link, ok bool) {
	return parseLink(r.linkText())
}

func (r *Raw) linkText() []byte {
	at := len(r.line) - 2 - sumLen - linkLen
	return r.line[at : at+linkLen]
}

// NextLink computes the record's link behind prev.
func (r *Raw) NextLink(prev session.Link) session.Link { return Next(prev, r.Body()) }

// CheckLink computes the record's link behind prev and reports whether it is the one that is stored.
func (r *Raw) CheckLink(prev session.Link) (session.Link, bool) {
	l := r.NextLink(prev)
	t := linkText(l)
	return l, string(t[:]) == string(r.linkText())
}

// Event returns the event, Data in stored form. It shares nothing with the line: one allocation for
// Data and Extra, one for Sources, and one for a type that is not of the core vocabulary.
func (r *Raw) Event() session.Event {
	buf := make([]byte, len(r.Data)+len(r.Extra))
	n := copy(buf, r.Data)
	ev := session.Event{Seq: r.Seq, Time: r.Time, Type: typeName(r.Type), Op: r.Op, Ignorable: r.Ignorable,
		Data: jsontext.Value(buf[:n:n])}
	if len(r.Extra) > 0 {
		copy(buf[n:], r.Extra)
		ev.Extra = buf[n:]
	}
	if r.Sources != nil {
		ev.Sources = sources(r.Sources)
	}
	return ev
}

// Borrow is Event without copies: Data and Extra lie in the line and are valid as long as it is.
func (r *Raw) Borrow() session.Event {
	ev := session.Event{Seq: r.Seq, Time: r.Time, Type: typeName(r.Type), Op: r.Op, Ignorable: r.Ignorable,
		Data: jsontext.Value(r.Data), Extra: r.Extra}
	if r.Sources != nil {
		ev.Sources = sources(r.Sources)
	}
	return ev
}

// typeName returns b as a string; the core vocabulary costs no allocation.
func typeName(b []byte) string {
	if s, ok := vocabulary[string(b)]; ok {
		return s
	}
	return string(b)
}

var vocabulary = func() map[string]string {
	m := map[string]string{}
	for _, s := range []string{
		session.TypeTurnStart, session.TypeTurnEnd, session.TypeStepStart, session.TypeStepEnd, session.TypeUserMessage,
		session.TypeAssistantChunk, session.TypeAssistantMessage, session.TypeToolCall, session.TypeToolResult,
		session.TypeInboxSpliced, session.TypeRequestHeader, session.TypeRequestContext, session.TypeTodoWrite,
		session.TypeTitle, session.TypeSettings, session.TypeInherited, session.TypeLost, session.TypeHide,
		session.TypeRestore, session.TypeApprovalAsked, session.TypeApprovalDecided, session.TypeApprovalPolicy,
	} {
		m[s] = s
	}
	return m
}()

// Valid checks what Parse does not look at: that Data is one compact JSON object with unique names,
// valid Unicode and legal nesting. It is for records from strangers; a store's own were accepted by a
// session.
func (r *Raw) Valid() error {
	data := jsontext.Value(r.Data)
	reason := ""
	switch {
	case !data.IsValid():
		reason = "data is not valid JSON with unique names and valid Unicode"
	case !isCompact(data):
		reason = "white space in data"
	case depth(data) > MaxDepth+1: // a blob's reference is one deeper than its string
		reason = fmt.Sprintf("data is nested deeper than %d", MaxDepth)
	default:
		return nil
	}
	return &Error{Offset: r.body - len(r.Data), Kind: BadData, Reason: reason}
}

func depth(b []byte) (deepest int) {
	for i, d := 0, 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = endOfString(b, i) - 1
		case '{', '[':
			d++
			deepest = max(deepest, d)
		case '}', ']':
			d--
		}
	}
	return deepest
}
