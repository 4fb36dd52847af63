package app

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// processStart returns the mark that tells this process from a later one with the same pid.
func processStart() string { return startOf(os.Getpid()) }

// startOf returns the start mark of a process, "" if it is not there.
func startOf(pid int) string {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return ""
	}
	return fmt.Sprintf("%d.%06d", k.Proc.P_starttime.Sec, k.Proc.P_starttime.Usec)
}
