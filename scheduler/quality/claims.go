package main

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// occupied returns a random set of CPUs that are not free. In half of all
// calls, all CPUs of a core are occupied or free together. The reserved CPUs
// are always occupied.
func occupied(rnd *rand.Rand, f *frame) unit.CPUSet {
	closed := f.reservedCPUs()
	share := rnd.Float64()
	byCore := rnd.IntN(2) == 0
	for _, core := range f.cores {
		taken := rnd.Float64() < share
		for _, c := range core {
			if byCore && taken || !byCore && rnd.Float64() < share {
				closed = closed.With(unit.CPU(c))
			}
		}
	}
	return closed
}

// optimum returns the best possible rating of a choice of n free CPUs. It tries
// each set of caches. In a set, it takes as many wholly free cores as possible.
// It takes only the remaining CPUs from other cores, which it thereby splits.
func optimum(h *host, n int) (rating, bool) {
	caches := len(h.groups[cacheLevel])
	type sums struct{ open, whole, nodes, sockets int }
	all := make([]sums, 1<<caches)
	best, found := rating{}, false
	for set := 1; set < 1<<caches; set++ {
		g := bits.TrailingZeros(uint(set))
		first := h.groups[cacheLevel][g][0]
		s := all[set&(set-1)]
		s.open += h.open[cacheLevel][g]
		s.whole += h.whole[cacheLevel][g]
		s.nodes |= 1 << h.at[numaLevel][first]
		s.sockets |= 1 << h.at[socketLevel][first]
		all[set] = s
		if s.open < n {
			continue
		}
		r := rating{
			bits.OnesCount(uint(s.nodes)), bits.OnesCount(uint(s.sockets)), bits.OnesCount(uint(set)),
			n - min(s.whole, n/h.threads*h.threads), s.open - n,
		}
		if !found || slices.Compare(r[:], best[:]) < 0 {
			best, found = r, true
		}
	}
	return best, found
}

// A score tells how often a scheduler reached the optimum for single claims, in
// percent. Each field adds one criterion to those of the field before: NUMA
// nodes and sockets (nodes), caches (caches), split cores (split), and the free
// CPUs that are left in the caches (left).
type score struct{ nodes, caches, split, left float64 }

// placeSingle lets a scheduler place single claims, on machines in random states.
func placeSingle(f *frame, m maker, tries int, seed uint64) (score, error) {
	rnd := rand.New(rand.NewPCG(seed, 19))
	var hit [len(rating{})]int
	asked := 0
	for asked < tries {
		h := newHost(f, occupied(rnd, f))
		n := 1 + rnd.IntN(16)
		want, can := optimum(h, n)
		if !can {
			continue
		}
		asked++
		r := m.make(f, []*host{h})
		if err := r.begin(0, h.closed); err != nil {
			return score{}, err
		}
		c := &claim{id: "p", cpus: n, request: unit.CPUs(n)}
		set, ok := r.take(0, c)
		if !ok || set.Len() != n || !set.Intersect(h.closed).Empty() {
			return score{}, fmt.Errorf("%s: %d CPUs are wanted where %v are taken; the choice is %v", m.name, n, h.closed, set)
		}
		got := f.rate(h.free, set)
		for i := range hit {
			if slices.Equal(got[:i+1], want[:i+1]) {
				hit[i]++
			}
		}
	}
	of := func(i int) float64 { return 100 * float64(hit[i]) / float64(asked) }
	return score{nodes: of(1), caches: of(2), split: of(3), left: of(4)}, nil
}

// maxPlaced returns the largest number of claims that fit into single caches, by
// branch and bound. room is the number of free CPUs of each cache.
func maxPlaced(room []int, claims []int) int {
	claims = slices.Clone(claims)
	slices.Sort(claims) // small claims first, so that the first solution is a good one
	room = slices.Clone(room)
	best := 0
	var try func(i, inside int)
	try = func(i, inside int) {
		best = max(best, inside)
		if i == len(claims) || inside+len(claims)-i <= best {
			return
		}
		seen := map[int]bool{}
		for g := range room {
			if room[g] < claims[i] || seen[room[g]] {
				continue // a cache with the same room gives the same result
			}
			seen[room[g]] = true
			room[g] -= claims[i]
			try(i+1, inside+1)
			room[g] += claims[i]
		}
		try(i+1, inside)
	}
	try(0, 0)
	return best
}

// sequences lets a scheduler place up to eight claims on one machine, one after
// the other. It returns the number of claims within one cache, in percent of the
// largest number that is possible if all claims are known from the start.
func sequences(f *frame, m maker, tries int, seed uint64) (float64, error) {
	rnd := rand.New(rand.NewPCG(seed, 20))
	got, possible := 0, 0
	for range tries {
		h := newHost(f, occupied(rnd, f))
		var list []int
		for free := h.open[machineLevel][0]; len(list) < 8 && free > 0; {
			n := min(1+rnd.IntN(f.size(cacheLevel)), free)
			list = append(list, n)
			free -= n
		}
		possible += maxPlaced(h.open[cacheLevel], list)
		r := m.make(f, []*host{h})
		if err := r.begin(0, h.closed); err != nil {
			return 0, err
		}
		for i, n := range list {
			set, ok := r.take(0, &claim{id: fmt.Sprint("p", i), cpus: n, request: unit.CPUs(n)})
			if !ok || set.Len() != n || !set.Intersect(h.closed).Empty() {
				return 0, fmt.Errorf("%s: %d CPUs are wanted where %v are taken; the choice is %v", m.name, n, h.closed, set)
			}
			if f.rate(h.free, set)[2] == 1 {
				got++
			}
			for c := range set.All() {
				h.set(int(c), false)
			}
		}
	}
	return 100 * float64(got) / float64(possible), nil
}
