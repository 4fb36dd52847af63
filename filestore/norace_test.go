//go:build !race

package filestore

import "testing"

func oneAtATime(*testing.T) {}
