//go:build !linux && !darwin

package app

func directoryID(string) string { return "" }
