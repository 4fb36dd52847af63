package scenario

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// author writes a log event by event through the public API, with a clock of its own: for logs that no run
// of the command would make.
type author struct {
	st   *filestore.Store
	w    store.Writer
	s    *session.Session
	now  int64 // what the clock says
	next session.Seq
	turn int
}

func openStore(root string) (*filestore.Store, error) {
	host, _ := os.Hostname()
	return filestore.Open(root, filestore.Options{
		Now: time.Now, Rand: rand.Reader, Host: host, Program: "scenario", PID: os.Getpid(),
	})
}

// createAuthor begins a new session.
func createAuthor(root, id, cwd string, now int64, kinds ...session.Kind) (*author, error) {
	reg, err := session.NewRegistry(kinds)
	if err != nil {
		return nil, err
	}
	st, err := openStore(root)
	if err != nil {
		return nil, err
	}
	a := &author{st: st, now: now}
	h := session.Header{Format: session.Format, ID: session.ID(id), CreatedAt: now, Kind: session.KindRoot, Cwd: cwd, Project: cwd}
	if a.w, err = st.Create(context.Background(), h); err != nil {
		return nil, err
	}
	a.s, err = session.New(h, session.Seed{}, session.Env{Registry: reg, Now: func() int64 { return a.now }})
	return a, err
}

// resumeAuthor goes on with a stored session.
func resumeAuthor(root, id string, now int64) (*author, error) {
	st, err := openStore(root)
	if err != nil {
		return nil, err
	}
	a := &author{st: st, now: now}
	if a.w, err = st.Open(context.Background(), session.ID(id)); err != nil {
		return nil, err
	}
	opened := a.w.Opened()
	seed, err := store.Load(opened, session.Core())
	if err != nil {
		return nil, err
	}
	a.next = opened.Prefix.Len()
	a.s, err = session.New(a.w.Header(), seed, session.Env{Now: func() int64 { return a.now }})
	if err == nil {
		a.turn = a.s.State().Turns()
	}
	return a, err
}

// add accepts events and returns when they are synced.
func (a *author) add(drafts ...session.Draft) error {
	if _, err := a.s.AppendAll(nil, drafts...); err != nil {
		return err
	}
	for {
		evs, _, err := a.s.From(a.next)
		if err != nil {
			return err
		}
		if len(evs) == 0 {
			break
		}
		pos, err := a.w.Append(context.Background(), evs)
		if err != nil {
			return err
		}
		a.next = pos.Next
	}
	_, err := a.w.Flush(context.Background())
	return err
}

func (a *author) close() error {
	if err := a.w.Close(); err != nil {
		return err
	}
	return a.st.Close()
}

// The drafts of a turn.

func turnStart(turn int) session.Draft {
	return session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: turn}}
}

func stepStart(turn, step int) session.Draft {
	return session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: turn, Step: step}}
}

func stepEnd(turn, step int) session.Draft {
	return session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: turn, Step: step}}
}

func turnEnd(turn int, kind string) session.Draft {
	r := session.Reason{Kind: kind}
	if kind == session.ReasonError {
		r.Error = &session.ErrorInfo{Name: "ModelError", Code: "SERVER", Message: "the service fell over"}
	}
	return session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: turn, Reason: r}}
}

func userSays(id, text string) session.Draft {
	return session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.User(id, text)}
}

func modelSays(turn, step int, text string, calls ...string) session.Draft {
	m := message.Message{
		ID: fmt.Sprintf("m-%d-%d", turn, step), Role: message.RoleAssistant,
		Source: message.Source{Kind: message.SourceModel, Provider: "script", Model: "script"},
	}
	if text != "" {
		m.Content = append(m.Content, message.TextBlock(text))
	}
	for _, id := range calls {
		m.Content = append(m.Content, message.CallBlock(id, "bash", `{"command":"echo `+id+`"}`))
	}
	return session.Draft{
		Type: session.TypeAssistantMessage, Op: session.Append(),
		Data: session.AssistantMessage{Turn: turn, Step: step, Message: m},
	}
}

func callStarts(turn, step int, id string) session.Draft {
	return session.Draft{Type: session.TypeToolCall, Data: session.ToolCall{
		Turn: turn, Step: step, CallID: id, Name: "bash", Arguments: `{"command":"echo ` + id + `"}`,
	}}
}

func callReturns(turn, step int, id, text string) session.Draft {
	return session.Draft{Type: session.TypeToolResult, Op: session.Append(), Data: session.ToolResult{
		Turn: turn, Step: step, Message: message.Result("r-"+id+"-"+text, id, false, message.TextBlock(text)),
	}}
}

func titled(text string) session.Draft {
	return session.Draft{Type: session.TypeTitle, Data: session.Title{Title: text, Source: "user"}}
}

// say is a whole turn of six events: question and answer.
func (a *author) say(question, answer string) error {
	a.turn++
	n := a.turn
	return a.add(turnStart(n), stepStart(n, 1), userSays(fmt.Sprintf("u-%d", n), question), modelSays(n, 1, answer),
		stepEnd(n, 1), turnEnd(n, session.ReasonCompleted))
}

// part starts this binary as a child that plays a part.
func part(t testing.TB, name string, args ...string) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVar+"="+name)
	in, err := cmd.StdinPipe() // kept open: a child that holds on waits for its end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return startCmd(t, cmd)
}

// hold says that the work is done and waits to be killed.
func hold() error {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadByte()
	return fmt.Errorf("not killed: %v", err)
}

// build has a child make a log with an author and kills it.
func (b *box) build(name string, args ...string) {
	b.t.Helper()
	p := part(b.t, name, append([]string{b.store, b.ws}, args...)...)
	p.until("ready")
	p.kill()
	p.wait()
}

type note struct {
	Kind   string `json:"kind"`
	Seq    int64  `json:"seq"`
	Detail string `json:"detail"`
}

type doctorResult struct {
	ID        string           `json:"id"`
	State     string           `json:"state"`
	Problems  []note           `json:"problems"`
	Notes     []note           `json:"notes"`
	OpenCalls []map[string]any `json:"openCalls"`
	Brackets  []map[string]any `json:"brackets"`
	Verified  jsontext.Value   `json:"verifiedTo"`
}

// diagnose runs the health check of one session and wants the exit code.
func (b *box) diagnose(id string, code int) doctorResult {
	b.t.Helper()
	r := b.strand("doctor", id, "--json")
	if r.code != code {
		b.t.Fatalf("want exit code %d: %v", code, r)
	}
	return decode[doctorResult](b.t, r.out)
}

func (d doctorResult) notes(kind string) []note {
	var out []note
	for _, n := range d.Notes {
		if strings.Contains(n.Kind, kind) {
			out = append(out, n)
		}
	}
	return out
}
