package export

import (
	"bufio"
	"context"
	_ "embed" // page.tmpl
	"encoding/base64"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/message"
)

// HTML writes what Markdown writes as one page for a browser. The page needs nothing from outside, runs nothing, and
// forbids both in its content security policy. What a person, a model or a tool said is text in it, never markup, and
// signs that hide or reorder what stands there are written out. Images of common raster forms stand in the page, others
// are named. An event that is shown has the anchor e<seq>. Every text has passed the Redactor.
func HTML(ctx context.Context, w io.Writer, src Source, o TranscriptOptions) (Report, error) {
	pieces, err := template.New("page").Funcs(template.FuncMap{"see": see, "stamp": stamp, "iso": iso, "brief": isBrief}).Parse(page)
	if err != nil {
		return Report{}, err
	}
	b := bufio.NewWriter(w)
	return transcribe(ctx, b, src, o, func(t *transcript) form { return &html{ctx: ctx, w: b, t: t, pieces: pieces} })
}

//go:embed page.tmpl
var page string

// html is the form of that name.
type html struct {
	ctx    context.Context
	w      *bufio.Writer
	t      *transcript
	pieces *template.Template // each ends outside of any tag, as the escapes of html/template ask for
	err    error              // the first
}

func (h *html) put(piece string, data any) {
	if h.err == nil {
		h.err = h.pieces.ExecuteTemplate(h.w, piece, data)
	}
}

func (h *html) head(d heading) { h.put("head", d) }
func (h *html) open(at place)  { h.put("open", at) }

func (h *html) close() error {
	h.put("close", nil)
	return h.err
}

func (h *html) speaker(who string) { h.put("speaker", who) }
func (h *html) text(s string)      { h.put("text", s) }
func (h *html) thinking(s string)  { h.put("thinking", s) }
func (h *html) note(s string)      { h.put("note", s) }

// said is a call or a result.
type said struct{ Name, Code, Text string }

func (h *html) call(name, args string, _ bool) { h.put("call", said{Name: name, Text: args}) }
func (h *html) result(name, code, text string) { h.put("result", said{name, code, text}) }
func (h *html) other(kind string, b message.Block) error {
	if b.Type != message.Image {
		h.note("[" + kind + "]")
		return nil
	}
	content, ok, err := h.image(b)
	if err != nil {
		return err
	}
	// What the bytes are counts, not what the message says of them.
	switch is := http.DetectContentType(content); {
	case !ok:
		h.note("[an image that is not there any more]")
	case slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, is):
		h.put("image", template.URL("data:"+is+";base64,"+base64.StdEncoding.EncodeToString(content))) // no text in it
	default:
		h.note("[an image that is not shown here: " + h.t.line(b.MediaType) + "]")
	}
	return nil
}

// image returns the bytes of an image that lies in the store or in the message; none if it lies elsewhere.
func (h *html) image(b message.Block) (content []byte, ok bool, err error) {
	if b.Blob != "" {
		return h.t.src.attached(h.ctx, b.Blob, &h.t.rep)
	}
	_, text, found := strings.Cut(b.URL, ";base64,")
	if !found || !strings.HasPrefix(b.URL, "data:") {
		return nil, true, nil
	}
	content, err = base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, true, nil
	}
	content, n := h.t.src.content(content)
	h.t.rep.Redacted += n
	return content, true, nil
}

func (h *html) end(incomplete string) error {
	h.put("end", incomplete)
	return h.err
}

// see makes a text harmless for the eye.
func see(s string) string {
	return brief.Visible(strings.TrimRight(strings.ReplaceAll(s, "\r\n", "\n"), "\n"))
}

func iso(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// isBrief reports whether a result is shown without being asked for.
func isBrief(s string) bool { return len(s) <= 4000 && strings.Count(s, "\n") <= 20 }
