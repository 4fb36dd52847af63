// Package view makes a session's surface legal for one provider: what it returns is what would be sent.
//
// A surface is what happened; a request must be more than that. Every tool call needs exactly one result
// directly after it, ids must be unique, text must be valid Unicode, and nothing that another provider
// signed may go along. A log breaks these rules whenever its writer was killed, ran tools in parallel,
// changed its model or was another program. The log is never edited to get there: the view is computed,
// and what it had to do is listed for the health check.
//
// Build is a pure, total function: the same items, state and provider give the same bytes, and every
// prefix of every log, garbage included, has a legal view. A Builder is the same function for callers that
// ask again and again while a session grows: it keeps the settled head, so that a step costs what is new.
//
// How a result finds its call:
//
//   - A call is an assistant message (its seq) and an index among its calls. Ids are the model's and may
//     repeat; the later ones are renamed, results included.
//   - A closer (session.MissingResult) names its call by its message id. It stands for that call or for
//     none.
//   - Any other result belongs to the first call with its id in its own turn and step that lacks one;
//     if that step asked for no such id, to the nearest earlier call with the id that lacks one. A result
//     logged ahead of its own step's call waits for it.
//   - What is left is a duplicate (its call has a result) or a stranger. Both are dropped.
//   - A call that gets none is given session.MissingResult with the code that the state tells; a call
//     that the state does not list as open while its result is not on the surface counts as outcome unknown.
package view

import (
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// View is what would be sent to a provider.
type View struct {
	// Messages are shared with the session and with other views: they must not be changed. The slice is
	// capped: appending to it copies.
	Messages []message.Message
	// Notes say what had to be done to get there: what was done to single events in the order of the
	// surface, then the dropped results, then the missing ones. Capped like Messages.
	Notes []Note
}

// Note is one thing that the view did to the surface.
type Note struct {
	Kind   NoteKind
	Seq    session.Seq // the event that it was done to
	Detail string      // for people
	Code   string      // Missing: the code of the supplied result
}

// NoteKind says what was done.
type NoteKind string

// The kinds of notes.
const (
	Duplicate NoteKind = "duplicate"      // a further result of a call that has one; dropped
	Stranger  NoteKind = "stranger"       // a result of a call that is not there; dropped
	Missing   NoteKind = "missing-result" // a call without a result; one was supplied
	Renamed   NoteKind = "renamed-id"     // a repeated or empty call id
	Moved     NoteKind = "moved-result"   // a result that stood elsewhere than among those behind its message
	Bound     NoteKind = "provider-bound" // parts that only another provider can read; dropped
	Replaced  NoteKind = "replaced-text"  // text that is not valid Unicode or holds NUL
	Media     NoteKind = "refused-media"  // an image that cannot be sent; a text says so instead
	Misplaced NoteKind = "misplaced"      // a block that cannot stand in its message; dropped
	Lost      NoteKind = "lost-records"   // records that storage lost; a notice says so
)

// Options tell Build and NewBuilder what the provider is like.
type Options struct {
	// Provider is compared with the source of each assistant message. The empty name stands for nobody
	// in particular: parts bound to any named provider are dropped.
	Provider string
	// MergeRoles joins neighbouring messages of one role into one, for providers that want the roles to
	// alternate. The joined message has the id of the first and the source of the first that the
	// provider made, without its replay state, which stands for one message only.
	MergeRoles bool
	// MediaTypes are the image types that may be sent; nil: png, jpeg, gif and webp.
	MediaTypes []string
}

// defaultMediaTypes is what all providers with images take.
var defaultMediaTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Build returns the view of items for a provider. items are the surface of the log that st was folded
// from (session.Session.Surface, session.ProjectAll).
func Build(items []session.Item, st session.State, provider string) View {
	return BuildWith(items, st, Options{Provider: provider})
}

// BuildWith is Build with options.
func BuildWith(items []session.Item, st session.State, opt Options) View {
	return NewBuilder(opt).Update(items, st)
}
