package vfs

import (
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
)

// entry is the change of one name: from what it was to what it is; nil: nothing.
type entry struct {
	dir  *inode
	name string
	from *inode
	to   *inode
}

// change is a change of names that happens whole or not at all.
type change struct {
	entries []entry
	synced  []bool // whose directory was synced since
}

func (c *change) shares(d *change) bool {
	for _, e := range c.entries {
		for _, o := range d.entries {
			if e.dir == o.dir && e.name == o.name {
				return true
			}
		}
	}
	return false
}

// change changes names now, and has it pending.
func (m *Mem) change(entries ...entry) {
	for _, e := range entries {
		m.touch(e.dir)
		if e.to != nil {
			e.dir.names[e.name] = e.to
			e.to.links++
		}
	}
	for _, e := range entries {
		if e.to == nil {
			delete(e.dir.names, e.name)
		}
		if e.from != nil {
			e.from.links--
			m.free(e.from)
		}
	}
	m.pending = append(m.pending, &change{entries, make([]bool, len(entries))})
}

// sync makes an inode's bytes or names durable. A rename is durable when both its directories are.
func (m *Mem) sync(i *inode) {
	if i.names == nil {
		if i.synced < len(i.data) {
			i.synced = len(i.data)
			m.tick++
		}
		return
	}
	if len(m.pending) > 0 {
		m.tick++
	}
	done := map[*change]bool{}
	for _, c := range m.pending {
		all := true
		for k, e := range c.entries {
			c.synced[k] = c.synced[k] || e.dir == i
			all = all && c.synced[k]
		}
		done[c] = all
	}
	// What a name was before is history when what it is now is durable.
	for k := len(m.pending) - 1; k >= 0; k-- {
		for _, later := range m.pending[k+1:] {
			if done[later] && m.pending[k].shares(later) {
				done[m.pending[k]] = true
			}
		}
	}
	m.pending = slices.DeleteFunc(m.pending, func(c *change) bool {
		if done[c] {
			for _, e := range c.entries {
				e.set()
			}
		}
		return done[c]
	})
}

func (e entry) set() {
	if e.to == nil {
		delete(e.dir.durable, e.name)
	} else {
		e.dir.durable[e.name] = e.to
	}
}

// Fate is what becomes of something unsynced.
type Fate int

// The fates. A name is Kept or it is Missing: as it was before the change. A block that is Missing is zero if a
// block behind it is not missing; else the file is shorter.
const (
	Kept Fate = iota
	Zeroed
	Missing
)

// Unsynced is one thing that loss of power may take: a change of names, or a block of a file.
type Unsynced struct {
	Name     string // of an entry: its last element, the new one if it was renamed
	Removed  bool   // the entry was removed
	Block    bool
	Off, Len int // of the block's unsynced bytes
}

// Chooser decides about everything that is not synced. It is asked in an order that depends on the disk alone.
type Chooser func(Unsynced) Fate

// Lost is the Chooser of a disk that did nothing it was not made to do.
func Lost(Unsynced) Fate { return Missing }

// Survived is the Chooser of a disk that was just in time.
func Survived(Unsynced) Fate { return Kept }

// Random keeps each thing with the probability keep; of the blocks that are not kept half are zero.
func Random(seed uint64, keep float64) Chooser {
	rnd := rand.New(rand.NewPCG(seed, 7))
	return func(u Unsynced) Fate {
		switch r := rnd.Float64(); {
		case r < keep:
			return Kept
		case u.Block && rnd.IntN(2) == 0:
			return Zeroed
		}
		return Missing
	}
}

// Every calls try with one Chooser for each way in which things can be lost, until try returns false or limit
// ways were tried (0: no limit). It reports whether it came to the end. try must use its Chooser on equal disks.
func Every(limit int, try func(Chooser) bool) bool {
	var path, width []int
	for n := 0; limit == 0 || n < limit; n++ {
		depth := 0
		ok := try(func(u Unsynced) Fate {
			fates := [...]Fate{Missing, Kept, Zeroed}
			if depth == len(path) {
				path = append(path, 0)
				w := 2
				if u.Block {
					w = 3
				}
				width = append(width, w)
			}
			depth++
			return fates[path[depth-1]]
		})
		if !ok {
			return false
		}
		for len(path) > 0 && path[len(path)-1]+1 == width[len(path)-1] {
			path, width = path[:len(path)-1], width[:len(path)-1]
		}
		if len(path) == 0 {
			return true
		}
		path[len(path)-1]++
	}
	return false
}

// Crash returns the disk as it is found when the power is back: everything that was synced, of the rest what choose
// keeps, no process and no lock. m stays as it is.
func (m *Mem) Crash(choose Chooser) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[*inode]map[string]*inode{}
	now := func(d *inode) map[string]*inode {
		if names[d] == nil {
			names[d] = maps.Clone(d.durable)
		}
		return names[d]
	}
	var gone []*change
	for _, c := range m.pending {
		last := c.entries[len(c.entries)-1]
		if slices.ContainsFunc(gone, c.shares) || choose(Unsynced{Name: last.name, Removed: last.to == nil}) != Kept {
			gone = append(gone, c)
			continue
		}
		for _, e := range c.entries {
			if e.to == nil {
				delete(now(e.dir), e.name)
			} else {
				now(e.dir)[e.name] = e.to
			}
		}
	}
	out := m.empty()
	out.copyTree(m.root, map[*inode]*inode{}, now, func(old, young *inode) {
		young.data = lose(old, m.block, choose)
		young.synced = len(young.data)
	})
	var settle func(*inode)
	settle = func(d *inode) {
		d.durable = maps.Clone(d.names)
		for _, c := range d.names {
			if c.names != nil {
				settle(c)
			}
		}
	}
	settle(out.root)
	return out
}

// Clone returns a disk that looks the same, synced or not, without its processes: what is found after all were
// killed. It costs the number of files, not their size.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.empty()
	known := map[*inode]*inode{}
	keep := func(old, young *inode) {
		young.data = old.data[:len(old.data):len(old.data)]
		young.synced, young.dropped = old.synced, old.dropped
	}
	out.copyTree(m.root, known, func(d *inode) map[string]*inode { return d.names }, keep)
	// What can be reached only if a change is lost.
	lift := func(i *inode) *inode { return out.copyInode(i, known, nil, keep) }
	for _, c := range m.pending {
		n := &change{synced: slices.Clone(c.synced)}
		for _, e := range c.entries {
			n.entries = append(n.entries, entry{lift(e.dir), e.name, lift(e.from), lift(e.to)})
		}
		out.pending = append(out.pending, n)
	}
	for more := true; more; { // copying names may copy directories
		n := len(known)
		for old, young := range maps.Clone(known) {
			for name, i := range old.durable {
				young.durable[name] = lift(i)
			}
		}
		more = len(known) > n
	}
	return out
}

var fingers = maphash.MakeSeed()

// Fingerprint is equal, within this process, for disks that are equal in their names and contents and in what of both
// is synced, apart from what lies below a directory of the name except.
func (m *Mem) Fingerprint(except string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var h maphash.Hash
	h.SetSeed(fingers)
	number := map[*inode]int{}
	var walk func(*inode)
	list := func(names map[string]*inode) {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if name != except {
				h.WriteString(name)
				walk(names[name])
			}
		}
		maphash.WriteComparable(&h, len(names))
	}
	walk = func(i *inode) {
		if i == nil {
			h.WriteByte(0)
			return
		}
		n, known := number[i]
		if !known {
			n = len(number)
			number[i] = n
		}
		maphash.WriteComparable(&h, n)
		if known {
			return
		}
		maphash.WriteComparable(&h, [4]int{int(i.mode), i.owner, len(i.data), i.synced})
		h.Write(i.data)
		for _, d := range i.dropped {
			maphash.WriteComparable(&h, d)
		}
		if i.names != nil {
			list(i.names)
			list(i.durable)
		}
	}
	walk(m.root)
	for _, c := range m.pending {
		for k, e := range c.entries {
			if _, known := number[e.dir]; !known || e.name == except {
				continue
			}
			walk(e.dir)
			h.WriteString(e.name)
			walk(e.from)
			walk(e.to)
			maphash.WriteComparable(&h, c.synced[k])
		}
	}
	return h.Sum64()
}

func (m *Mem) empty() *Mem {
	return &Mem{block: m.block, limit: m.limit, ro: m.ro, tick: m.tick}
}

// copyTree makes what names says lies below old the tree of m.
func (m *Mem) copyTree(old *inode, known map[*inode]*inode, names func(*inode) map[string]*inode, fill func(old, young *inode)) {
	m.used = 0
	m.root = m.copyInode(old, known, names, fill)
	m.root.links = 1
}

// copyInode copies old, once, and what names says lies below it, in the order of the names.
func (m *Mem) copyInode(old *inode, known map[*inode]*inode, names func(*inode) map[string]*inode, fill func(old, young *inode)) *inode {
	if old == nil {
		return nil
	}
	if young := known[old]; young != nil {
		return young
	}
	young := &inode{mode: old.mode, owner: old.owner, mtime: old.mtime}
	known[old] = young
	fill(old, young)
	if names != nil {
		m.used += int64(m.block) + int64(len(young.data))
	}
	if old.names == nil {
		return young
	}
	young.names, young.durable = map[string]*inode{}, map[string]*inode{}
	if names == nil {
		return young
	}
	list := names(old)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		child := m.copyInode(list[name], known, names, fill)
		child.links++
		young.names[name] = child
	}
	return young
}

// lose returns what is left of a file.
func lose(i *inode, block int, choose Chooser) []byte {
	out := i.data[:len(i.data):len(i.data)]
	copied := false
	end := 0 // of what is not missing
	stretch := func(from, to int) {
		for from < to {
			next := min(to, (from/block+1)*block)
			switch choose(Unsynced{Block: true, Off: from, Len: next - from}) {
			case Kept:
				end = next
				from = next
				continue
			case Zeroed:
				end = next
			}
			if !copied {
				out, copied = slices.Clone(out), true
			}
			clear(out[from:next])
			from = next
		}
	}
	at := 0
	for _, d := range i.dropped {
		if at < d[0] {
			end = d[0]
		}
		stretch(d[0], d[1])
		at = d[1]
	}
	if at < i.synced {
		end = i.synced
	}
	stretch(i.synced, len(i.data))
	return out[:end:end]
}
