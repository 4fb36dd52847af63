// Package compact makes a session's view smaller without losing a word of its log: it owns the compact events and
// the bracket that they make, and is the consumer for which the boundary (session/inherited) was made.
package compact
