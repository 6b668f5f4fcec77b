package pick

import (
	"slices"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A Summary says how much room one machine has, in a form that is fast to
// compare with a claim. Its methods Room and Worth do not allocate memory.
type Summary struct {
	m     *Map
	open  int32
	spare int32 // open CPUs without those that stay open on every machine
	// first and more hold, for each measure, the largest room of a single domain
	// of each level. first holds the first three measures inside the struct, so
	// that a filter reads them without another access to memory.
	first [3][cpus.Levels]int32
	more  [][cpus.Levels]int32
	few   [][]int32 // by measure and j: the room of the best j NUMA nodes
	// sorted holds, for each level, the room of all domains in ascending order.
	sorted [cpus.Levels][]int32
	seats  []seatRoom // by domain
	// apart[a] is the summary for a claim with the exclusive policy a. It leaves out
	// CPUs beside work with the same exclusive policy, and is nil if there are none.
	apart [cpus.ExclusivePolicies]*Summary
}

// A seatRoom says how much room one domain has for shared work.
type seatRoom struct {
	slack  unit.MilliCPU
	seats  int32 // number of CPUs for seats
	pooled int32 // number of CPUs for pooled work
}

// Sum returns the summary of a machine whose CPUs are used as in s.
func (m *Map) Sum(s Seats) Summary {
	if len(m.cpus) == 0 {
		return Summary{m: m}
	}
	u := sumOf(m, &s, s.open)
	for a := range cpus.ExclusivePolicies {
		if rest := away(m, &s, a); rest != nil {
			u.apart[a] = new(Summary)
			*u.apart[a] = sumOf(m, &s, rest)
		}
	}
	return u
}

// sumOf returns the summary for claims that take only CPUs in the given mask.
func sumOf(m *Map, s *Seats, from mask) Summary {
	u := Summary{m: m, open: from.count(0, int32(len(m.cpus)))}
	u.spare = u.open - s.keep
	n := len(m.measures)
	rooms := m.rooms(s, from)
	u.few = make([][]int32, n)
	if extra := n - len(u.first); extra > 0 { // hybrid cores
		u.more = make([][cpus.Levels]int32, extra)
	}
	width := int(m.first[cpus.NUMA+1]-m.first[cpus.NUMA]) + 1
	few := make([]int32, n*width)
	for i := range n {
		room := rooms[i*len(m.domains) : (i+1)*len(m.domains)]
		for l := range cpus.Levels {
			u.largestRooms(i)[l] = slices.Max(room[m.first[l]:m.first[l+1]])
		}
		u.few[i], few = few[:width:width], few[width:]
		m.bestNodes(room, u.few[i])
	}
	for l := range cpus.Levels { // after this, the order of the rooms is not needed
		u.sorted[l] = rooms[m.first[l]:m.first[l+1]:m.first[l+1]]
		slices.Sort(u.sorted[l])
	}
	u.seats = make([]seatRoom, len(m.domains))
	for i := range m.domains {
		p := &m.domains[i]
		at := &u.seats[i]
		open := s.open.count(p.lo, p.hi)
		at.seats = from.count(p.lo, p.hi)
		if at.seats == open { // pooled work uses all open CPUs of the domain
			at.pooled = open
		}
		at.slack = unit.CPUs(int(open)) - s.soft[i]
		if p.up >= 0 {
			at.slack = min(at.slack, u.seats[p.up].slack)
		}
	}
	return u
}

// largestRooms returns the largest room of a single domain of each level. by is
// the index of the measure.
func (u *Summary) largestRooms(by int) *[cpus.Levels]int32 {
	if by < len(u.first) {
		return &u.first[by]
	}
	return &u.more[by-len(u.first)]
}

// Stranded returns how many CPUs remain free for exclusive use after as many
// claims as possible. Each claim takes n CPUs of one L3 cache.
func (u *Summary) Stranded(n int) int {
	all := 0
	for _, room := range u.sorted[cpus.L3] {
		all += int(room) % max(n, 1)
	}
	return all
}

// bestNodes sets best[j] to the number of CPUs that a claim may take from at
// most j NUMA nodes.
func (m *Map) bestNodes(room, best []int32) {
	var few [8]int32
	seen := 0 // NUMA nodes of the sockets so far
	for s := m.first[cpus.Socket]; s < m.first[cpus.Socket+1]; s++ {
		p := &m.domains[s]
		in := append(few[:0], room[p.child:p.after]...)
		slices.SortFunc(in, func(a, b int32) int { return int(b - a) })
		for k := 1; k < len(in); k++ {
			in[k] += in[k-1]
		}
		// From the largest j down, so that best[j-k] is still without this socket.
		for j := seen + len(in); j > 0; j-- {
			for k := max(1, j-seen); k <= min(j, len(in)); k++ {
				best[j] = max(best[j], best[j-k]+min(in[k-1], room[s]))
			}
		}
		seen += len(in)
	}
	for j := range best {
		best[j] = min(best[j], room[0])
	}
}

// fewestNodes returns the smallest number of NUMA nodes that have n CPUs on an
// empty machine.
func (m *Map) fewestNodes(n int32) int {
	j := 0
	for _, size := range m.nodeSizes {
		if n <= 0 {
			break
		}
		n -= size
		j++
	}
	return j
}

// Room returns the reason why a claim does not fit, or Fits if it fits. It fits
// if and only if Map.Fit succeeds.
func (u *Summary) Room(c *cpus.Request) cpus.Code {
	switch {
	case c.Policy == cpus.Shared && c.CPUs <= 0, c.Policy == cpus.Exclusive && c.CPUs <= 0, c.Policy == 0:
		return cpus.NoDemand
	case u.m == nil || len(u.seats) == 0:
		return cpus.TooFewOpen
	case c.Policy != cpus.Exclusive:
		return u.roomToShare(c)
	}
	return u.roomToOwn(c, int32(min(c.CPUs, unit.MaxCPUs+1)))
}

func (u *Summary) roomToOwn(c *cpus.Request, n int32) cpus.Code {
	switch c.Bind {
	case cpus.OnlySpread:
		if u.fits(c, n, 1) {
			return cpus.Fits
		}
	case cpus.OnlyWhole:
		whole := false
		for i, size := range u.m.sizes {
			if n%size != 0 {
				continue
			}
			whole = true
			if u.fits(c, n, 2+i) {
				return cpus.Fits
			}
		}
		if !whole {
			return cpus.NotWhole
		}
	default:
		if u.fits(c, n, 0) {
			return cpus.Fits
		}
	}
	return u.whyNotOwn(c, n)
}

// fitsAny reports whether n CPUs on whole cores are free anywhere.
func (u *Summary) fitsAny(n int32) bool {
	for i, size := range u.m.sizes {
		if n%size == 0 && u.largestRooms(2 + i)[cpus.Machine] >= n {
			return true
		}
	}
	return false
}

// fits reports whether n CPUs are free if they are counted by the given measure.
func (u *Summary) fits(c *cpus.Request, n int32, by int) bool {
	if u.largestRooms(by)[c.Within] < n {
		return false
	}
	return !c.Fewest || u.few[by][u.m.fewestNodes(n)] >= n
}

// roomToShare is Room for seated and pooled work. If c.Exclusive is NotExclusive, it
// checks only the domains of level c.Within, because no domain below has more room.
func (u *Summary) roomToShare(c *cpus.Request) cpus.Code {
	last := c.Within
	if c.Exclusive != cpus.NotExclusive { // a domain may contain a smaller one that is away from other work
		last = cpus.L3
	}
	for l := c.Within; l <= last; l++ {
		if u.hasRoomToShare(c, l) {
			return cpus.Fits
		}
	}
	return u.whyNotShared(c)
}

// Worth rates the placement of a claim that fits, from 0 to 100. The level of
// the domain that contains all CPUs has the most weight, then the number of whole
// cores, and then the size of the rest of the domain. Beside work with the same
// exclusive policy, the rating is a tenth.
func (u *Summary) Worth(c *cpus.Request) int64 {
	if u.m == nil || len(u.seats) == 0 {
		return 0
	}
	if away := u.apart[c.Exclusive]; away != nil {
		if away.Room(c) != cpus.Fits {
			return u.worthAt(c) / 10
		}
		u = away
	}
	return u.worthAt(c)
}

// worthAt is Worth, but does not look at the exclusive policy.
func (u *Summary) worthAt(c *cpus.Request) int64 {
	n := int32(min(max(c.CPUs, 1), unit.MaxCPUs))
	if c.Policy != cpus.Exclusive {
		return u.worthShared(c)
	}
	at := cpus.L3
	for at > cpus.Machine && u.largestRooms(0)[at] < n {
		at--
	}
	w := worths[at][0]
	if u.wholeAt(n, at) {
		w = worths[at][1]
	}
	left := int32(unit.MaxCPUs)
	if i, _ := slices.BinarySearch(u.sorted[at], n); i < len(u.sorted[at]) {
		left = u.sorted[at][i] - n
	}
	return w.least + w.span*4/int64(4+left) // the step from 0 to 1 remaining CPUs counts much, the step from 29 to 30 little (decision 54)
}

// worths are the ratings of owned CPUs: for each level, one on split cores and
// one on whole cores.
var worths = [cpus.Levels][2]struct{ least, span int64 }{
	cpus.Machine: {{1, 1}, {3, 2}}, cpus.Socket: {{6, 5}, {12, 8}}, cpus.NUMA: {{21, 8}, {30, 18}}, cpus.L3: {{49, 10}, {60, 40}},
}

// wholeAt reports whether one domain of the level has n CPUs on whole cores. If n
// is odd, one of the CPUs may be on another core.
func (u *Summary) wholeAt(n int32, at cpus.Level) bool {
	for i, size := range u.m.sizes {
		if u.largestRooms(2 + i)[at] >= n/size*size {
			return true
		}
	}
	return false
}

func (u *Summary) worthShared(c *cpus.Request) int64 {
	for l := cpus.L3; ; l-- {
		if u.hasRoomToShare(c, l) {
			return [...]int64{20, 40, 65, 100}[l]
		}
		if l == cpus.Machine {
			return 0
		}
	}
}

// hasRoomToShare reports whether a domain of a level has room for shared work.
func (u *Summary) hasRoomToShare(c *cpus.Request, l cpus.Level) bool {
	need := max(int32(min(c.CPUs, unit.MaxCPUs+1)), 1)
	for _, at := range u.seats[u.m.first[l]:u.m.first[l+1]] {
		n := at.seats - need
		if c.Policy == cpus.Pool {
			n = at.pooled - 1
		}
		if n >= 0 && at.slack >= c.CPU {
			return true
		}
	}
	return false
}
