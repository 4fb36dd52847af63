//go:build race

package filestore

// The explorer runs one process at a time: the race detector has nothing to find there, and takes ten times as long.
const underRace = true
