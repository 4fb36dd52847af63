package builtin

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
)

// maxFetch is how much of an answer is read, in bytes.
const maxFetch = 5 << 20

func fetchTool(client *http.Client) tool.Definition {
	type arguments struct {
		URL string `json:"url"`
		Raw bool   `json:"raw"`
	}
	return tool.Definition{
		Name: "fetch",
		Description: "Gets a web page or text file by http or https. Of HTML the text is returned, without markup, unless raw is set. " +
			"A redirect to another host is not followed but told: fetch the new URL then.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"url":{"type":"string","minLength":1,"description":"Complete URL"},` +
			`"raw":{"type":"boolean","description":"Return HTML as it is (default false)"}},` +
			`"required":["url"],"additionalProperties":false}`),
		Parallel: true, Idempotent: true, Timeout: time.Minute,
		Subject: func(args jsontext.Value) string {
			var a arguments
			if json.Unmarshal(args, &a) != nil {
				return ""
			}
			return a.URL
		},
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			var a arguments
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			return fetch(ctx, client, a.URL, a.Raw)
		},
	}
}

func fetch(ctx context.Context, client *http.Client, address string, raw bool) (tool.Result, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "the URL has to be complete and begin with http:// or https://")
	case u.User != nil:
		return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "a URL with a user name or password is not fetched")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "the URL is not valid: %w", err)
	}
	req.Header.Set("User-Agent", "strandline")
	req.Header.Set("Accept", "text/*, application/json;q=0.9, */*;q=0.1")
	// What was approved is this host: a redirect must not lead anywhere else.
	own := *client
	own.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != u.Hostname() || next.URL.Port() != u.Port() || len(via) > 5 || u.Scheme == "https" && next.URL.Scheme != "https" {
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, err := own.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, ctx.Err()
		}
		var wrapped *url.Error // repeats the URL
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return tool.Result{}, tool.Errorf(CodeHTTP, "%s could not be reached: %w", u.Host, err)
	}
	defer resp.Body.Close()
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		if next, err := resp.Request.URL.Parse(to); err == nil {
			to = next.String()
		}
		return tool.Result{}, tool.Errorf(CodeHTTP, "%s redirects to %s; fetch that if it is what you want", address, to)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFetch))
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, ctx.Err()
		}
		return tool.Result{}, tool.Errorf(CodeHTTP, "the answer of %s broke off: %w", u.Host, err)
	}
	if isBinary(body) || !textual(kind) {
		return tool.Result{}, tool.Errorf(CodeNotText, "%s is not text (%s); use bash to download it", address, resp.Header.Get("Content-Type"))
	}
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	if !raw && (kind == "text/html" || kind == "application/xhtml+xml") {
		text = htmlText(text)
	}
	if len(body) == maxFetch {
		text += fmt.Sprintf("\n[cut after %d bytes]", maxFetch)
	}
	r := tool.Text(text)
	if resp.StatusCode/100 != 2 {
		r = tool.Failure(CodeHTTP, "The answer is HTTP %s.\n%s", resp.Status, text)
	}
	r.Meta = meta(map[string]any{"status": resp.StatusCode, "contentType": kind, "bytes": len(body)})
	return r, nil
}

func textual(kind string) bool {
	if kind == "" || strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") {
		return true
	}
	switch kind {
	case "application/json", "application/xml", "application/javascript", "application/x-ndjson", "application/yaml", "application/toml":
		return true
	}
	return false
}

// htmlText returns what a reader sees of a page, roughly: text without markup, a line per block. It
// reads every input; what is no markup stays as it is.
func htmlText(page string) string {
	var out strings.Builder
	for page != "" {
		open := strings.IndexByte(page, '<')
		if open < 0 {
			out.WriteString(page)
			break
		}
		out.WriteString(page[:open])
		page = page[open:]
		if strings.HasPrefix(page, "<!--") {
			_, page, _ = strings.Cut(page, "-->")
			continue
		}
		name, end := tagName(page)
		if end < 0 { // a lonely <
			out.WriteByte('<')
			page = page[1:]
			continue
		}
		page = page[end:]
		switch name {
		case "script", "style", "noscript", "template", "svg", "head":
			if name == "head" {
				// The title is the one thing in a head that is read.
				out.WriteString(between(page, "<title", "</title"))
				out.WriteByte('\n')
			}
			page = afterClose(page, name)
		case "br", "p", "div", "li", "tr", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "section", "article", "header", "footer", "blockquote", "hr", "dt", "dd",
			"/p", "/div", "/li", "/tr", "/table", "/ul", "/ol", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6", "/pre", "/section", "/article", "/header", "/footer", "/blockquote":
			out.WriteByte('\n')
		case "td", "th":
			out.WriteByte('\t')
		}
	}
	var lines []string
	blank := true
	for line := range strings.SplitSeq(html.UnescapeString(out.String()), "\n") {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if line == "" && blank {
			continue
		}
		blank = line == ""
		lines = append(lines, line)
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// tagName returns the lower-case name of the tag that s begins with, / included, and where it ends; -1
// when s begins with no tag.
func tagName(s string) (string, int) {
	i := 1
	for i < len(s) && (s[i] == '/' || s[i] == '!' || 'a' <= s[i]|0x20 && s[i]|0x20 <= 'z' || i > 1 && '0' <= s[i] && s[i] <= '9') {
		i++
	}
	end := strings.IndexByte(s, '>')
	if i == 1 || end < 0 {
		return "", -1
	}
	return strings.ToLower(s[1:i]), end + 1
}

// afterClose returns what follows the closing tag of an element, or nothing when it is not closed.
func afterClose(s, name string) string {
	for {
		i := strings.Index(s, "</")
		if i < 0 {
			return ""
		}
		s = s[i:]
		if got, end := tagName(s); got == "/"+name {
			return s[end:]
		}
		s = s[2:]
	}
}

func between(s, open, closing string) string {
	head, _, ok := strings.Cut(s, "</head")
	if !ok {
		return ""
	}
	_, rest, ok := strings.Cut(head, open)
	if !ok {
		return ""
	}
	_, rest, _ = strings.Cut(rest, ">")
	title, _, _ := strings.Cut(rest, closing)
	return title
}
