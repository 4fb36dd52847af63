package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Titles says that a model is asked for the titles of sessions: once for each, after the first turn that was completed,
// beside whatever goes on. What the person who uses the session calls it stays, and so does the title that a fork brings
// along. When no title comes, for whatever reason, the one that the session has stays, in silence. Subagents and sessions
// that programs drive are never asked about.
type Titles struct {
	// Route is the model that is asked; zero: the session's own.
	Route Route
	// Timeout is how long the answer may take; 0: 30 s.
	Timeout time.Duration
	// Grace is how long a disposal waits for an answer that is under way; 0: it does not.
	Grace time.Duration
}

// The types of the events of a request for a title. Both are ignorable.
const (
	TypeTitleAsked    = "title/asked"    // before the request: how it is made
	TypeTitleAnswered = "title/answered" // behind it, directly before the title if there is one
)

// TitleAsked is the data of title/asked. The request is made of it and of two messages of the log (TitleRequest).
type TitleAsked struct {
	Provider    string      `json:"provider"`
	Model       string      `json:"model"`
	Instruction int         `json:"instruction"` // its number
	MaxTokens   int         `json:"maxTokens"`   // that the answer may have
	Human       session.Seq `json:"human"`       // the user/message with what a person said first
	Answer      session.Seq `json:"answer"`      // the assistant/message that is told of; session.None: none
}

// TitleAnswered is the data of title/answered.
type TitleAnswered struct {
	Provider string         `json:"provider"`
	Model    string         `json:"model"`
	Usage    *message.Usage `json:"usage,omitzero"` // nil: not told, which is not zero
	Code     string         `json:"code,omitzero"`  // why there is no title
}

func titleKinds() []session.Kind {
	return []session.Kind{
		{Type: TypeTitleAsked, Owner: "agent", Doc: "a model is about to be asked for the session's title", Check: func(v jsontext.Value) error {
			var t TitleAsked
			if err := json.Unmarshal(v, &t); err != nil {
				return err
			}
			if t.Human < 0 || t.Instruction < 1 || t.MaxTokens < 1 {
				return errors.New("human must be a seq, instruction and maxTokens 1 or more")
			}
			return nil
		}},
		{Type: TypeTitleAnswered, Owner: "agent", Usage: true, Doc: "what asking for a title cost; the title follows, if there is one", Check: func(v jsontext.Value) error {
			return json.Unmarshal(v, new(TitleAnswered))
		}},
	}
}

// titleInstructions are what the model is told, by number: a number that was used never changes its text, so that an old
// request can be made again.
var titleInstructions = map[int]string{
	1: titleHead + " Name the conversation whose beginning follows, so that a person finds it again in a list: " +
		"at most seven words, in the language of the conversation, on what is to be done and to what. Answer with the name alone: " +
		"no quotes, no full stop, no other line. Do not answer the conversation.",
}

const (
	titleHead        = "[Request of the harness for a title.]"
	titleInstruction = 1    // the one in use
	titleTokens      = 1024 // models that think first need some
	titleHuman       = 2000 // runes of what the person said that are told
	titleTold        = 1000 // and of what was answered
	titleMax         = 4096 // bytes of an answer
)

// IsTitle tells by its text whether a request is for a title: a model service that plays a script sees nothing else of it.
func IsTitle(req llm.Request) bool {
	return len(req.Messages) == 1 && strings.HasPrefix(req.Messages[0].PlainText(), titleHead)
}

// TitleRequest makes the request that t tells of; p is the log that t is in.
func TitleRequest(p session.Prefix, t TitleAsked) (llm.Request, error) {
	told, ok := titleInstructions[t.Instruction]
	if !ok {
		return llm.Request{}, fmt.Errorf("this version has no instruction %d for a title", t.Instruction)
	}
	text := func(at session.Seq, most int) (string, error) {
		if at == session.None {
			return "", nil
		}
		ev, err := p.At(at)
		if err != nil {
			return "", err
		}
		said := strings.TrimSpace(strings.ReplaceAll(validText(session.Project(ev).Message.PlainText()), "\x00", ""))
		if r := []rune(said); len(r) > most {
			said = string(r[:most]) + " […]"
		}
		return said, nil
	}
	human, err := text(t.Human, titleHuman)
	if err != nil {
		return llm.Request{}, err
	}
	answer, err := text(t.Answer, titleTold)
	if err != nil {
		return llm.Request{}, err
	}
	if human == "" {
		human = "(no words)"
	}
	told += "\n\n<person>\n" + human + "\n</person>"
	if answer != "" {
		told += "\n\n<answer>\n" + answer + "\n</answer>"
	}
	return llm.Request{
		Purpose: llm.PurposeTitle, Model: t.Model, MaxOutputTokens: t.MaxTokens,
		Messages: []message.Message{{
			ID: "title", Role: message.RoleUser, Content: []message.Block{message.TextBlock(told)},
			Source: message.Source{Kind: message.SourcePlugin, Plugin: "title"},
		}},
	}, nil
}

// errNoTitle says that no title is asked for.
var errNoTitle = errors.New("no title is asked for")

// entitle begins to ask for a title, if it is time to: the turn that ended was completed and is the first one of this life.
// Called by the runner. The goroutine belongs to the agent: dispose waits for it.
func (a *Agent) entitle(end session.TurnEnd) {
	o := a.opts.Titles
	h := a.s.Header()
	if o == nil || a.entitled || end.Reason.Kind != session.ReasonCompleted || h.Kind != session.KindRoot || h.Parent != nil {
		return
	}
	a.entitled = true
	if a.s.State().Title().Source == sourceUser {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.notSaved != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	a.title = &titling{cancel, done}
	go func() {
		defer close(done)
		defer cancel(nil)
		// Whatever goes wrong, the session has the title that it had. A log that cannot be saved stops the agent by itself.
		_ = protect("asking for a title", func() error { return a.askTitle(ctx, o, end.Turn) })
	}()
}

// titling is a request for a title that may be under way.
type titling struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// untitle waits for the request for a title that is under way, for as long as its grace, and ends it.
func (a *Agent) untitle(ctx context.Context) {
	a.mu.Lock()
	t := a.title
	a.mu.Unlock()
	if t == nil {
		return
	}
	if grace := a.opts.Titles.Grace; grace > 0 {
		ctx, over := context.WithCancel(ctx)
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_ = a.opts.Sleep(ctx, grace)
		}()
		select {
		case <-t.done:
		case <-waited:
		}
		over()
		<-waited
	}
	t.cancel(&CancelError{CauseShutdown})
	<-t.done
}

// askTitle asks for a title, unless an earlier turn was completed: then it was asked for then, or not wanted.
func (a *Agent) askTitle(ctx context.Context, o *Titles, turn int) error {
	log := a.s.Events()
	asked, err := a.aboutTitle(log, o, turn)
	if err != nil {
		return err
	}
	prov, err := a.opts.Models.Provider(asked.Provider)
	if err != nil {
		return err
	}
	req, err := TitleRequest(log, asked)
	if err != nil {
		return err
	}
	evs, err := a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		if st.Title().Source == sourceUser {
			return nil, errNoTitle
		}
		return []session.Draft{{Type: TypeTitleAsked, Data: asked, Ignorable: true}}, nil
	})
	if err != nil {
		return err
	}
	at := evs[0].Seq
	answered := TitleAnswered{Provider: asked.Provider, Model: asked.Model}
	var reply llm.Reply
	err = a.logSent(ctx, prov, &req, SentEvent{At: at + 1, Purpose: req.Purpose, Of: at})
	if err == nil {
		err = a.save(ctx)
	}
	if err == nil {
		reply, err = a.receiveTitle(ctx, o, prov, req)
	}
	answered.Usage = reply.Usage
	title := ""
	if err == nil {
		if title = modelTitle(reply.Content); title == "" {
			err = llm.Errorf(llm.CodeEmptyResponse, "the model gave no title")
		}
	}
	if err != nil {
		answered.Code = string(llm.AsError(ctx, err).Code)
	}
	_, err = a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		drafts := []session.Draft{{Type: TypeTitleAnswered, Data: answered, Ignorable: true}}
		if title != "" && st.Title().Source != sourceUser {
			drafts = append(drafts, session.Draft{Type: session.TypeTitle, Data: session.Title{Title: title, Source: "provider"}})
		}
		return drafts, nil
	})
	if err != nil {
		return err
	}
	return a.save(context.WithoutCancel(ctx))
}

// sourceUser is the source of a title that a person gave: it stays.
const sourceUser = "user"

// aboutTitle says how a title is asked for; errNoTitle: it is not, for turn is not the first that was completed.
func (a *Agent) aboutTitle(log session.Prefix, o *Titles, turn int) (TitleAsked, error) {
	out := TitleAsked{Instruction: titleInstruction, MaxTokens: titleTokens, Human: session.None, Answer: session.None}
turns:
	for ev, err := range log.Range(0, log.Len()) {
		if err != nil {
			return out, err
		}
		switch ev.Type {
		case session.TypeTurnEnd:
			d, err := session.DecodeData[session.TurnEnd](ev)
			if err == nil && d.Reason.Kind == session.ReasonCompleted && d.Turn != turn {
				return out, errNoTitle
			}
			if err == nil && d.Turn == turn {
				break turns // what comes behind it is none of the turn
			}
		case session.TypeUserMessage:
			if out.Human == session.None && ev.Op.Kind == session.OpAppend && session.Project(ev).Message.Source.Kind == message.SourceUser {
				out.Human = ev.Seq
			}
		case session.TypeAssistantMessage:
			if ev.Op.Kind == session.OpAppend && session.Project(ev).Message.PlainText() != "" {
				out.Answer = ev.Seq
			}
		}
	}
	if out.Human == session.None {
		return out, errNoTitle
	}
	r := o.Route
	if r == (Route{}) {
		r = a.route(a.s.State())
	}
	out.Provider, out.Model = r.Provider, r.Model
	return out, nil
}

// errLateTitle is the cause when the answer took too long.
var errLateTitle = &llm.Error{Code: llm.CodeTimeout, Message: "there was no title in time"}

// receiveTitle sends the request. Usage is returned also when it fails.
func (a *Agent) receiveTitle(ctx context.Context, o *Titles, prov llm.Provider, req llm.Request) (llm.Reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	slept := make(chan struct{})
	timer, stop := context.WithCancel(ctx)
	go func() {
		defer close(slept)
		if a.opts.Sleep(timer, o.Timeout) == nil {
			cancel(errLateTitle)
		}
	}()
	defer func() { stop(); <-slept; cancel(nil) }()
	var asm llm.Assembler
	size := 0
	err := receive(ctx, prov, req, func(c llm.Chunk) error {
		if size += len(c.Text) + len(c.Arguments); size > titleMax && c.Type == llm.ChunkTextDelta {
			return llm.Errorf(llm.CodeMalformedResponse, "the answer is no title: it has more than %d bytes", titleMax)
		}
		return asm.Add(c)
	})
	if err != nil {
		if errors.Is(context.Cause(ctx), errLateTitle) {
			err = errLateTitle
		}
		return asm.Partial(), err
	}
	return asm.Message()
}

// modelTitle makes a title of what a model answered: its first line with words in it, without what some put around it.
func modelTitle(content []message.Block) string {
	for line := range strings.Lines(message.Message{Content: content}.PlainText()) {
		if label, rest, ok := strings.Cut(line, ":"); ok && strings.EqualFold(strings.Trim(label, " *#_"), "title") {
			line = rest
		}
		line = strings.TrimRightFunc(strings.TrimLeftFunc(line, dress), func(r rune) bool { return dress(r) || strings.ContainsRune(".。", r) })
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
			return brief.TitleOf(line)
		}
	}
	return ""
}

// dress reports whether r is one of the signs that models put around a title.
func dress(r rune) bool {
	return unicode.IsSpace(r) || unicode.In(r, unicode.Cc, unicode.Cf) || strings.ContainsRune("\"'`*#_“”„‚‘’«»‹›「」『』", r)
}
