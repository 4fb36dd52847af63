//go:build unix

package demo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// endDeployment ends the command that outlived the killed child.
func (r *run) endDeployment() {
	b, err := os.ReadFile(filepath.Join(r.dir, workDir, pidFile))
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // its group is its own: the tool made it so
	}
}
