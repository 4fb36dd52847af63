package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// entry is a record as the files hold it.
type entry struct {
	Seq    int64          `json:"seq"`
	Time   int64          `json:"time"`
	Type   string         `json:"type"`
	Op     jsontext.Value `json:"surfaceOp,omitzero"`
	Src    jsontext.Value `json:"sourceEventSeqs,omitzero"`
	Data   jsontext.Value `json:"data"`
	Synced *int64         `json:"synced,omitzero"`
	Chain  string         `json:"chain,omitzero"`
	Ign    bool           `json:"ignorable,omitzero"`
	Extra  map[string]any `json:",embed"`

	file     string // path of the segment
	off, end int64  // of the line in it, LF included
	event    string // the line without synced and chain: the event alone
}

// storedLog is a log read from its files by the rules of docs/format.md, with no code of the product.
type storedLog struct {
	dir      string
	segments []string // base names, in order
	recs     []entry
	torn     int64 // bytes behind the last record
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli)))
}

var chainTail = regexp.MustCompile(`,"chain":"([A-Za-z0-9_-]{22})"\}$`)
var syncedTail = regexp.MustCompile(`,"synced":-?\d+$`)

// sessionIDs returns the ids of the stored sessions.
func (b *box) sessionIDs() []string {
	b.t.Helper()
	list, err := os.ReadDir(filepath.Join(b.store, "sessions"))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// log reads the own log of a session and wants it whole: a valid chain, a torn tail at the most.
func (b *box) log(id string) storedLog {
	b.t.Helper()
	l, err := readLog(filepath.Join(b.store, "sessions", id))
	if err != nil {
		b.t.Fatalf("the log of %s: %v", id, err)
	}
	return l
}

// readLog reads the own segments of a session that is no fork.
func readLog(dir string) (storedLog, error) {
	l := storedLog{dir: dir}
	list, err := os.ReadDir(dir)
	if err != nil {
		return l, err
	}
	for _, e := range list {
		if ok, _ := filepath.Match("[0-9]*.jsonl", e.Name()); ok {
			l.segments = append(l.segments, e.Name())
		}
	}
	sort.Strings(l.segments)
	if len(l.segments) == 0 {
		return l, fmt.Errorf("no segments")
	}
	var link [12]byte
	next := int64(0)
	if first, _ := strconv.ParseInt(strings.TrimSuffix(l.segments[0], ".jsonl"), 10, 64); first > 0 {
		if link, err = headerPrev(filepath.Join(dir, l.segments[0])); err != nil { // a fork's own part
			return l, err
		}
		next = first
	}
	for i, name := range l.segments {
		limit := int64(-1)
		if i+1 < len(l.segments) {
			limit, _ = strconv.ParseInt(strings.TrimSuffix(l.segments[i+1], ".jsonl"), 10, 64)
		}
		if err := l.segment(name, &next, &link, limit); err != nil {
			return l, fmt.Errorf("%s: %w", name, err)
		}
		if limit >= 0 && next != limit {
			return l, fmt.Errorf("%s ends at seq %d, the next one begins at %d", name, next, limit)
		}
	}
	return l, nil
}

func headerPrev(path string) (link [12]byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return link, err
	}
	var h struct {
		Prev string `json:"prev"`
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(first, &h); err != nil {
		return link, err
	}
	raw, err := base64.RawURLEncoding.DecodeString(h.Prev)
	copy(link[:], raw)
	return link, err
}

func (l *storedLog) segment(name string, next *int64, link *[12]byte, limit int64) error {
	path := filepath.Join(l.dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	off := int64(0)
	for lineNo := 0; ; lineNo++ {
		rest := data[off:]
		n := bytes.IndexByte(rest, '\n')
		if n < 0 {
			l.torn = int64(len(rest))
			return nil
		}
		text := rest[:n]
		if lineNo == 0 {
			var h struct {
				Strandline int    `json:"strandline"`
				Session    string `json:"session"`
				First      int64  `json:"first"`
				Prev       string `json:"prev"`
				Sum        string `json:"sum"`
			}
			if err := json.Unmarshal(text, &h); err != nil {
				return fmt.Errorf("header: %w", err)
			}
			cut := bytes.LastIndex(text, []byte(`,"sum"`))
			if h.Strandline != 1 || h.Session != filepath.Base(l.dir) || h.First != *next || h.Sum != sum(text[:cut]) ||
				h.Prev != base64.RawURLEncoding.EncodeToString(link[:]) {
				return fmt.Errorf("header %s does not fit seq %d, link %x", text, *next, *link)
			}
		} else {
			e, err := parseEntry(text)
			if err != nil {
				return fmt.Errorf("byte %d: %w", off, err)
			}
			if limit >= 0 && e.Seq >= limit {
				return nil // written again in the next segment
			}
			if e.Seq != *next {
				return fmt.Errorf("byte %d: seq %d, want %d", off, e.Seq, *next)
			}
			h := sha256.New()
			h.Write(link[:])
			h.Write([]byte(e.event[:len(e.event)-1])) // to the end of data
			copy(link[:], h.Sum(nil))
			if want := base64.RawURLEncoding.EncodeToString(link[:]); e.Chain[:16] != want {
				return fmt.Errorf("seq %d: link %s, want %s", e.Seq, e.Chain[:16], want)
			}
			e.file, e.off, e.end = path, off, off+int64(n)+1
			l.recs = append(l.recs, e)
			*next++
		}
		off += int64(n) + 1
	}
}

func parseEntry(text []byte) (entry, error) {
	var e entry
	m := chainTail.FindSubmatchIndex(text)
	if m == nil {
		return e, fmt.Errorf("no chain at the end of %q", clip(string(text)))
	}
	body, chain := text[:m[0]], string(text[m[2]:m[3]])
	if chain[16:] != sum(body) {
		return e, fmt.Errorf("wrong sum: %q", clip(string(text)))
	}
	if s := syncedTail.FindIndex(body); s != nil {
		body = body[:s[0]]
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	e.event = string(body) + "}"
	return e, nil
}

var blobRef = regexp.MustCompile(`\{"\$blob":"sha256-([0-9a-f]{64})","bytes":(\d+)\}`)

// whole returns the event as it was accepted: strings that were stored in files of their own are back.
func (e entry) whole(t testing.TB) string {
	t.Helper()
	root := filepath.Dir(filepath.Dir(filepath.Dir(e.file)))
	return blobRef.ReplaceAllStringFunc(e.event, func(ref string) string {
		m := blobRef.FindStringSubmatch(ref)
		text, err := os.ReadFile(filepath.Join(root, "blobs", "sha256", m[1][:2], m[1]))
		if err != nil {
			t.Fatalf("seq %d names a blob: %v", e.Seq, err)
		}
		if n, _ := strconv.Atoi(m[2]); n != len(text) || fmt.Sprintf("%x", sha256.Sum256(text)) != m[1] {
			t.Fatalf("blob %s of seq %d has %d bytes that are not its own", m[1], e.Seq, len(text))
		}
		return string(text)
	})
}

func data[T any](t testing.TB, e entry) T {
	t.Helper()
	var v T
	raw := e.Data
	if blobRef.Match(raw) {
		var err error
		if raw, err = member(jsontext.Value(e.whole(t)), "data"); err != nil {
			t.Fatalf("seq %d (%s): %v", e.Seq, e.Type, err)
		}
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("data of seq %d (%s): %v", e.Seq, e.Type, err)
	}
	return v
}

// member returns a member of a JSON object.
func member(v jsontext.Value, name string) (jsontext.Value, error) {
	var m map[string]jsontext.Value
	err := json.Unmarshal(v, &m)
	return m[name], err
}

func (l storedLog) count(typ string) int {
	n := 0
	for _, e := range l.recs {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// owed is a call that the log has no result for, found by a plain scan.
type owed struct {
	asked   int64 // seq of the assistant/message
	started int64 // seq of the tool/call, -1
	id      string
	name    string
	args    string
}

// openCalls scans for calls without a result.
func (l storedLog) openCalls(t testing.TB) []owed {
	t.Helper()
	var open []owed
	for _, e := range l.recs {
		switch e.Type {
		case session.TypeAssistantMessage:
			for _, c := range data[session.AssistantMessage](t, e).Message.Calls() {
				open = append(open, owed{asked: e.Seq, started: -1, id: c.ID, name: c.Name, args: c.Arguments})
			}
		case session.TypeToolCall:
			c := data[session.ToolCall](t, e)
			for i := range open {
				if open[i].id == c.CallID && open[i].started < 0 {
					open[i].started = e.Seq
					break
				}
			}
		case session.TypeToolResult:
			id := data[session.ToolResult](t, e).Message.Content[0].ToolCallID
			for i := range open {
				if open[i].id == id {
					open = append(open[:i], open[i+1:]...)
					break
				}
			}
		}
	}
	return open
}

// results counts the results of each call id.
func (l storedLog) results(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, e := range l.recs {
		if e.Type == session.TypeToolResult {
			out[data[session.ToolResult](t, e).Message.Content[0].ToolCallID]++
		}
	}
	return out
}

// checkView is the strict checker.
func checkView(ms []message.Message) error { return checkViewFor("script", ms) }

func checkViewFor(provider string, ms []message.Message) error { return viewtest.Check(ms, provider) }

func resultsOf(m message.Message) []message.Block {
	var out []message.Block
	for _, b := range m.Content {
		if b.Type == message.ToolResult {
			out = append(out, b)
		}
	}
	return out
}

// resultText returns the text of the view's result for a call id.
func resultText(ms []message.Message, id string) (string, bool) {
	for _, m := range ms {
		for _, r := range resultsOf(m) {
			if r.ToolCallID == id {
				return message.Message{Content: []message.Block{r}}.PlainText(), true
			}
		}
	}
	return "", false
}
