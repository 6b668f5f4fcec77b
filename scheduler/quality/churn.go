package main

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"

	"tenon.sh/tenon/internal/model/unit"
)

// sizes are the numbers of CPUs of the claims in a trace. Each entry has the
// same probability.
var sizes = []int{1, 2, 2, 2, 3, 4, 4, 4, 4, 6, 8, 8, 8, 12, 16, 16}

// These constants describe the lifetimes of pods: a Pareto distribution between two bounds.
const (
	shape             = 1.5
	shortest, longest = 1.0, 20.0
)

// A trace describes the random pods of one run.
type trace struct {
	load     float64 // mean number of CPUs that claims demand, divided by the CPUs of the cluster
	pools    float64 // fraction of the pods that have no CPUs of their own
	arrivals int
	warm     int // number of first arrivals that the figures ignore
	seed     uint64
}

// source generates the claims of a trace. Two sources of the same trace
// generate the same claims.
type source struct {
	*rand.Rand
	trace
	made int
}

func (t trace) source() *source { return &source{Rand: rand.New(rand.NewPCG(t.seed, 17)), trace: t} }

func (s *source) claim() *claim {
	n := sizes[s.IntN(len(sizes))]
	c := &claim{id: fmt.Sprint("p", s.made), cpus: n, request: unit.CPUs(n)}
	s.made++
	if s.Float64() < s.pools {
		c.cpus, c.request = 0, unit.CPUs(n)/2
	}
	c.lives = pareto(s.Float64(), shape)
	return c
}

// pareto returns the quantile u of a Pareto distribution of lifetimes with the
// given shape.
func pareto(u, shape float64) float64 {
	low, high := math.Pow(shortest, -shape), math.Pow(longest, -shape)
	return math.Pow(low-u*(low-high), -1/shape)
}

// runningClaim returns a claim that already runs when the trace begins. At such
// a time, a claim with twice the lifetime is twice as likely to run. A random
// part of its lifetime is over.
func (s *source) runningClaim() *claim {
	c := s.claim()
	c.lives = pareto(s.Float64(), shape-1) * s.Float64()
	return c
}

// meanLife returns the mean lifetime of a claim.
func meanLife() float64 {
	scale := math.Pow(shortest, shape) / (1 - math.Pow(shortest/longest, shape))
	return scale * shape / (shape - 1) * (math.Pow(shortest, 1-shape) - math.Pow(longest, 1-shape))
}

// meanCPUs returns the mean request of a claim, in CPUs.
func (t trace) meanCPUs() float64 {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	return float64(sum) / float64(len(sizes)) * (1 - t.pools/2)
}

// An end is the time at which a running claim ends.
type end struct {
	at   float64
	c    *claim
	node int
	set  unit.CPUSet
}

type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(a, b int) bool { return e[a].at < e[b].at }
func (e ends) Swap(a, b int)      { e[a], e[b] = e[b], e[a] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// figures are the results of one run, in percent.
type figures struct {
	oneCache float64 // claims with CPUs of one L3 cache, of those that a cache can hold
	oneNode  float64 // claims with CPUs of one NUMA node, of those that a node can hold
	split    float64 // claims that share more cores with other claims than an odd number of CPUs needs
	waited   float64 // pods that waited although the cluster had enough free CPUs
	stranded float64 // CPUs that are stranded (see countStranded), as a mean over sizes
	refused  float64 // pods that a node refused after the scheduler had chosen the node
}

// A cluster holds the nodes on which a trace runs.
type cluster struct {
	*frame
	hosts   []*host
	rival   rival
	rnd     *rand.Rand // chooses among nodes of equal score
	next    int        // the node at which the next search begins
	now     float64
	ends    ends
	waiting []*claim
	count   bool
	sum     struct{ claims, pods, cacheable, inCache, nodeable, inNode, split, waited, refused int }
	wasted  struct{ share, samples float64 }
}

func newCluster(f *frame, nodes int, m maker, seed uint64) (*cluster, error) {
	c := &cluster{frame: f, rnd: rand.New(rand.NewPCG(seed, 18))}
	for range nodes {
		c.hosts = append(c.hosts, newHost(f, f.reservedCPUs()))
	}
	c.rival = m.make(f, c.hosts)
	for i := range c.hosts {
		if err := c.rival.begin(i, f.reservedCPUs()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// enoughNodes returns a number of nodes with room. When kube-scheduler has
// found so many, it stops its search and scores them.
func enoughNodes(nodes int) int { return max(100, nodes*max(5, 50-nodes/125)/100) }

// choose returns the node for a claim: a random one of the nodes with the
// highest score. It returns false if no node has room.
func (k *cluster) choose(c *claim) (int, bool) {
	best, most, found, equal := 0, 0.0, 0, 0
	looked := 0
	for ; looked < len(k.hosts) && found < enoughNodes(len(k.hosts)); looked++ {
		at := (k.next + looked) % len(k.hosts)
		if !k.rival.room(at, c) {
			continue
		}
		found++
		switch w := k.rival.worth(at, c); {
		case found == 1 || w > most:
			best, most, equal = at, w, 1
		case w == most:
			if equal++; k.rnd.IntN(equal) == 0 {
				best = at
			}
		}
	}
	k.next = (k.next + looked) % len(k.hosts)
	return best, found > 0
}

// place runs a claim on a node. It returns false if the node refuses the claim.
func (k *cluster) place(at int, c *claim) (bool, error) {
	set, ok := k.rival.take(at, c)
	if !ok {
		if k.count {
			k.sum.refused++
		}
		return false, nil
	}
	h := k.hosts[at]
	if set.Len() != c.cpus || !set.Intersect(h.closed).Empty() {
		return false, fmt.Errorf("%d CPUs are wanted on node %d, and %v are given, of which %v are not free", c.cpus, at, set, set.Intersect(h.closed))
	}
	if k.count {
		k.judge(h, c, set)
	}
	for cpu := range set.All() {
		h.set(int(cpu), false)
	}
	if c.cpus == 0 {
		h.shared += c.request
	}
	heap.Push(&k.ends, end{k.now + c.lives, c, at, set})
	return true, nil
}

func (k *cluster) judge(h *host, c *claim, set unit.CPUSet) {
	if c.cpus == 0 {
		return
	}
	r := k.rate(h.free, set)
	s := &k.sum
	s.claims++
	if c.cpus <= k.size(cacheLevel) {
		s.cacheable++
		if r[2] == 1 {
			s.inCache++
		}
	}
	if c.cpus <= k.size(numaLevel) {
		s.nodeable++
		if r[0] == 1 {
			s.inNode++
		}
	}
	if r[3] > c.cpus%k.threads {
		s.split++
	}
}

// leave ends the running claim with the earliest end. Then it tries to place
// the waiting claims on the same node, in order.
func (k *cluster) leave() error {
	e := heap.Pop(&k.ends).(end)
	k.now = e.at
	h := k.hosts[e.node]
	for cpu := range e.set.All() {
		h.set(int(cpu), true)
	}
	if e.c.cpus == 0 {
		h.shared -= e.c.request
	}
	k.rival.leave(e.node, e.c)
	var still []*claim
	for _, c := range k.waiting {
		placed := false
		if k.rival.room(e.node, c) {
			var err error
			if placed, err = k.place(e.node, c); err != nil {
				return err
			}
		}
		if !placed {
			still = append(still, c)
		}
	}
	k.waiting = still
	return nil
}

// arrive places a new claim. If no node has room, the claim waits.
func (k *cluster) arrive(c *claim) error {
	free := unit.MilliCPU(0)
	for _, h := range k.hosts {
		free += h.spare()
	}
	if k.count {
		k.sum.pods++
	}
	if at, ok := k.choose(c); ok {
		if placed, err := k.place(at, c); err != nil || placed {
			return err
		}
	}
	k.waiting = append(k.waiting, c)
	if k.count && free >= c.request {
		k.sum.waited++
	}
	return nil
}

// run runs a trace on a cluster with nodes of one kind.
func run(f *frame, nodes int, m maker, t trace) (figures, error) {
	k, err := newCluster(f, nodes, m, t.seed)
	if err != nil {
		return figures{}, err
	}
	if err := k.follow(t); err != nil {
		return figures{}, err
	}
	return k.figures(), nil
}

// follow starts and ends the pods of a trace on the cluster.
func (k *cluster) follow(t trace) error {
	s := t.source()
	capacity := float64(len(k.hosts) * k.hosts[0].usable)
	for have := 0.0; have < t.load*capacity; {
		c := s.runningClaim()
		have += float64(c.request) / 1000
		if err := k.arrive(c); err != nil {
			return err
		}
	}
	gap := t.meanCPUs() * meanLife() / (t.load * capacity)
	for i, at := 0, 0.0; i < t.arrivals; i++ {
		at += s.ExpFloat64() * gap
		for len(k.ends) > 0 && k.ends[0].at <= at {
			if err := k.leave(); err != nil {
				return err
			}
		}
		k.now, k.count = at, i >= t.warm
		if err := k.arrive(s.claim()); err != nil {
			return err
		}
		if k.count && i%50 == 0 {
			k.sample(capacity)
		}
	}
	return nil
}

// sample adds the present number of stranded CPUs to the mean.
func (k *cluster) sample(capacity float64) {
	all, of := 0, 0
	for _, n := range sizes {
		if n > k.size(cacheLevel) {
			continue
		}
		of++
		for _, h := range k.hosts {
			all += h.countStranded(n)
		}
	}
	k.wasted.share += float64(all) / float64(of) / capacity
	k.wasted.samples++
}

func (k *cluster) figures() figures {
	percent := func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
	s := k.sum
	return figures{
		oneCache: percent(s.inCache, s.cacheable), oneNode: percent(s.inNode, s.nodeable), split: percent(s.split, s.claims),
		waited: percent(s.waited, s.pods), refused: percent(s.refused, s.pods), stranded: 100 * k.wasted.share / k.wasted.samples,
	}
}
