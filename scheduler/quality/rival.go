package main

import (
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A claim is the demand of one pod: CPUs of its own, or an amount of CPU on
// CPUs that pods share (a pool).
type claim struct {
	id      string
	cpus    int           // 0: the claim is in a pool
	request unit.MilliCPU // CPU request of the pod
	lives   float64
}

// A rival is one of the compared schedulers. It filters and scores the nodes of
// a cluster for a claim. It also chooses the CPUs, although with some schedulers
// the node does that.
type rival interface {
	// begin adds a node on which all CPUs are free, except the closed ones.
	begin(at int, closed unit.CPUSet) error
	// room reports whether the scheduler may send the claim to the node.
	room(at int, c *claim) bool
	// worth returns the score of a node for a claim.
	worth(at int, c *claim) float64
	// take chooses the CPUs of a claim. It returns false if the node refuses
	// the claim. For a claim in a pool, it returns no CPUs.
	take(at int, c *claim) (unit.CPUSet, bool)
	// leave ends a claim.
	leave(at int, c *claim)
}

// A maker makes one of the compared schedulers. hosts are the nodes of its
// cluster, with their free CPUs, and f is the hardware of each node.
type maker struct {
	name string
	make func(f *frame, hosts []*host) rival
}

// makers make all compared schedulers. The first is Tenon with default settings.
var makers = []maker{
	{"tenon", func(_ *frame, h []*host) rival { return newTenon(h, spread, tenonWeight) }},
	{"tenon-weight-1", func(_ *frame, h []*host) rival { return newTenon(h, spread, 1) }},
	{"tenon-weight-20", func(_ *frame, h []*host) rival { return newTenon(h, spread, 20) }},
	{"tenon-packed", func(_ *frame, h []*host) rival { return newTenon(h, pack, tenonWeight) }},
	{"fragmentation", func(f *frame, h []*host) rival { return newFragmentation(f, h) }},
	{"best-fit", func(_ *frame, h []*host) rival { return &byDomain{hosts: h} }},
	{"kubelet", func(f *frame, h []*host) rival { return newKubelet(f, h, spread, false) }},
	{"kubelet-aligned", func(f *frame, h []*host) rival { return newKubelet(f, h, spread, true) }},
	{"kubelet-packed", func(f *frame, h []*host) rival { return newKubelet(f, h, pack, true) }},
	{"koordinator", func(_ *frame, h []*host) rival { return &koordinator{hosts: h} }},
	{"koordinator-packed", func(_ *frame, h []*host) rival { return &koordinator{hosts: h, packed: true} }},
}

// A nodeOrder scores a node from 0 to 100. Like kube-scheduler, it uses only
// requested amounts.
type nodeOrder func(h *host, c *claim) float64

// spread is LeastAllocated, the default score of kube-scheduler. pack is
// MostAllocated.
func spread(h *host, c *claim) float64 {
	return float64(100 * (h.spare() - c.request) / unit.CPUs(h.usable))
}

func pack(h *host, c *claim) float64 {
	return float64(100 * (unit.CPUs(h.usable) - h.spare() + c.request) / unit.CPUs(h.usable))
}

// tenon is the ledger of Tenon's scheduler, with its filter and its score.
type tenon struct {
	ledger *place.Ledger
	hosts  []*host
	names  []string
	nodes  nodeOrder
	weight float64
}

// tenonWeight is the weight of the plugin's score in the configuration of
// docs/scheduler.md. The score by amounts has the weight 1.
const tenonWeight = 5

func newTenon(hosts []*host, nodes nodeOrder, weight float64) *tenon {
	t := &tenon{ledger: place.New(), hosts: hosts, nodes: nodes, weight: weight}
	for i := range hosts {
		t.names = append(t.names, fmt.Sprint("n", i))
	}
	return t
}

func demand(c *claim) cpus.PodRequest {
	if c.cpus == 0 {
		return cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: c.request}}
	}
	return cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: c.cpus}}
}

func (t *tenon) begin(at int, closed unit.CPUSet) error {
	t.ledger.Learn(t.names[at], place.Report{Topology: t.hosts[at].topology, Reserved: closed})
	return nil
}

func (t *tenon) room(at int, c *claim) bool {
	d := demand(c)
	return t.hosts[at].spare() >= c.request && t.ledger.View(t.names[at]).Room(&d) == cpus.Fits
}

func (t *tenon) worth(at int, c *claim) float64 {
	d := demand(c)
	return t.weight*float64(t.ledger.View(t.names[at]).Worth(&d)) + t.nodes(t.hosts[at], c)
}

func (t *tenon) take(at int, c *claim) (unit.CPUSet, bool) {
	p := place.Pod{UID: place.UID(c.id), Request: demand(c)}
	contract, why := t.ledger.Assume(p, t.names[at])
	if why != cpus.Fits {
		return unit.CPUSet{}, false
	}
	t.ledger.Confirm(p, t.names[at], contract.Choice)
	if c.cpus == 0 {
		return unit.CPUSet{}, true
	}
	return contract.CPUs, true
}

func (t *tenon) leave(_ int, c *claim) { t.ledger.RemovePod(place.UID(c.id)) }

// byDomain is plain best fit over the caches, NUMA nodes, sockets and machines of
// the cluster. It takes the smallest kind of group with enough free CPUs. Of the
// groups of this kind, it takes the one with the fewest free CPUs.
type byDomain struct{ hosts []*host }

func (*byDomain) begin(int, unit.CPUSet) error { return nil }
func (*byDomain) leave(int, *claim)            {}

func (b *byDomain) room(at int, c *claim) bool { return b.hosts[at].spare() >= c.request }

func (b *byDomain) worth(at int, c *claim) float64 {
	h := b.hosts[at]
	if c.cpus == 0 {
		return -float64(h.spare())
	}
	l, g := tightest(h, c.cpus)
	return -1e4*float64(l) - float64(h.open[l][g])
}

func tightest(h *host, n int) (level, int) {
	for l := range machineLevel {
		best := -1
		for g, open := range h.open[l] {
			if open >= n && (best < 0 || open < h.open[l][best]) {
				best = g
			}
		}
		if best >= 0 {
			return l, best
		}
	}
	return machineLevel, 0
}

func (b *byDomain) take(at int, c *claim) (unit.CPUSet, bool) {
	h := b.hosts[at]
	if c.cpus == 0 {
		return unit.CPUSet{}, true
	}
	l, g := tightest(h, c.cpus)
	t := taker{host: h, left: c.cpus}
	t.takeCores(h.groups[l][g])
	t.takeThreads(h.groups[l][g])
	return t.set, t.left == 0
}

// fragmentation is Tenon with another tie-break. Of the groups with enough free
// CPUs, Tenon takes the one with the fewest. fragmentation takes the cache in
// which the number of useless CPUs increases least. A free CPU is useless if no
// other claim of the trace can use it within one cache.
type fragmentation struct {
	hosts []*host
	m     *pick.Map
	lost  []float64 // useless CPUs of a cache by its free CPUs, as a mean over the sizes of claims
}

func newFragmentation(f *frame, hosts []*host) *fragmentation {
	b := &fragmentation{hosts: hosts, m: pick.Compile(f.topology), lost: make([]float64, f.size(cacheLevel)+1)}
	for free := range b.lost {
		for _, n := range sizes {
			b.lost[free] += float64(free%n) / float64(len(sizes))
		}
	}
	return b
}

func (*fragmentation) begin(int, unit.CPUSet) error { return nil }
func (*fragmentation) leave(int, *claim)            {}

func (b *fragmentation) room(at int, c *claim) bool { return b.hosts[at].spare() >= c.request }

// bestCache returns the cache for n CPUs. It prefers a cache with enough whole
// cores. It returns false if no cache has n free CPUs.
func (b *fragmentation) bestCache(h *host, n int) (int, bool) {
	best, found := 0, false
	for g, open := range h.open[cacheLevel] {
		if open < n {
			continue
		}
		if !found || b.better(h, g, best, n) {
			best, found = g, true
		}
	}
	return best, found
}

func (b *fragmentation) better(h *host, g, than, n int) bool {
	if is, was := wholeEnough(h, cacheLevel, g, n), wholeEnough(h, cacheLevel, than, n); is != was {
		return is
	}
	is, was := b.added(h, g, n), b.added(h, than, n)
	return is < was || is == was && h.open[cacheLevel][g] < h.open[cacheLevel][than]
}

// added returns how many more CPUs of a cache become useless when a claim takes
// n of its CPUs.
func (b *fragmentation) added(h *host, g, n int) float64 {
	open := h.open[cacheLevel][g]
	return b.lost[open-n] - b.lost[open]
}

func wholeEnough(h *host, l level, g, n int) bool {
	return h.whole[l][g] >= n/h.threads*h.threads
}

// worth returns Tenon's score with the tie-break of fragmentation.
func (b *fragmentation) worth(at int, c *claim) float64 {
	h := b.hosts[at]
	if c.cpus == 0 {
		return spread(h, c)
	}
	l, tight, whole := cacheLevel, 0.0, 0
	g, ok := b.bestCache(h, c.cpus)
	if ok {
		span := slices.Max(b.lost)
		tight = 1 - (b.added(h, g, c.cpus)+span)/(2*span)
	} else {
		l, g = tightest(h, c.cpus)
		tight = 4 / float64(4+h.open[l][g]-c.cpus)
	}
	if wholeEnough(h, l, g, c.cpus) {
		whole = 1
	}
	of := [levels][2][2]float64{{{49, 10}, {60, 40}}, {{21, 8}, {30, 18}}, {{6, 5}, {12, 8}}, {{1, 1}, {3, 2}}}[l][whole]
	return tenonWeight*math.Floor(of[0]+of[1]*tight) + spread(h, c)
}

func (b *fragmentation) take(at int, c *claim) (unit.CPUSet, bool) {
	h := b.hosts[at]
	if c.cpus == 0 {
		return unit.CPUSet{}, true
	}
	closed := h.closed
	if best, ok := b.bestCache(h, c.cpus); ok {
		for cpu := range h.cpus {
			if h.at[cacheLevel][cpu] != best {
				closed = closed.With(unit.CPU(cpu))
			}
		}
	}
	o, why := b.m.Fit(b.m.Seats(closed, 0, nil), cpus.Request{Policy: cpus.Exclusive, CPUs: c.cpus})
	return o.CPUs, why == cpus.Fits
}

// A taker takes free CPUs of a host in the order of their numbers.
type taker struct {
	*host
	set  unit.CPUSet
	left int
}

func (t *taker) add(c int) {
	if t.left > 0 && t.free[c] && !t.set.Has(unit.CPU(c)) {
		t.set = t.set.With(unit.CPU(c))
		t.left--
	}
}

// takeCores takes wholly free cores while the claim needs all CPUs of a core.
func (t *taker) takeCores(of []int) {
	for _, c := range of {
		if t.left >= t.host.threads && t.wholeCore(c) {
			for _, thread := range t.frame.cores[t.coreOf[c]] {
				t.add(thread)
			}
		}
	}
}

// takeThreads takes CPUs of split cores first, and then any other CPUs.
func (t *taker) takeThreads(of []int) {
	for _, split := range []bool{true, false} {
		for _, c := range of {
			if t.wholeCore(c) != split {
				t.add(c)
			}
		}
	}
}
