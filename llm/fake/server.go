// Package fake is a model service for tests and work without a network: it plays a script (package
// llm/script) over the wire of a real service, checks each request as strictly as one, and breaks the
// connection where the script says so.
//
// What all wires share is here: taking the next line, pace, faults, the record of what was asked. A
// wire knows its paths, how a request reads and how a reply is written, and nothing else (see wire).
package fake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/script"
)

// Options is what a Server needs.
type Options struct {
	Script *script.Script

	// Record gets one line of JSON per whole request before it is answered: its number, method and path, the
	// line of the script that answers it or why it was refused, the SHA-256 of the body and the body as
	// it came (a string if it is not JSON on one line). Headers, and so credentials, are not recorded.
	// Nil records nothing. Writes are not concurrent; one that fails fails the request.
	Record io.Writer

	// Served is told what became of each request, once it is over. It may be nil; calls may be concurrent.
	Served func(Served)

	// Purpose tells what a request is for, which its wire does not say; nil: all are turns. Lines of the script
	// with a purpose serve those.
	Purpose func(llm.Request) string

	// Sleep waits for d or the end of ctx, whose error it returns. It is needed.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Served is what became of one request.
type Served struct {
	Number int    // of the request, from 1; 0 if it did not come in whole
	Line   int    // of the script, from 1; 0 if none was used
	What   string // in a few words, e.g. "reply", "reset", "429 RATE_LIMIT", "refused: .."
	Left   bool   // the client left before the end
}

// Server answers requests from a script. It is an http.Handler and safe for concurrent use.
type Server struct {
	opts Options
	mux  *http.ServeMux

	mu sync.Mutex
	n  int // requests for a reply; guarded by mu, as is opts.Record
}

// maxBody is how long a request may be, in bytes.
const maxBody = 64 << 20

// New returns a server that plays o.Script over every wire that this package knows.
func New(o Options) *Server {
	s := &Server{opts: o, mux: http.NewServeMux()}
	chat := chatWire{}
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.answer(chat, w, r) })
	s.mux.HandleFunc("GET /v1/models", chat.models)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		chat.refuse(refusal{status: http.StatusNotFound, message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path)}).write(w)
	})
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// wire is the protocol of one kind of service.
type wire interface {
	// parse reads a body and holds it against the rules of the service.
	parse(body []byte) (request, *refusal)
	// refuse is the answer to a request that breaks the rules.
	refuse(refusal) response
	// fail is the answer that carries an error of the service; key is what the client named as its credential.
	fail(f script.Failure, key string) response
	// event is the same as an event of a stream that had begun well.
	event(f script.Failure) []byte
	// frames are the events of a streamed reply: those of its content, one by one, and those that end it.
	frames(n int, req request, r script.Reply) (content, end [][]byte)
	// whole is the body of a reply that is not streamed.
	whole(n int, req request, r script.Reply) []byte
}

// request is what a wire has read.
type request struct {
	llm.Request
	stream bool
	usage  bool // the client wants the usage of a stream
}

// refusal is why a request is not served.
type refusal struct {
	status               int // 0 = 400
	message, param, code string
}

// response is an answer that is no reply.
type response struct {
	status int
	header map[string]string
	body   []byte
}

func (r response) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	for k, v := range r.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(r.status)
	w.Write(r.body)
}

func (s *Server) answer(p wire, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var ref *refusal
	var req request
	var long *http.MaxBytesError
	ct, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case errors.As(err, &long):
		ref = &refusal{status: http.StatusRequestEntityTooLarge, message: "the request was not read: " + err.Error()}
	case err != nil:
		// Half a request asks nothing: it has no number and is not recorded.
		if s.opts.Served != nil {
			s.opts.Served(Served{What: "the client left in the middle of its request", Left: true})
		}
		panic(http.ErrAbortHandler)
	case strings.TrimSpace(ct) != "application/json":
		ref = &refusal{status: http.StatusUnsupportedMediaType, message: fmt.Sprintf("Unsupported content type %q: send application/json.", ct)}
	default:
		req, ref = p.parse(body)
		if ref == nil && s.opts.Purpose != nil {
			req.Purpose = s.opts.Purpose(req.Request)
		}
	}

	// One request at a time takes its line and is recorded, so that the record is in the order of the script.
	s.mu.Lock()
	s.n++
	told := Served{Number: s.n}
	var line script.Line
	if ref == nil {
		if line, err = s.opts.Script.Next(req.Purpose); err != nil {
			ref = &refusal{message: llm.AsError(r.Context(), err).Message, code: "script_used_up"}
		}
	}
	err = s.record(told.Number, r, line.Number, ref, body)
	s.mu.Unlock()
	if err != nil {
		ref = &refusal{status: http.StatusInternalServerError, message: "the request was not recorded: " + err.Error()}
	}
	told.Line = line.Number
	defer func() {
		if s.opts.Served != nil {
			s.opts.Served(told)
		}
	}()
	if ref != nil {
		told.What = "refused: " + ref.message
		p.refuse(*ref).write(w)
		return
	}
	key := strings.TrimSpace(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer"))
	play := &player{ctx: r.Context(), w: w, wire: p, sleep: s.opts.Sleep, n: told.Number, key: key}
	told.What = what(line)
	told.Left = !play.reply(req, line.Fill(req.Request))
	if play.abort || told.Left {
		// The server closes the connection without ending the body: a reply that is cut short, also because
		// the server stops, must not look whole. told is told on the way out.
		panic(http.ErrAbortHandler)
	}
}

// record writes what was asked. The caller holds mu.
func (s *Server) record(n int, r *http.Request, line int, ref *refusal, body []byte) error {
	if s.opts.Record == nil {
		return nil
	}
	out := fmt.Appendf(nil, `{"n":%d,"method":%q,"path":`, n, r.Method)
	out = appendQuote(out, r.URL.Path)
	out = fmt.Appendf(out, `,"line":%d`, line)
	if ref != nil {
		out = appendQuote(append(out, `,"refused":`...), ref.message)
	}
	sum := sha256.Sum256(body)
	out = fmt.Appendf(out, `,"sha256":"%s","body":`, hex.EncodeToString(sum[:]))
	if jsontext.Value(body).IsValid() && !strings.ContainsAny(string(body), "\r\n") {
		out = append(out, body...)
	} else {
		out = appendQuote(out, string(body))
	}
	_, err := s.opts.Record.Write(append(out, "}\n"...))
	return err
}

func appendQuote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(s, "\uFFFD")) // fails on invalid UTF-8 only
	return b
}

// what tells in a few words what a line does.
func what(l script.Line) string {
	switch {
	case l.Error != nil && l.Error.Status != 0:
		return fmt.Sprintf("%d %s", l.Error.Status, l.Error.Code)
	case l.Error != nil:
		return string(l.Error.Code)
	case l.Fault != "":
		return string(l.Fault)
	case l.Hang:
		return string(script.FaultStall)
	}
	return "reply"
}
