package app

import (
	"bytes"
	"os"
)

// processStart returns the mark that tells this process from a later one with the same pid: the kernel's
// start time in clock ticks since boot, "" if it cannot be read.
func processStart() string {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return ""
	}
	// pid (name with any signs) state ppid .. the start time is the 20th field behind the name
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return ""
	}
	return string(f[19])
}
