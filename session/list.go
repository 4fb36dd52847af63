package session

import (
	"iter"
	"slices"
)

// list is a list whose beginning, base, is shared with the lists of other states and never changed: a child has the
// surface of its parent without a copy of it. What follows is its own. The zero list is empty.
type list[T any] struct{ base, own []T }

func (l list[T]) len() int { return len(l.base) + len(l.own) }

func (l list[T]) at(i int) T {
	if n := len(l.base); i >= n {
		return l.own[i-n]
	}
	return l.base[i]
}

func (l *list[T]) add(v T) { l.own = append(l.own, v) }

// all gives out the elements in order.
func (l list[T]) all() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, v := range l.base {
			if !yield(i, v) {
				return
			}
		}
		for i, v := range l.own {
			if !yield(len(l.base)+i, v) {
				return
			}
		}
	}
}

// copied returns the elements i..j-1 in a slice of the caller's.
func (l list[T]) copied(i, j int) []T {
	out := make([]T, 0, j-i)
	for ; i < j; i++ {
		out = append(out, l.at(i))
	}
	return out
}

// spliced returns the list with the elements i..j-1 replaced by with; l stays as it is.
func (l list[T]) spliced(i, j int, with ...T) list[T] {
	n := len(l.base)
	if i >= n {
		return list[T]{l.base, slices.Concat(l.own[:i-n], with, l.own[j-n:])}
	}
	return list[T]{l.base[:i:i], slices.Concat(with, l.base[min(j, n):], l.own[max(j-n, 0):])}
}

// clipped returns a copy: an append to one of the two is never seen by the other.
func (l list[T]) clipped() list[T] { return list[T]{l.base, slices.Clip(l.own)} }

// shared is clipped for a child: an append to it copies nothing, if this list has no shared beginning already.
func (l list[T]) shared() list[T] {
	if len(l.base) == 0 {
		return list[T]{base: slices.Clip(l.own)}
	}
	return l.clipped()
}
