package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a person sits at f.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TIOCGETA)
	return err == nil
}

// widthOf returns how many cells a line of the terminal f has; 0 if that is not known.
func widthOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
