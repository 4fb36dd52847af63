//go:build !race

package filestore

const underRace = false
