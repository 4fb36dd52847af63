package demo

import "github.com/strandline-dev/strandline/session"

// The bracket of this package: its name, its opening and its closing type.
const (
	Bracket   = "demo"
	TypeStart = "demo/start"
	TypeEnd   = "demo/end"
)

// Kinds is the vocabulary of this package. A bracket like this one is how a package says that it has begun
// something which must not be taken for finished, or for running, after its writer died.
func Kinds() []session.Kind {
	return []session.Kind{
		{Type: TypeStart, Owner: "demo", Doc: "the demonstration's work begins", Opens: Bracket},
		{Type: TypeEnd, Owner: "demo", Doc: "the demonstration's work is done", Closes: Bracket},
	}
}
