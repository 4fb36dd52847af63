//go:build unix

package main

import "golang.org/x/sys/unix"

// readerGone reports whether nobody reads stdout or stderr any more. SIGPIPE alone does not say so: a connection
// that a model service has dropped raises it as well, when a request is written to it.
func readerGone() bool {
	fds := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	for {
		_, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		const gone = unix.POLLERR | unix.POLLHUP
		return err == nil && (fds[0].Revents|fds[1].Revents)&gone != 0
	}
}
