//go:build !unix

package app

const openNonblock = 0
