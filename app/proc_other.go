//go:build !linux

package app

import (
	"strconv"
	"time"
)

var started = time.Now()

// processStart returns a mark that tells this process from a later one with the same pid.
func processStart() string { return strconv.FormatInt(started.UnixNano(), 10) }
