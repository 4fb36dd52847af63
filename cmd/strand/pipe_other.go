//go:build !unix

package main

// readerGone is asked after SIGPIPE, which there is on Unix only.
func readerGone() bool { return true }
