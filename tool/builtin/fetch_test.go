package builtin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/tool"
)

func TestFetch(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other host was asked") }))
	defer other.Close()
	entered := make(chan bool)
	mux := http.NewServeMux()
	serve := func(path, kind, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, body)
		})
	}
	serve("/plain", "text/plain", "a < b\n")
	serve("/json", "application/json; charset=utf-8", `{"a":1}`)
	serve("/page", "text/html", `<html><head><title>T &amp; t</title><style>p{}</style></head><body><!-- no --><h1>Head</h1><p>one<br>two &lt;3</p><script>if (a</b) {}</script><ul><li>x</li></ul></body></html>`)
	serve("/bin", "image/png", "x")
	serve("/liar", "text/plain", "a\x00b")
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/plain", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/x", http.StatusFound) })
	mux.HandleFunc("/name", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace("http://"+r.Host+"/plain", "127.0.0.1", "localhost", 1), http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { entered <- true; <-r.Context().Done() })
	server := httptest.NewServer(mux)
	defer server.Close()
	b := newBench(t, nil, func(o *Options) { o.HTTP = server.Client() })

	at := func(path string) args { return args{"url": server.URL + path} }
	want(t, b.ok("fetch", at("/plain")), "a < b\n")
	want(t, b.ok("fetch", at("/here")), "a < b\n")
	want(t, b.ok("fetch", at("/json")), `{"a":1}`)
	want(t, b.ok("fetch", at("/page")), "T & t\n\nHead\n\none\ntwo <3\n\nx")
	if got := b.ok("fetch", args{"url": server.URL + "/page", "raw": true}); !strings.HasPrefix(got, "<html>") {
		t.Errorf("raw: %q", got)
	}
	b.fails("fetch", at("/nope"), CodeHTTP, "404")
	b.fails("fetch", at("/away"), CodeHTTP, "redirects to "+other.URL+"/x")
	b.fails("fetch", at("/name"), CodeHTTP, "redirects to http://localhost:")
	b.fails("fetch", at("/loop"), CodeHTTP, "redirects to")
	b.fails("fetch", at("/bin"), CodeNotText, "image/png")
	b.fails("fetch", at("/liar"), CodeNotText, "not text")
	for _, u := range []string{"file:///etc/passwd", "x", "http://", "http://u:p@127.0.0.1/"} {
		b.fails("fetch", args{"url": u}, tool.CodeInvalidArgs, "URL")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if r := b.prepare("fetch", at("/hang")).Run(ctx, tool.RunOptions{}); r.Code != tool.CodeAborted {
		t.Errorf("cancelled: %s", r.Code)
	}
	dead := httptest.NewServer(nil)
	dead.Close()
	b.fails("fetch", args{"url": dead.URL}, CodeHTTP, "could not be reached")

	if p := b.prepare("fetch", at("/plain")); tool.Decide(tool.PolicyAsk, nil, p).Action != tool.Ask || p.Subject() != server.URL+"/plain" {
		t.Error("fetch is not asked about")
	}
	rule := []tool.Rule{{Tool: "fetch", Prefix: "https://example.com", Action: tool.Allow}}
	for u, want := range map[string]tool.Action{"https://example.com/a": tool.Allow, "https://example.com.evil/a": tool.Ask, "https://example.com@evil/": tool.Ask} {
		if got := tool.Decide("", rule, b.prepare("fetch", args{"url": u})).Action; got != want {
			t.Errorf("%s: %s", u, got)
		}
	}
}

func FuzzHTMLText(f *testing.F) {
	for _, s := range []string{"<p>a", "<", "<!--", "<script>", "<head><title", "</", "<a<b>", "a < b > c", "<head></head"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, page string) {
		got := htmlText(page)
		if !strings.ContainsAny(page, "<&\r\n") && strings.TrimSpace(page) != got {
			t.Errorf("%q became %q", page, got)
		}
	})
}
