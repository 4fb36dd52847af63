// Package demo shows what the product is for, without a key and without a network.
//
// A child process (this program again) lets a scripted agent with real tools work on a small project in a
// temporary directory. It opens a bracket of this package's own (demo/start .. demo/end), edits a file, and
// begins a deployment that takes long. In the middle of that it is killed with SIGKILL; the moment is chosen by
// what the child reports, not by the clock. Then the parent looks at what is left, a second child picks the
// session up and finishes the job. A third one compacts the session and is killed while the model writes the
// summary, a fourth one compacts it at once, and the session is forked.
//
// Every sentence that is printed was checked before it is printed: a claim that does not hold is an error.
//
// The files, in reading order:
//
//	kinds.go   the bracket
//	story.go   the project, and what the model says
//	child.go   the processes that are killed, and those that go on
//	parent.go  the process that watches, and its claims
//	compact.go .. about the compaction
package demo
