// Package subagent lets an agent hand work to agents of its own: the tool `task`, and what it takes that a child
// is never lost, never counted twice and never a copy.
//
// A child is a session like any other: own id, own lock, own log. It begins empty (spawn) or as a fork of its
// parent at the parent's last turn/end (a pointer: nothing is copied, and the turn that calls `task` is not part of
// it). What it may do is fixed when it begins, in its own log: a depth of delegation, a tool filter, the loosest
// approval policy that it may ever run under. So no resume can lower the one or loosen the other.
//
// The parent's log has one bracket for each child: subagent/start, saved before the child exists, and subagent/end
// with its one terminal state. The end stands directly behind what tells the model of it - the result of the call
// that waited, or a message in the inbox with an id that derives from the child - so a bracket is open exactly as
// long as the parent was not told. A crash leaves brackets open; whoever works on the parent next finds them in its
// folded state and asks each child's own log how it went, before the next turn begins and never earlier: opening a
// session writes nothing. A child that nobody runs and whose turn is not over was interrupted. One that waits for a
// person goes on waiting. One whose lock is held runs, in another process, and stays what it is.
//
// The files, in reading order:
//
//	kinds.go       the events, and the tool's words
//	delegation.go  who lives, who waits for whom
//	task.go        the tool: start, wait, list, cancel
//	outcome.go     how a child ended, from its log; how the parent is told
//	recover.go     children of earlier lives
//	tree.go        tokens of a session and all that it handed on
package subagent
