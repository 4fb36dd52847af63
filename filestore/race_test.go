//go:build race

package filestore

import "testing"

// oneAtATime skips a test that runs one process at a time, on a disk of its own: the race detector has nothing to find there, and
// takes five to ten times as long. ./check runs them without it.
func oneAtATime(t *testing.T) {
	t.Helper()
	t.Skip("runs without the race detector, which has nothing to find here")
}
