package agent

import (
	"context"
	"errors"
	"time"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// Sessions makes and opens durable sessions. Its errors reach the caller as they are ("busy" names the
// holder, "exists", "damaged" ..). It is safe for concurrent use.
type Sessions interface {
	// Create makes a new session over a seed (mostly empty) and holds it. Nothing needs to be stored yet.
	Create(ctx context.Context, h session.Header, seed session.Seed) (Handle, error)
	// Resume opens a stored session for writing. It changes no stored byte and never creates.
	Resume(ctx context.Context, id session.ID) (Handle, error)
	// Restore is Resume, but tells "not stored" (found is false, err is nil) from every other failure.
	Restore(ctx context.Context, id session.ID) (h Handle, found bool, err error)
	// Fork stores a new session that begins as a copy of source, and returns its header. Nobody holds it.
	Fork(ctx context.Context, source session.ID, opt ForkOptions) (session.Header, error)
}

// Handle is the hold of one live session.
type Handle interface {
	// Session is the live log. Its registry must declare Kinds.
	Session() *session.Session
	// Flush returns when everything accepted before is synced, else with the reason.
	Flush(ctx context.Context) error
	// Saved returns nil, or why accepted events are not saved at the moment.
	Saved() error
	// Full reports that so much is unsaved that nothing more should be started.
	Full() bool
	// Dispose saves what is unsaved, ends the session and lets it go. When that fails because it cannot be
	// saved, everything is still held, and Dispose may be called again; disposing what is gone is nil.
	Dispose(ctx context.Context) error
}

// ForkOptions says what a fork is.
type ForkOptions struct {
	At    *session.Seq        // inclusive; nil: the last legal cut
	Child session.ID          // "": a new one
	Kind  session.SessionKind // "": session.KindFork
	Depth int                 // of delegation
}

// Models finds the provider of a route. It is safe for concurrent use.
type Models interface {
	// Provider returns the provider of that name; an error says what to configure.
	Provider(name string) (llm.Provider, error)
}

// Route names a model.
type Route struct {
	Provider, Model string
}

// Kit is what one session's agent works with.
type Kit struct {
	Tools  tool.Set
	Hooks  []tool.Hook
	Guards []tool.Guard
	Rules  []tool.Rule
	Spill  tool.Spill // keeps results that are too long for the model; nil: they are cut
	// System is added to the system prompt: what is special about this session's agent. "" = nothing.
	System string
	// Purpose is that of the session's requests; "": llm.PurposeTurn.
	Purpose string
	// Limit returns the loosest approval policy that the session's calls may run under, whoever says what;
	// nil, or "": no limit. It must not block.
	Limit func() tool.Policy
	Close func() error // called once when the agent is disposed; may be nil
}

// Config is what one agent is told beside what its session says. The zero value leaves everything to the
// session's settings, and what they do not say to the Options. What is set here is written to the session
// together with its next turn, so that it survives a resume.
type Config struct {
	Route  Route
	Policy tool.Policy
	Rules  []tool.Rule // of approval, added to those of the session
}

// Retry says how requests are tried again inside their step.
type Retry struct {
	Attempts int           // of one request, the first included; 0: 5, 1: no retry
	Base     time.Duration // the first delay; it doubles with each attempt, less a jitter of up to half; 0: 1 s
	Max      time.Duration // the longest delay of our own; 0: 30 s
	AfterMax time.Duration // the longest delay that a service may ask for; 0: 2 min
}

// Options is what all agents of a registry share. Sessions, Models, Now, NewID, Sleep and Rand are
// required; everything else has a safe default.
type Options struct {
	Sessions Sessions
	Models   Models
	Default  Route       // for sessions whose settings name no model
	Policy   tool.Policy // for sessions that recorded none; "": ask

	// Equip returns the tools of a session. It is called once per agent, before the agent is published;
	// an error prevents that. Nil: no tools.
	Equip func(ctx context.Context, s *session.Session) (Kit, error)
	// System returns the system prompt; nil: SystemPrompt.
	System func(session.Header) string
	// ReadFile reads a project file (AGENTS.md); an error that is fs.ErrNotExist means there is none.
	// Nil: no project context.
	ReadFile func(path string) ([]byte, error)

	Hooks Hooks

	Titles *Titles // nil: no model is asked for a title

	MaxSteps        int     // per turn; 0: 50
	MaxTurnTokens   int64   // of all kinds together; a turn that reached it begins no further step. 0: 10 million, negative: no limit
	MaxTurnCost     float64 // US dollars, where the provider's catalogue has prices; 0: no limit
	Parallel        int     // bodies at once in one step; 0: 10
	ResultLimit     int     // bytes of a result's text that go to the model; 0: tool.DefaultLimit
	MaxOutputTokens int     // per request; 0: the provider's default
	Temperature     *float64
	Reasoning       string // effort, in the provider's words
	Retry           Retry

	ChunkBytes int           // deltas are joined into one event up to this size; 0: 4 KiB
	ChunkAge   time.Duration // .. and this age; 0: 500 ms

	Now   func() time.Time
	NewID func() string // unique, at least 96 random bits
	Sleep func(ctx context.Context, d time.Duration) error
	Rand  func() float64 // in [0,1)
}

func (o Options) withDefaults() (Options, error) {
	if o.Sessions == nil || o.Models == nil || o.Now == nil || o.NewID == nil || o.Sleep == nil || o.Rand == nil {
		return o, errors.New("agent: Sessions, Models, Now, NewID, Sleep and Rand are required")
	}
	def(&o.Policy, tool.PolicyAsk)
	def(&o.MaxSteps, 50)
	def(&o.MaxTurnTokens, 10_000_000)
	def(&o.Parallel, 10)
	def(&o.Retry.Attempts, 5)
	def(&o.Retry.Base, time.Second)
	def(&o.Retry.Max, 30*time.Second)
	def(&o.Retry.AfterMax, 2*time.Minute)
	def(&o.ChunkBytes, 4<<10)
	def(&o.ChunkAge, 500*time.Millisecond)
	if o.Titles != nil {
		t := *o.Titles
		def(&t.Timeout, 30*time.Second)
		o.Titles = &t
	}
	if o.System == nil {
		o.System = func(session.Header) string { return SystemPrompt }
	}
	if o.Equip == nil {
		o.Equip = func(context.Context, *session.Session) (Kit, error) { return Kit{}, nil }
	}
	return o, nil
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Hooks are the places where others take part. Each list is called in order, on the agent's goroutine
// unless said otherwise; a hook that panics ends the creation or the turn, with an error.
type Hooks struct {
	// Announce is told of an agent before anybody else can reach it. An error prevents the agent.
	Announce []func(ctx context.Context, a *Agent) error
	// SessionStart is the live notice that an agent begins. An error prevents the agent.
	SessionStart []func(ctx context.Context, a *Agent, source StartSource) error
	// TurnStart is called before a turn is begun or taken up: what is appended to the session comes before
	// it, what is injected is part of it. An error ends nothing: it is the hook's to record.
	TurnStart []func(ctx context.Context, a *Agent)
	// TurnEnd is told how a turn of this life ended, once that is in the log.
	TurnEnd []func(a *Agent, end session.TurnEnd)
	// Disposing is called when an agent has stopped for good and its session still takes events.
	Disposing []func(ctx context.Context, a *Agent)
	// Disposed is told after an agent's session was let go.
	Disposed []func(id session.ID)
	// PreStep sees the messages that are about to enter a step and may change the list. An error rejects
	// them: the turn ends as blocked, with the error's text.
	PreStep []func(ctx context.Context, in *StepInput) error
	// Pressure is asked before each request is opened, and after a service refused one as too long. It may
	// append to the session (a compaction) and reports whether it changed the surface; an error ends the turn.
	Pressure []func(ctx context.Context, in PressureInput) (changed bool, err error)
	// Restate is asked directly after a Pressure hook, or Relieve, took something off the surface: each returns
	// the messages that say what the model must still know and does not see any more, such as what runs for this
	// session at the moment. They are logged at once as user/message, behind everything else and in the order
	// of the list; one without an id gets one. Their source must be SourcePlugin. An error ends the turn.
	// The project's AGENTS.md files are stated again by the agent itself, before all of them.
	Restate []func(ctx context.Context, s *session.Session) ([]message.Message, error)
}

// StartSource tells how an agent began.
type StartSource string

// The sources: a session that was made (fresh, seeded or forked), and a stored one that goes on.
const (
	SourceStartup StartSource = "startup"
	SourceResume  StartSource = "resume"
)

// StepInput is what a PreStep hook sees.
type StepInput struct {
	Session    *session.Session
	Turn, Step int
	Messages   []message.Message // the hook may replace the list; the messages are shared
}

// PressureInput is what a Pressure hook sees.
type PressureInput struct {
	Session       *session.Session
	Turn, Step    int // 0: between turns
	Provider      llm.Provider
	ContextWindow int         // tokens; 0: unknown
	Request       llm.Request // as it would be sent now
	Overflow      bool        // the service refused it as too long
	Flush         func(context.Context) error
	// Sent makes the body of a request that the hook is about to send for another purpose than a turn, and logs
	// what it was (request/sent). at is the length of the log that it was made of, of the event that tells how.
	Sent func(req *llm.Request, at, of session.Seq) error
	// Tell shows a person what is done at the moment ("": nothing any more), Remark something worth knowing.
	Tell, Remark func(text string)
}
