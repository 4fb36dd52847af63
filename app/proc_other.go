//go:build !linux

package app

import (
	"errors"
	"os"
	"syscall"
)

// alive reports whether a process with that pid and start mark ("": any) runs; where that cannot be told, it does.
func alive(pid int, started string) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	defer p.Release()
	if errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return false
	}
	start := startOf(pid)
	return start == "" || started == "" || start == started
}
