package past

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// Sample draws n machines by a seed, sorted by name. Each pool, and in it each size, has
// its share of them, so that the sample has the capacity of the fleet. If n is 0 or not
// less than the number of machines, all are in it.
func Sample(machines []Machine, n int, seed uint64) []Machine {
	all := slices.SortedFunc(slices.Values(machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	if n <= 0 || n >= len(all) {
		return all
	}
	type kind struct {
		pool string
		cpu  unit.MilliCPU
	}
	groups := map[kind][]Machine{}
	for _, m := range all {
		k := kind{m.Pool, m.Size.CPU}
		groups[k] = append(groups[k], m)
	}
	kinds := make([]kind, 0, len(groups))
	for k := range groups {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Or(strings.Compare(a.pool, b.pool), cmp.Compare(a.cpu, b.cpu)) })
	rnd := rand.New(rand.NewPCG(seed, 0))
	// Each group has whole numbers of its share; those with the largest rests have
	// one more, and of equal rests the one that comes first.
	rest := slices.Clone(kinds)
	size := func(k kind) int { return len(groups[k]) * n }
	slices.SortStableFunc(rest, func(a, b kind) int { return cmp.Compare(size(b)%len(all), size(a)%len(all)) })
	left := n
	for _, k := range kinds {
		left -= size(k) / len(all)
	}
	drawn := make([]Machine, 0, n)
	for _, k := range kinds {
		take := size(k) / len(all)
		if slices.Index(rest, k) < left {
			take++
		}
		g := groups[k]
		rnd.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i] })
		drawn = append(drawn, g[:take]...)
	}
	slices.SortFunc(drawn, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	return drawn
}
