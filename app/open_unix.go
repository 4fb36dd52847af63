//go:build unix

package app

import "syscall"

const openNonblock = syscall.O_NONBLOCK
