package session

import (
	"crypto/sha256"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Class says what an event of a type does to the surface.
type Class uint8

// The classes: a Log event produces no message, a Surface event does, a Control event rearranges.
const (
	ClassLog Class = iota
	ClassSurface
	ClassControl
)

func (c Class) String() string { return [...]string{"log", "surface", "control"}[c] }

// Kind declares one event type: its owner's word on what may stand in a log and, if the type opens or
// closes a bracket, how the two ends are paired.
type Kind struct {
	Type  string
	Owner string // the package that writes it
	Class Class
	Doc   string // one line for the catalogue

	Opens  string // name of the bracket that the event opens, e.g. "approval"
	Closes string // name of the bracket that the event closes
	Key    string // the data member (text or number) that pairs the ends; "": the nearest open one
	// Outlives: the bracket may stay open over a life's end (a question to a person); it is then
	// "waiting", not dead.
	Outlives bool

	// Usage: the data's members usage, provider and model tell what a request cost that is none of a step's; the
	// fold counts it.
	Usage bool

	// Check refuses data of the wrong shape; nil accepts every object. It must accept everything that
	// earlier versions wrote.
	Check func(jsontext.Value) error

	reserved bool // written by this package or a store only
	folded   bool // State.fold gives it a meaning beyond surface and brackets
}

// shape holds data to Check.
func (k *Kind) shape(data jsontext.Value) error {
	if k.Check == nil {
		return nil
	}
	return k.Check(data)
}

// Registry is the set of types that a program knows. It is immutable and safe for concurrent use.
type Registry struct {
	kinds map[string]*Kind
	mark  func() string // its digest, in every checkpoint
}

// NewRegistry returns the core vocabulary together with the types of packages.
func NewRegistry(packages ...[]Kind) (*Registry, error) {
	r := &Registry{kinds: make(map[string]*Kind)}
	for _, kinds := range append([][]Kind{coreKinds()}, packages...) {
		for _, k := range kinds {
			owner, name, ok := strings.Cut(k.Type, "/")
			if !ok || owner == "" || name == "" {
				return nil, fmt.Errorf("session: type %q: want owner/name", k.Type)
			}
			if _, dup := r.kinds[k.Type]; dup {
				return nil, fmt.Errorf("session: type %s is declared twice", k.Type)
			}
			k.folded = meaning(k.Type)
			r.kinds[k.Type] = &k
		}
	}
	r.mark = sync.OnceValue(r.digest)
	return r, nil
}

// digest tells registries apart by what their kinds mean to the fold.
func (r *Registry) digest() string {
	sum := sha256.New()
	for _, k := range r.Kinds() {
		fmt.Fprintf(sum, "%q %d %q %q %q %t %t\n", k.Type, k.Class, k.Opens, k.Closes, k.Key, k.Outlives, k.Usage)
	}
	return string(sum.Sum(nil)[:12])
}

// Core returns the registry of the core vocabulary alone.
func Core() *Registry {
	r, err := NewRegistry()
	if err != nil {
		panic(err) // the core vocabulary is constant
	}
	return r
}

// Lookup returns the declaration of a type.
func (r *Registry) Lookup(typ string) (Kind, bool) {
	k, ok := r.lookup(typ)
	return *k, ok
}

// undeclared stands for types that nobody declared: a log type without a meaning.
var undeclared = &Kind{}

// lookup is Lookup without the copy; the Kind is shared.
func (r *Registry) lookup(typ string) (*Kind, bool) {
	if k, ok := r.kinds[typ]; ok {
		return k, true
	}
	return undeclared, false
}

// Kinds returns all declarations, ordered by type.
func (r *Registry) Kinds() []Kind {
	out := make([]Kind, 0, len(r.kinds))
	for _, k := range r.kinds {
		out = append(out, *k)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Type < out[j].Type })
	return out
}

// Catalogue writes the vocabulary as a Markdown table for the documentation.
func (r *Registry) Catalogue() string {
	var b strings.Builder
	b.WriteString("| type | owner | class | bracket | what it records |\n|---|---|---|---|---|\n")
	for _, k := range r.Kinds() {
		bracket := ""
		switch {
		case k.Opens != "":
			bracket = "opens " + k.Opens
		case k.Closes != "":
			bracket = "closes " + k.Closes
		}
		if bracket != "" && k.Key != "" {
			bracket += " by " + k.Key
		}
		if k.Outlives {
			bracket += ", may outlive a life"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Type, k.Owner, k.Class, bracket, k.Doc)
	}
	return b.String()
}
