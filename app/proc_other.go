//go:build !linux

package app

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
)

var started = time.Now()

// processStart returns a mark that tells this process from a later one with the same pid.
func processStart() string { return strconv.FormatInt(started.UnixNano(), 10) }

// alive reports whether a process with that pid runs; where that cannot be told, it does.
func alive(pid int, _ string) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	defer p.Release()
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
