package fake

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/script"
)

// player writes one reply and breaks the connection where its line says so. Its methods report whether
// the client is still there.
type player struct {
	ctx   context.Context
	w     http.ResponseWriter
	wire  wire
	sleep func(context.Context, time.Duration) error
	n     int
	key   string
	abort bool // the connection is to be closed in the middle of the body
}

const page = "<!DOCTYPE html>\n<html><head><title>%[1]s</title></head>\n<body><h1>%[1]s</h1><hr>nginx</body></html>\n"

func (p *player) reply(req request, r script.Reply) bool {
	if !p.wait(r.HeadersMs, 0) {
		return false
	}
	empty := r.Text == "" && r.Reasoning == "" && len(r.Calls) == 0
	fault := r.Fault
	if r.Hang {
		fault = script.FaultStall
	}
	failure := r.Error
	if failure != nil {
		// Of the codes that name no answer of a service, some name what happens to its connection.
		if f, ok := breaks[failure.Code]; ok && failure.Status == 0 {
			fault, failure = f, nil
		}
	}
	switch {
	case failure != nil && failure.HTML:
		p.page(failureStatus(*failure), failure)
		return p.here()
	case failure != nil && empty && !failure.InStream:
		if !p.wait(r.DelayMs, 0) {
			return false
		}
		p.wire.fail(*failure, p.key).write(p.w)
		return p.here()
	case fault == script.FaultWrongType:
		p.page(http.StatusOK, nil)
		return p.here()
	case fault == script.FaultReset && empty:
		p.reset()
		return p.here()
	case !req.stream:
		return p.plain(req, r, fault, failure)
	}
	return p.stream(req, r, fault, failure)
}

// breaks are the failures that are not told by a service but seen on its connection.
var breaks = map[llm.Code]script.Fault{
	llm.CodeTransport:         script.FaultReset,
	llm.CodeStreamClosed:      script.FaultNoEnd,
	llm.CodeMalformedResponse: script.FaultMalformed,
	llm.CodeTimeout:           script.FaultStall,
}

func (p *player) stream(req request, r script.Reply, fault script.Fault, failure *script.Failure) bool {
	content, end := p.wire.frames(p.n, req, r)
	p.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	p.w.Header().Set("Cache-Control", "no-cache")
	p.w.WriteHeader(http.StatusOK)
	if !p.send(nil) || !p.wait(r.DelayMs, r.PingMs) {
		return false
	}
	if r.Text == "" && r.Reasoning == "" && len(r.Calls) == 0 && (fault != "" || failure != nil) {
		content = nil // not even the event that opens a reply
	}
	for i, f := range content {
		if i > 0 && !p.wait(r.ChunkMs, r.PingMs) || !p.send(f) {
			return false
		}
	}
	switch {
	case failure != nil:
		return p.send(p.wire.event(*failure)) && p.here()
	case fault == script.FaultReset:
		p.reset()
		return p.here()
	case fault == script.FaultStall:
		p.stall(r.PingMs)
		return p.here()
	case fault == script.FaultHalfEvent:
		p.abort = true
		return p.send(half(end[0]))
	case fault == script.FaultCut:
		return p.send(half(end[0])) && p.here()
	case fault == script.FaultMalformed:
		end = append([][]byte{[]byte("data: {\"id\": malformed}\n\n")}, end...)
	case fault == script.FaultNoEnd:
		return p.here()
	}
	for _, f := range end {
		if !p.wait(r.ChunkMs, r.PingMs) || !p.send(f) {
			return false
		}
	}
	return p.here()
}

func half(b []byte) []byte { return b[:len(b)/2] }

// plain is a reply in one body.
func (p *player) plain(req request, r script.Reply, fault script.Fault, failure *script.Failure) bool {
	if !p.wait(r.DelayMs, 0) {
		return false
	}
	if failure != nil {
		p.wire.fail(*failure, p.key).write(p.w)
		return p.here()
	}
	body := p.wire.whole(p.n, req, r)
	p.w.Header().Set("Content-Type", "application/json")
	switch fault {
	case script.FaultReset, script.FaultStall, script.FaultHalfEvent:
		p.w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	}
	switch fault {
	case script.FaultReset:
		p.send(half(body))
		p.reset()
	case script.FaultStall:
		p.send(half(body))
		p.stall(0)
	case script.FaultHalfEvent:
		p.send(half(body))
		p.abort = true
	case script.FaultCut, script.FaultNoEnd:
		p.send(half(body))
	case script.FaultMalformed:
		p.send(append([]byte(`{"id": malformed, `), body[1:]...))
	default:
		p.send(body)
	}
	return p.here()
}

// page answers with what a proxy or a portal shows to people.
func (p *player) page(status int, f *script.Failure) {
	h := p.w.Header()
	h.Set("Content-Type", "text/html")
	if f != nil {
		for k, v := range retryAfter(*f) {
			h.Set(k, v)
		}
	}
	p.w.WriteHeader(status)
	fmt.Fprintf(p.w, page, fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// reset closes the connection with a RST.
func (p *player) reset() {
	conn, _, err := http.NewResponseController(p.w).Hijack()
	if err != nil {
		p.abort = true // not HTTP/1: end it as roughly as can be
		return
	}
	// A handler that was built into a server of another kind may hand out another kind of connection.
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// stall says nothing until the client leaves; comments are not an answer.
func (p *player) stall(pingMs int64) {
	if pingMs <= 0 {
		<-p.ctx.Done()
		return
	}
	for p.sleep(p.ctx, ms(pingMs)) == nil && p.send(ping) {
	}
}

var ping = []byte(": keep-alive\n\n")

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// wait lets time pass, with comments meanwhile if a stream has begun and pingMs is set.
func (p *player) wait(waitMs, pingMs int64) bool {
	for pingMs > 0 && waitMs > pingMs {
		if p.sleep(p.ctx, ms(pingMs)) != nil || !p.send(ping) {
			return false
		}
		waitMs -= pingMs
	}
	return waitMs <= 0 || p.sleep(p.ctx, ms(waitMs)) == nil
}

// send writes b and makes it leave at once.
func (p *player) send(b []byte) bool {
	if _, err := p.w.Write(b); err != nil {
		return false
	}
	return http.NewResponseController(p.w).Flush() == nil && p.here()
}

func (p *player) here() bool { return p.ctx.Err() == nil }

func failureStatus(f script.Failure) int {
	if f.Status != 0 {
		return f.Status
	}
	switch f.Code {
	case llm.CodeAuth, llm.CodeMissingCredential:
		return http.StatusUnauthorized
	case llm.CodeQuota, llm.CodeRateLimit:
		return http.StatusTooManyRequests
	case llm.CodeContextWindow, llm.CodeInvalidRequest:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// retryAfter tells the delay as services do: whole seconds for everybody, and what it is to the
// millisecond for who can read that.
func retryAfter(f script.Failure) map[string]string {
	if f.RetryAfterMs <= 0 {
		return nil
	}
	return map[string]string{
		"Retry-After":    fmt.Sprint((f.RetryAfterMs + 999) / 1000),
		"Retry-After-Ms": fmt.Sprint(f.RetryAfterMs),
	}
}

// pieces cuts a text into deltas between runes: words when there are pauses, else a few parts of any
// length, so that no client can do without joining them.
func pieces(text string, words bool) []string {
	var out []string
	size := max(1, (len(text)+3)/4)
	size = min(size, 1<<10)
	for text != "" {
		n := min(len(text), size)
		if words {
			n = len(text)
			if i := strings.IndexAny(text, " \n"); i >= 0 {
				n = i + 1
			}
		}
		for n < len(text) && text[n]&0xC0 == 0x80 {
			n++
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}
