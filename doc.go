// Package strandline is the root of the Strandline module: an agent harness whose only source of truth is
// an append-only session log. It holds no code, only the tests that keep the project's own rules
// (policy_test.go). Start reading at package session; docs/architecture.md has the map.
package strandline
