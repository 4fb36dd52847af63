// Package session is the heart of Strandline: the append-only log of one session and everything that
// follows from it.
//
// A session is a Header and a log of Events, numbered from 0 without gaps. Nothing in a log is ever
// changed; what a session *is* now - the messages a model would see, the open turn, the queue, the
// title, the numbers - is a State, folded from the log. State is a value: it can be cloned for
// nothing, and the same log always gives the same State.
//
// The files, in reading order:
//
//	event.go     Seq, Event, SurfaceOp, Sources: one entry of the log
//	header.go    Header: what is fixed at birth, and the lineage of forks
//	lossless.go  what JSON may be accepted, and the bytes it is kept in
//	kind.go      the registry of types and brackets; core.go: the core vocabulary
//	data.go      the shapes of the core types
//	state.go     the fold: Load is total (for stored logs), Apply is strict (for new events)
//	surface.go   which events make messages now: append, replace, hide, restore
//	calls.go     tool calls and approvals; inbox.go: the queue of accepted input
//	boundary.go  session/inherited: what an earlier life wrote and what this life writes
//	closers.go   the ends that a dead writer could not write
//	session.go   Session: the live log in this process; the one constructor; append and follow
//	accept.go    how a draft becomes an event; shape.go: what its data must look like
//	cut.go       where a session may be forked
//
// The package is pure: no I/O, no goroutines, no clock but the one in Env.
package session
