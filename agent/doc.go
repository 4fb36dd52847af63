// Package agent drives sessions: one agent, one session, one goroutine while there is work and none
// while there is not.
//
// Its story is that of a message. Followup puts it in the log (inbox/spliced), waits until the log is
// synced, and only then returns: input is durable before it is acknowledged. A turn claims it, asks the
// hooks, writes it as a user/message, writes what the request has beside its messages (request/header),
// syncs, and opens the model's stream. The answer becomes an assistant/message; the calls in it go
// through policy, approval, tool/call, sync and body, and each result is logged as it comes. A step that
// asked for tools owes another; a turn that owes nothing ends.
//
// Four things hold on every path:
//   - Intent is durable before it is acted on. A sync that fails means that the request is not sent and
//     the body does not run; the turn ends with NOT_SAVED, everything stays in memory, and the next
//     message tries to save again.
//   - Whatever was opened is closed once, by one function that looks at the folded log and not at how the
//     loop got there (turn.end). Tools, hooks and providers that panic end the call or the turn.
//   - Nothing runs twice: a call that the log shows as started is never run again.
//   - What the model sees is made from the log only, by package view.
//
// The package knows no store. It says what it needs (Sessions, Handle, Models), and the application
// brings it.
package agent
