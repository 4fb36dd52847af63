package app

import (
	"bytes"
	"os"
	"strconv"
)

// processStart returns the mark that tells this process from a later one with the same pid: the kernel's
// start time in clock ticks since boot, "" if it cannot be read.
func processStart() string {
	_, start := procStat("self")
	return start
}

// startOf returns the start mark of a process, "" if it is not there.
func startOf(pid int) string {
	_, start := procStat(strconv.Itoa(pid))
	return start
}

// alive reports whether the process with a pid and a start mark ("": any) still runs. One that has ended and
// is not collected yet does not.
func alive(pid int, started string) bool {
	state, start := procStat(strconv.Itoa(pid))
	return state != "" && state != "Z" && state != "X" && (started == "" || start == "" || start == started)
}

// procStat reads the state and the start time of a process, "" if it is not there.
func procStat(pid string) (state, start string) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", ""
	}
	// pid (name with any signs) state ppid .. the start time is the 20th field behind the name
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return "", ""
	}
	return string(f[0]), string(f[19])
}
