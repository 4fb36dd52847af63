package index

import (
	"slices"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// shelf holds the heads of all sessions, in the orders of a list. A page costs what is on it, and one session that changes
// a search and a move of those behind it. The zero value is empty.
type shelf struct {
	heads   map[session.ID]head
	groups  map[groupKey]*group // nil, as the orders: not made since much has changed
	orders  [2][]place          // by activity, by creation
	changes int                 // how many heads have changed
}

// groupKey is what a list filters by; a group the sessions that have it in common.
type groupKey struct {
	readable           bool
	kind               session.SessionKind
	project, projectID string
}

type group struct {
	groupKey
	n int
}

// place is where a session stands in an order.
type place struct {
	key
	group *group
}

func (p place) compare(o place) int { return p.key.compare(o.key) }

// manyChanges is from how many changes on the orders are made anew.
const manyChanges = 100

// placeOf is the place of a session in order i.
func (s *shelf) placeOf(i int, id session.ID, h head) place {
	k := groupKey{h.readable, h.kind, h.project, h.projectID}
	g := s.groups[k]
	if g == nil {
		g = &group{groupKey: k}
		s.groups[k] = g
	}
	at := h.activity
	if i == 1 {
		at = h.created
	}
	return place{key{at, id}, g}
}

// put puts sessions on the shelf.
func (s *shelf) put(heads map[session.ID]head) {
	if s.heads == nil {
		s.heads = make(map[session.ID]head, len(heads))
	}
	if len(heads) > manyChanges {
		s.groups, s.orders = nil, [2][]place{}
	}
	for id, h := range heads {
		was, had := s.heads[id]
		if s.heads[id] = h; !had || was != h {
			s.changes++
		}
		if s.groups == nil {
			continue
		}
		for i, order := range s.orders {
			p, old := s.placeOf(i, id, h), place{}
			if had {
				old = s.placeOf(i, id, was)
			}
			if i == 0 {
				p.group.n++
				if had {
					old.group.n--
				}
			}
			if order == nil || had && p == old {
				continue
			}
			if had {
				order = without(order, old)
			}
			at, _ := slices.BinarySearchFunc(order, p, place.compare)
			s.orders[i] = slices.Insert(order, at, p)
		}
	}
}

// drop takes a session away.
func (s *shelf) drop(id session.ID) {
	h, ok := s.heads[id]
	delete(s.heads, id)
	if s.changes++; !ok || s.groups == nil {
		return
	}
	for i, order := range s.orders {
		p := s.placeOf(i, id, h)
		if i == 0 {
			p.group.n--
		}
		if order != nil {
			s.orders[i] = without(order, p)
		}
	}
}

func without(order []place, p place) []place {
	if at, ok := slices.BinarySearchFunc(order, p, place.compare); ok {
		return slices.Delete(order, at, at+1)
	}
	return order
}

// inOrder returns all places, valid until the shelf changes.
func (s *shelf) inOrder(byCreation bool) []place {
	i := 0
	if byCreation {
		i = 1
	}
	count := s.groups == nil
	if count {
		s.groups = map[groupKey]*group{}
	}
	if count || s.orders[i] == nil {
		order := make([]place, 0, len(s.heads))
		for id, h := range s.heads {
			p := s.placeOf(i, id, h)
			if count {
				p.group.n++
			}
			order = append(order, p)
		}
		slices.SortFunc(order, place.compare)
		s.orders[i] = order
	}
	return s.orders[i]
}

// page returns the keys that q selects, without those up to after, and one more than its limit if there are more. total
// and hidden are of all pages.
func (s *shelf) page(q Query, after key) (keys []key, total int, hidden map[session.SessionKind]int) {
	order := s.inOrder(q.ByCreation)
	in := store.Query{Projects: q.Projects}
	hidden = map[session.SessionKind]int{}
	shown := make(map[*group]bool, len(s.groups))
	for _, g := range s.groups {
		switch {
		case g.n == 0:
		case g.readable && !in.InProject(session.Header{Project: g.project, ProjectID: g.projectID}):
		case g.readable && q.Kinds != nil && !slices.Contains(q.Kinds, g.kind):
			hidden[g.kind] += g.n
		default:
			shown[g] = true
			total += g.n
		}
	}
	if q.Cursor != "" {
		at, there := slices.BinarySearchFunc(order, place{key: after}, place.compare)
		if there {
			at++
		}
		order = order[at:]
	}
	all := len(shown) == len(s.groups)
	for _, p := range order {
		if q.Limit > 0 && len(keys) > q.Limit {
			break
		}
		if all || shown[p.group] {
			keys = append(keys, p.key)
		}
	}
	return keys, total, hidden
}
