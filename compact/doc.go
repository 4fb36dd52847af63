// Package compact makes a session's view smaller without losing a word of its log: it owns the compact events and
// the bracket that they make, and is the consumer for which the boundary (session/inherited) was made.
//
// A compaction selects a span from the head of the surface, asks the model for a summary of it, and appends one
// message that replaces the span. Originals stay in the log; taking the replacement back is one event (Undo).
//
//	select and validate -> lock check -> start -> summarise -> verify the span -> summary -> replacement -> end
//
// Three things hold on every path:
//   - The lock is the open start. Check and start are one step of the log (AppendFunc). It is live only above the
//     last boundary: one below it was left by a writer that is gone, is ignored and never closed. One of this life
//     whose run is over, because its end could not be written, gets it before the next start.
//   - After a start there is exactly one end, whatever happens, as long as somebody lives to write it. The
//     replacement exists in full before it is recorded, and summary, replacement and end are one append.
//   - A compaction never repeats itself: a summary that is no smaller than its source changes nothing ("no-gain"),
//     no attempt follows before the view has grown, and at most two come without a completed answer between them.
//
// What must outlive a compaction in the harness's own words (project instructions, what runs at the moment) is not
// left to the summary: whoever owns it states it again afterwards. Calls that wait for a person are never selected.
//
// The files, in reading order:
//
//	kinds.go     the events
//	settings.go  the numbers
//	plan.go      which span goes: pure
//	prune.go     shortening old results without a model: pure
//	cut.go       telling a part of what is too long to be told: pure
//	prompt.go    what the model is asked, and the message that stands for the span
//	summarise.go asking it
//	compact.go   a compaction from lock to end
//	pressure.go  when one begins by itself
//	undo.go      taking one back
package compact
