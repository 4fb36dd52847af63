//go:build !linux && !darwin

package main

import "os"

// isTerminal reports whether a person sits at f; here nobody knows, so output stays plain.
func isTerminal(*os.File) bool { return false }

// widthOf returns how many cells a line of the terminal f has; 0 if that is not known.
func widthOf(*os.File) int { return 0 }
