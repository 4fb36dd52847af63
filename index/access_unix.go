//go:build linux || darwin

package index

import "syscall"

// writable returns why name cannot be written, without opening it.
func writable(name string) error { return syscall.Access(name, 2) }
