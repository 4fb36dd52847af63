package export_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/export"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

const png = "\x89PNG\r\n\x1a\n\x00\xff"

var update = flag.Bool("update", false, "write the golden file")

func page(t *testing.T, src export.Source, o export.TranscriptOptions) (string, export.Report) {
	t.Helper()
	var out bytes.Buffer
	rep, err := export.HTML(context.Background(), &out, src, o)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), rep
}

// parse reads a page as XML, which it is too, so that nothing is guessed where a tag does not fit. It returns the tags with
// their attributes, and what stands between them.
func parse(t *testing.T, page string) (tags []string, between string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	var b strings.Builder
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return tags, b.String()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, page)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			tag := tok.Name.Local
			for _, a := range tok.Attr {
				tag += " " + a.Name.Local + "=" + a.Value
			}
			tags = append(tags, tag)
		case xml.EndElement:
			tags = append(tags, "/"+tok.Name.Local)
		case xml.CharData:
			b.Write(tok)
		case xml.Directive:
			tags = append(tags, "!"+string(tok))
		default:
			t.Fatalf("a %T in the page", tok)
		}
	}
}

func TestHTML(t *testing.T) {
	st := newStore()
	image, err := st.PutBlob(context.Background(), []byte(png))
	if err != nil {
		t.Fatal(err)
	}
	src := export.Source{Snap: story(t, image), Blobs: st, Redact: masked{"secret", "[gone]"}}
	got, rep := page(t, src, export.TranscriptOptions{Title: "a *secret*\n<title>", Hidden: func(q session.Seq) bool { return q == 0 }})
	if *update {
		if err := os.WriteFile("testdata/page.html", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/page.html")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if rep.Redacted != 3 || rep.Incomplete == "" || len(rep.MissingBlobs) != 1 {
		t.Errorf("%+v", rep)
	}
	parse(t, got)

	// The style sheet is the one that the policy allows.
	_, css, _ := strings.Cut(got, "<style>")
	css, _, _ = strings.Cut(css, "</style>")
	sum := sha256.Sum256([]byte(css))
	if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(got, "style-src 'sha256-"+hash+"'") {
		t.Errorf("page.tmpl has to allow style-src 'sha256-%s'", hash)
	}

	view, rep := page(t, src, export.TranscriptOptions{View: talk(image)})
	if strings.Contains(view, ` id="e`) || strings.Contains(view, "secret") || !strings.Contains(view, "as the model sees it") || rep.Events != 6 {
		t.Errorf("%+v\n%s", rep, view)
	}
	parse(t, view)
}

// Whatever is said anywhere in a session, the page has the tags and attributes of one in which nothing special is said.
func TestHTMLOfHostileContent(t *testing.T) {
	write := func(s string) string {
		add := []session.Event{}
		put := func(typ string, data any) {
			b, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			add = append(add, session.Event{Seq: session.Seq(len(add)), Time: 1, Type: typ, Data: b})
		}
		put(session.TypeUserMessage, message.Message{ID: s, Role: message.RoleUser, Source: message.Source{Kind: message.SourcePlugin, Plugin: s},
			Content: []message.Block{message.TextBlock(s), {Type: message.Image, URL: "https://x/" + s, MediaType: s}, {Type: message.Image, URL: "data:image/png;base64," + s},
				{Type: message.Image, URL: "data:" + s + ";base64," + base64.StdEncoding.EncodeToString([]byte(png))},
				{Type: message.Image, URL: "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("<svg>"+s))}, {Type: message.Image, Blob: "x" + s}}})
		put(session.TypeAssistantMessage, session.AssistantMessage{Message: message.Message{Role: message.RoleAssistant,
			Source:  message.Source{Kind: message.SourceModel, Provider: s, Model: s},
			Content: []message.Block{{Type: message.Reasoning, Text: s}, message.CallBlock("c"+s, s, s), message.CallBlock("d", s, text(s)), {Type: message.BlockType("x" + s)}}}})
		put(session.TypeToolResult, session.ToolResult{Message: message.Result("r", "c"+s, false, message.TextBlock(s), message.Block{Type: message.BlockType("x" + s)}),
			Error: &session.ErrorInfo{Code: s}})
		put(session.TypeApprovalAsked, session.ApprovalAsked{Name: s})
		put(session.TypeApprovalDecided, session.ApprovalDecided{Verdict: s, By: s})
		put(session.TypeTurnEnd, session.TurnEnd{Reason: session.Reason{Kind: s, Cause: s, Error: &session.ErrorInfo{Code: s, Message: s}}})
		l := &stepwise{n: len(add), of: func(seq int) session.Event { return add[seq] }}
		h := header("abcd")
		h.Kind, h.Cwd, h.Parent = session.SessionKind(s), s, &session.Parent{ID: session.ID(s), Seq: 1}
		out, _ := page(t, export.Source{Snap: &store.Snapshot{Header: h, Prefix: l, Damage: []store.Range{{Detail: s}}}}, export.TranscriptOptions{Title: s})
		return out
	}
	want, _ := parse(t, write("nothing special"))
	for _, s := range []string{
		"</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", `"><b onclick="x">`, `' onmouseover='x`, "</pre></details></article>", "</title></style><h1>",
		"<!-- ", "]]>", "<![CDATA[", "&lt;b&gt; &#60;b&#62; &amp", "{{.}} {{template \"head\"}}", "`${x}`", "javascript:alert(1)", "data:text/html,<b>", "image/png\" onload=\"x",
		"\u202eevil\u2066\u2069", "a\x00b\x01\x1b[31m\x7f\u0085", "\u2028\u2029\u200b\ufeff\U000e0041", "lone\rreturn", "\xff\xfe", "\n\n  <b>\n", "שלום\u200f", "e\u0301 👨\u200d👩",
	} {
		s = strings.ToValidUTF8(s, "\uFFFD") // as every text in a log is
		got := write(s)
		tags, between := parse(t, got)
		if diff := cmp.Diff(want, tags); diff != "" {
			t.Errorf("%q makes other tags:\n%s", s, diff)
		}
		if i := strings.IndexFunc(got, brief.Hostile); i >= 0 {
			t.Errorf("%q reaches the page as %q", s, got[i:min(len(got), i+20)])
		}
		if n := strings.Count(between, brief.Visible(s)); n < 4 {
			t.Errorf("%q stands %d times in what is read:\n%s", s, n, between)
		}
	}
	if strings.Contains(write("x"), "https://") {
		t.Error("the page knows an address")
	}
	// One that is huge is there in full, and folded.
	huge := strings.Repeat("<b>&\"'\n", 1<<14)
	_, between := parse(t, write(huge))
	if n := strings.Count(between, strings.TrimRight(huge, "\n")); n != 5 { // text, thinking, arguments, result; and the name of the parent, which no real header has
		t.Errorf("a huge text stands %d times in the page", n)
	}
	if strings.Contains(write(strings.Repeat("x\n", 100)), "<details open") {
		t.Error("a long result is not folded")
	}
}

// An attachment that is a text is one in the page, too, whatever it calls itself: no credential goes out in base64.
func TestCredentialInAnImage(t *testing.T) {
	st := newStore()
	name, err := st.PutBlob(context.Background(), []byte("GIF89a secret"))
	if err != nil {
		t.Fatal(err)
	}
	snap := story(t, name)
	leak := base64.StdEncoding.EncodeToString([]byte("GIF89a secret"))
	for _, redacts := range []bool{true, false} {
		src := export.Source{Snap: snap, Blobs: st}
		if redacts {
			src.Redact = masked{"secret", "[gone]"}
		}
		inline := message.User("u", "")
		inline.Content = []message.Block{{Type: message.Image, URL: "data:image/gif;base64," + leak}}
		pages, _ := page(t, src, export.TranscriptOptions{})
		again, _ := page(t, src, export.TranscriptOptions{View: []message.Message{inline}})
		var list bytes.Buffer
		if _, err := export.OpenAI(context.Background(), &list, src, "", talk(name)); err != nil {
			t.Fatal(err)
		}
		for what, out := range map[string]string{"html": pages, "html of a data URL": again, "openai": list.String()} {
			if strings.Contains(out, leak) == redacts {
				t.Errorf("%s, redacted: %v", what, redacts)
			}
		}
	}
	if record.BlobName([]byte("GIF89a secret")) != name {
		t.Error("the store's own has changed")
	}
}

func TestHTMLHoldsOneEvent(t *testing.T) {
	long, err := json.Marshal(message.User("u", strings.Repeat("y", 8000)))
	if err != nil {
		t.Fatal(err)
	}
	l := &stepwise{n: 300, mark: "<article", of: func(seq int) session.Event {
		return session.Event{Seq: session.Seq(seq), Type: session.TypeUserMessage, Op: session.Append(), Data: long}
	}}
	rep, err := export.HTML(context.Background(), l, export.Source{Snap: &store.Snapshot{Header: header("abcd"), Prefix: l}}, export.TranscriptOptions{})
	if err != nil || rep.Events != 300 || l.written != 300 || l.most > 2 { // the one, and the end of the one before in a buffer of 4 KiB
		t.Errorf("%+v %v: held %d events, wrote %d", rep, err, l.most, l.written)
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

var errFull = errors.New("full")

// A transcript ends where it cannot be written, and is read no further.
func TestTranscriptStops(t *testing.T) {
	said, err := json.Marshal(message.User("u", strings.Repeat("y", 8000)))
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(context.Context, io.Writer, export.Source, export.TranscriptOptions) (export.Report, error){
		"markdown": export.Markdown, "html": export.HTML,
	} {
		l := &stepwise{n: 1000, of: func(seq int) session.Event {
			return session.Event{Seq: session.Seq(seq), Type: session.TypeUserMessage, Op: session.Append(), Data: said}
		}}
		src := export.Source{Snap: &store.Snapshot{Header: header("abcd"), Prefix: l}}
		if _, err := write(context.Background(), &full{20000}, src, export.TranscriptOptions{}); !errors.Is(err, errFull) || l.made > 4 {
			t.Errorf("%s: %v after %d events", name, err, l.made)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := write(ctx, io.Discard, src, export.TranscriptOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled: %v", name, err)
		}
	}
}
