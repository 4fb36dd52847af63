// Package scenario holds the situations in which people lose sessions, time or trust, each as a test that
// drives the built command from outside, and the public API where the command cannot go: kill -9 at any
// moment, torn files, two processes on one session, clocks that lie, lists that only look.
//
// There is no code here besides tests. A test gets a fresh directory (a box: store, workspace, and a place
// outside both for the traces that tools leave), a scripted model, and real child processes. Children are
// killed by progress - after an event that they printed - never by time. What is in the files is read by a
// reader of its own, written from docs/format.md alone, so that a mistake in the product's reader cannot
// hide one in its writer.
//
// The kill loop takes its number of seeds from STRANDLINE_KILL_SEEDS (default 50) and its first seed from
// STRANDLINE_KILL_FROM; STRANDLINE_SCENARIO_PROGRAM names a command to test instead of building one,
// STRANDLINE_SCENARIO_DIR where the stores are made (default: /dev/shm, if there is one).
package scenario
