// Package search finds words in stored sessions. What a text is, what a query means and how a hit is shown are
// decided here, by pure functions; Scan applies them to every log of a store and is the reference: whatever answers
// faster (an index) proposes events and lets Match decide, so that it finds the same.
//
// # What is searched
//
// The texts of an event (Texts): what people and models said, reasoning included, names and arguments of tool calls, results,
// titles. An event is one hit, at its seq. The log is searched, not the view: what was undone, hidden or compacted away is
// found, where it was first logged. What only repeats another event is not searched: streamed deltas, tool/call beside
// the call of the message, queued input, a title made of the first message, a result that stands in for a longer one. Nor are messages
// that programs put in (summaries, injected context), which nobody said. An answer that was cut short so that no message was
// logged, and input that nobody took up yet, are in no message and are not found.
//
// A fork does not repeat its parent's hits: inherited events are found under the session that logged them, or,
// where that one was deleted, under the oldest session that still has them (Targets).
//
// # The order
//
// Newest first: by the time of the event, then by id, then by seq from the end. All three never change, so that a page
// that goes on behind a cursor neither repeats nor skips a hit, whatever happens to the sessions meanwhile. Ranked puts the best of the newest first, and is as steadfast.
//
// The files, in reading order:
//
//	unit.go     text as words
//	query.go    what a query means
//	texts.go    what of an event is searched
//	snippet.go  a hit as one line
//	scan.go     all logs, without an index
//	rank.go     the best of the newest first
package search
