//go:build unix

package builtin

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const canRun = true

// openNonblock keeps an open from waiting when a file was replaced by a pipe.
const openNonblock = syscall.O_NONBLOCK

// isolate gives the command a session of its own: its own process group and no terminal.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// endGroup asks all processes of the command's group to end, or makes them.
func endGroup(cmd *exec.Cmd, force bool) error {
	sig := syscall.SIGTERM
	if force {
		sig = syscall.SIGKILL
	}
	err := syscall.Kill(-cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
