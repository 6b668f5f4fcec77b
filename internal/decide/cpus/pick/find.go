package pick

import (
	"cmp"
	"slices"

	"tenon.sh/tenon/internal/model/cpus"
)

// A finder chooses n CPUs for one claim. The best choice has the fewest NUMA
// nodes. Among equal choices it has, in this order, the fewest sockets, the
// fewest L3 caches, the fewest CPUs on split cores, the fewest cores that it
// breaks, and the least room in its caches and NUMA nodes. Among choices that
// are still equal, it leaves the most room in one socket, and then in one NUMA
// node, so that a later claim for all of one finds it. Caches and nodes in which
// the claim already has CPUs do not count.
type finder struct {
	m          *Map
	open, have mask
	by         measure
	room       []int32 // the room in each domain
	n          int32
	within     cpus.Level
	leaves     []leaf
	scratch    []int32 // by domain
	counts     []int32 // by size of core
}

// A leaf is the finder's data about one L3 cache, for this claim.
type leaf struct {
	domain int32
	room   int32   // number of CPUs that the claim may take
	whole  []int32 // number of wholly free cores, by size
	sum    int32   // number of the CPUs of these cores, at most room
	partly int32   // free CPUs of other cores
	begun  int32   // free CPUs of cores in which the claim has CPUs
	forced bool    // the claim has CPUs here
}

// A selection is a set of caches and the rating of this set.
type selection struct {
	leaves  []int32 // indexes of finder.leaves
	sockets int
	caches  int
	split   int32
	broken  int32 // 1: it breaks a core that was wholly free
	left    int32 // free CPUs that are left in the caches
	beyond  int32 // the room in the NUMA nodes
}

// better reports whether a is at least as good as b.
func (f *finder) better(a, b *selection) bool {
	order := cmp.Or(cmp.Compare(a.sockets, b.sockets), cmp.Compare(a.caches, b.caches), cmp.Compare(a.split, b.split),
		cmp.Compare(a.broken, b.broken), cmp.Compare(a.left, b.left), cmp.Compare(a.beyond, b.beyond))
	return order < 0 || order == 0 && f.rest(a) >= f.rest(b)
}

// rest says how much room a selection leaves together: it returns the sum of the
// squares of the room in each socket and NUMA node, if the claim takes all of the
// smaller caches.
func (f *finder) rest(s *selection) (sum int64) {
	n, left, order := f.n, f.scratch, slices.Clone(s.leaves)
	copy(left, f.room)
	slices.SortFunc(order, func(a, b int32) int { return f.smaller(f.room, a, b) })
	for _, i := range order {
		n -= f.spend(left, f.leaves[i].domain, n)
	}
	for _, room := range left[f.m.first[cpus.Socket]:f.m.first[cpus.L3]] {
		sum += int64(room) * int64(room)
	}
	return sum
}

// smaller orders caches by the room that is left in their socket, in their NUMA
// node, and in themselves.
func (f *finder) smaller(left []int32, a, b int32) int {
	for l := cpus.Socket; l < cpus.Levels; l++ {
		p, q := f.leaves[a].domain, f.leaves[b].domain
		for range cpus.L3 - l {
			p, q = f.m.domains[p].up, f.m.domains[q].up
		}
		if order := cmp.Compare(left[p], left[q]); order != 0 {
			return order
		}
	}
	return cmp.Compare(b, a)
}

// find returns the positions of the chosen CPUs. It returns nil if there are
// not enough.
func (f *finder) find(fewest bool) mask {
	m := f.m
	if f.room[0] < f.n {
		return nil
	}
	f.look()
	var forced []int32
	for i := m.first[cpus.NUMA]; i < m.first[cpus.NUMA+1]; i++ {
		if f.have.count(m.domains[i].lo, m.domains[i].hi) > 0 {
			forced = append(forced, i)
		}
	}
	most := int(m.first[cpus.NUMA+1] - m.first[cpus.NUMA])
	if fewest {
		most = m.fewestNodes(f.n + f.have.count(0, int32(len(m.cpus))))
	}
	if f.within >= cpus.NUMA {
		most = 1
	}
	for j := max(len(forced), 1); j <= max(most, len(forced)); j++ {
		var best *selection
		f.eachNodes(j, forced, func(nodes []int32) {
			if s := f.selectIn(nodes); s != nil && (best == nil || f.better(s, best)) {
				best = s
			}
		})
		if best != nil {
			return f.take(best)
		}
	}
	return nil
}

// look counts the free CPUs of each L3 cache.
func (f *finder) look() {
	m := f.m
	n := int(m.first[cpus.L3+1] - m.first[cpus.L3])
	f.leaves, f.scratch = make([]leaf, 0, n), make([]int32, len(m.domains))
	f.counts = make([]int32, len(m.sizes))
	whole := make([]int32, n*len(m.sizes))
	for i := m.first[cpus.L3]; i < m.first[cpus.L3+1]; i++ {
		p := &m.domains[i]
		l := leaf{domain: i, room: f.room[i], forced: f.have.count(p.lo, p.hi) > 0}
		if l.room == 0 && !l.forced {
			continue
		}
		l.whole, whole = whole[:len(m.sizes):len(m.sizes)], whole[len(m.sizes):]
		for _, c := range m.cores[p.core:p.last] {
			k, had := f.open.count(c.lo, c.hi), int32(0)
			if l.forced {
				had = f.have.count(c.lo, c.hi)
			}
			switch {
			case had > 0:
				l.begun += k - had
			case k == c.hi-c.lo:
				l.whole[m.sizeAt(k)]++
				if l.sum+k <= l.room {
					l.sum += k
				}
			default:
				l.partly += k
			}
		}
		f.leaves = append(f.leaves, l)
	}
}

// maxNodes is the maximum number of sets of NUMA nodes that a choice compares.
// It is enough for all sets of a machine with eight nodes.
const maxNodes = 256

// eachNodes calls try with sets of j NUMA nodes into which the claim fits. Each set
// contains all forced nodes. The nodes with the most room are tried first.
func (f *finder) eachNodes(j int, forced []int32, try func([]int32)) {
	m := f.m
	var free []int32
	for i := m.first[cpus.NUMA]; i < m.first[cpus.NUMA+1]; i++ {
		if f.room[i] > 0 && !slices.Contains(forced, i) {
			free = append(free, i)
		}
	}
	if j > 1 {
		slices.SortStableFunc(free, func(a, b int32) int { return cmp.Compare(f.room[b], f.room[a]) })
	}
	left := maxNodes
	set := slices.Clone(forced)
	var choose func(from, more int)
	choose = func(from, more int) {
		switch {
		case left == 0:
		case more == 0:
			if f.capacity(set) >= f.n {
				left--
				try(set)
			}
		default:
			for i := from; i+more <= len(free); i++ {
				if f.sumRoom(set, free[i:i+more]) < f.n {
					break // those that follow have less room
				}
				set = append(set, free[i])
				choose(i+1, more-1)
				set = set[:len(set)-1]
			}
		}
	}
	if j == 1 && len(forced) == 0 {
		for _, i := range free {
			if f.room[i] >= f.n {
				try([]int32{i})
			}
		}
		return
	}
	choose(0, j-len(forced))
}

// sumRoom returns the sum of the room in two lists of domains. The domains together
// can give at most this many CPUs.
func (f *finder) sumRoom(a, b []int32) int32 {
	n := int32(0)
	for _, list := range [][]int32{a, b} {
		for _, i := range list {
			n += f.room[i]
		}
	}
	return n
}

// capacity returns how many CPUs the claim may take from a set of NUMA nodes together.
func (f *finder) capacity(nodes []int32) int32 {
	sum := int32(0)
	m := f.m
	for s := m.first[cpus.Socket]; s < m.first[cpus.Socket+1]; s++ {
		in := int32(0)
		for _, i := range nodes {
			if m.domains[i].up == s {
				in += f.room[i]
			}
		}
		sum += min(in, f.room[s])
	}
	return min(sum, f.room[0])
}

// selectIn chooses caches in a set of NUMA nodes.
func (f *finder) selectIn(nodes []int32) *selection {
	m := f.m
	var sockets []int32
	for _, i := range nodes {
		if up := m.domains[i].up; !slices.Contains(sockets, up) {
			sockets = append(sockets, up)
		}
	}
	if f.within == cpus.Socket && len(sockets) > 1 {
		return nil
	}
	var base, free []int32
	for i, l := range f.leaves {
		switch {
		case !slices.Contains(nodes, m.domains[l.domain].up):
		case l.forced:
			base = append(base, int32(i))
		default:
			free = append(free, int32(i))
		}
	}
	most := len(base) + len(free)
	if f.within == cpus.L3 {
		most = 1
	}
	enough, ok := f.fewestCaches(base, free)
	if !ok || len(base)+len(enough) > most {
		return nil
	}
	s, ok := f.bestCaches(base, free, len(enough))
	if !ok { // the compared sets leave too few CPUs for the shared work of a NUMA node
		one, _ := f.rate(append(base, enough...))
		s = &one
	}
	s.sockets, s.caches, s.beyond = len(sockets), len(s.leaves), f.sumRoom(nodes, nil)
	return s
}

// fewestCaches returns the smallest set of free caches that the claim needs in
// addition to those in base. It returns false if even all free caches are not
// enough. Again and again, it takes the cache with the largest gain. This gives
// the smallest set, because no cache gains more than the one before.
func (f *finder) fewestCaches(base, free []int32) ([]int32, bool) {
	left := f.scratch
	copy(left, f.room)
	sum := int32(0)
	gain := func(i int32) int32 { return f.gain(left, f.leaves[i].domain) }
	for _, i := range base {
		sum += f.spend(left, f.leaves[i].domain, f.n)
	}
	rest := slices.Clone(free)
	var taken []int32
	for {
		if sum >= f.n {
			return taken, true
		}
		best := -1
		for at, i := range rest {
			if n := gain(i); n > 0 && (best < 0 || n > gain(rest[best])) {
				best = at
			}
		}
		if best < 0 {
			return nil, false
		}
		taken = append(taken, rest[best])
		sum += f.spend(left, f.leaves[rest[best]].domain, f.n)
		rest = slices.Delete(rest, best, best+1)
	}
}

// gain returns how many CPUs the domain p can give from the room that is left.
func (f *finder) gain(left []int32, p int32) int32 {
	n := left[p]
	for p = f.m.domains[p].up; p >= 0; p = f.m.domains[p].up {
		n = min(n, left[p])
	}
	return n
}

// spend takes at most n CPUs of the domain p from the room that is left, and
// returns how many.
func (f *finder) spend(left []int32, p, n int32) int32 {
	n = min(n, f.gain(left, p))
	for ; p >= 0; p = f.m.domains[p].up {
		left[p] -= n
	}
	return n
}
