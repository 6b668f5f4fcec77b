package topology

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A shape describes a machine by numbers. nodes is the number of NUMA nodes of
// a socket, caches the number of L3 caches of a NUMA node, and cores the number
// of cores of a cache. If wide is set, an L3 cache spans the NUMA nodes of its
// socket instead, as with sub-NUMA clusters.
type shape struct {
	sockets, nodes, caches, cores, threads int
	wide                                   bool
	split                                  bool // threads of a core are numbered half the machine apart
	stride                                 int  // all CPU numbers are multiples of stride; 0 means 1
}

func (s shape) String() string {
	return fmt.Sprintf("%dx%dx%dx%dx%d wide=%v split=%v", s.sockets, s.nodes, s.caches, s.cores, s.threads, s.wide, s.split)
}

// machine makes the machine of a shape.
func (s shape) machine() machine {
	m := machine{memory: map[int]int{}}
	all := s.sockets * s.nodes * s.caches * s.cores
	for thread := range s.threads {
		for core := range all {
			l3 := core / s.cores
			numa := l3 / s.caches
			socket := numa / s.nodes
			if s.wide {
				l3 = socket
			}
			id := core*s.threads + thread
			if s.split {
				id = thread*all + core
			}
			m.cpus = append(m.cpus, sysCPU{
				id: id * max(s.stride, 1), core: core, l3: l3, numa: numa, socket: socket,
				coreID: core % (s.nodes * s.caches * s.cores), pkgID: socket, capacity: 1024,
			})
		}
	}
	for n := range s.sockets * s.nodes {
		m.nodes = append(m.nodes, n)
		m.memory[n] = 32 << 20
	}
	return m
}

// disturb changes a machine, and returns the name of the change. Each change
// occurs in real machines or guests.
func disturb(r *rand.Rand, m machine) (machine, string) {
	what := ""
	add := func(name string, probability float64, do func()) {
		if r.Float64() < probability {
			what += " " + name
			do()
		}
	}
	each := func(do func(c *sysCPU)) {
		for i := range m.cpus {
			do(&m.cpus[i])
		}
	}
	add("core_id repeats on each cache", 0.3, func() { each(func(c *sysCPU) { c.coreID = c.core % 2 }) })
	add("no sockets", 0.15, func() { each(func(c *sysCPU) { c.pkgID = -1 }) })
	add("socket numbers with holes", 0.15, func() {
		each(func(c *sysCPU) {
			if c.pkgID >= 0 {
				c.pkgID *= 36
			}
		})
	})
	add("names of Linux 5.2", 0.2, func() { m.oldNames = true })
	add("no caches", 0.2, func() { m.noCaches = true })
	add("a cache for each NUMA node", 0.1, func() { each(func(c *sysCPU) { c.l3 = c.numa }) })
	add("no NUMA", 0.15, func() {
		m.nodes = nil
		each(func(c *sysCPU) { c.numa = 0 })
	})
	add("memory without CPUs", 0.2, func() {
		if len(m.nodes) > 0 {
			m.nodes = append(m.nodes, len(m.nodes)+3)
			m.memory[m.nodes[len(m.nodes)-1]] = 512 << 20
		}
	})
	add("CPUs without memory", 0.2, func() {
		if len(m.nodes) > 1 {
			delete(m.memory, m.nodes[1])
		}
	})
	add("offline CPUs", 0.3, func() { each(func(c *sysCPU) { c.offline = c.id > 0 && r.IntN(4) == 0 }) })
	add("a CPU without topology", 0.2, func() { m.cpus[len(m.cpus)-1].bare = true })
	add("isolated CPUs", 0.2, func() { m.isolated = fmt.Sprint(m.cpus[len(m.cpus)-1].id) })
	return m, what
}

// TestGeneratedMachinesAreReadAsTheReferenceReadsThem reads machines of many
// shapes. A reference reads other files of the same tree, and the results must
// be equal.
func TestGeneratedMachinesAreReadAsTheReferenceReadsThem(t *testing.T) {
	shapes := []shape{
		{sockets: 1, nodes: 1, caches: 1, cores: 2, threads: 1},
		{sockets: 1, nodes: 1, caches: 2, cores: 4, threads: 2, split: true},
		{sockets: 2, nodes: 1, caches: 1, cores: 26, threads: 2, split: true},  // Xeon
		{sockets: 2, nodes: 4, caches: 2, cores: 4, threads: 2, split: true},   // EPYC, NPS4
		{sockets: 2, nodes: 2, caches: 1, cores: 24, threads: 1},               // Kunpeng
		{sockets: 1, nodes: 4, caches: 1, cores: 15, threads: 2, wide: true},   // sub-NUMA clusters
		{sockets: 2, nodes: 1, caches: 1, cores: 12, threads: 8, stride: 1},    // POWER, SMT8
		{sockets: 2, nodes: 1, caches: 1, cores: 4, threads: 4, stride: 8},     // numbers with holes
		{sockets: 2, nodes: 1, caches: 4, cores: 2, threads: 1, split: true},   // LLC as NUMA
		{sockets: 1, nodes: 1, caches: 12, cores: 1, threads: 3, wide: true},   // odd
		{sockets: 16, nodes: 1, caches: 1, cores: 64, threads: 2, split: true}, // 2,048 CPUs
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for _, s := range shapes {
		rounds := min(max(240/(s.sockets*s.nodes*s.caches*s.cores*s.threads), 1), 8)
		for i := range rounds {
			m, what := s.machine(), " clean"
			if i > 0 || rounds == 1 {
				m, what = disturb(r, m)
			}
			sys := writeSysfs(t, m)
			got, err := New(proc.FS{Sys: sys}).Read(time.Now())
			if err != nil {
				t.Fatalf("%v%s (seed %d): %v", s, what, seed, err)
			}
			wrong := differences(got, placesIn(t, sys))
			wrong = append(wrong, againstTheTruth(got, m)...)
			if len(wrong) > 5 {
				wrong = wrong[:5]
			}
			for _, w := range wrong {
				t.Errorf("%v%s (seed %d): %s", s, what, seed, w)
			}
		}
	}
}

// againstTheTruth compares a topology with the machine from which the files
// were made.
func againstTheTruth(got node.Topology, m machine) []string {
	var all []string
	truth := map[unit.CPU]sysCPU{}
	for _, c := range m.cpus {
		truth[unit.CPU(c.id)] = c
	}
	for i, a := range got.CPUs {
		for _, b := range got.CPUs[i+1:] {
			x, y := truth[a.ID], truth[b.ID]
			same := x.core == y.core && !x.bare && !y.bare
			if (a.Core == b.Core) != same {
				all = append(all, fmt.Sprintf("CPUs %d and %d share a core: %v, want %v", a.ID, b.ID, a.Core == b.Core, same))
			}
		}
	}
	memory := 0
	for _, n := range m.nodes {
		if m.memory[n] > 0 {
			memory++
		}
	}
	if len(got.Memory) != memory {
		all = append(all, fmt.Sprintf("memory on %d NUMA nodes, want %d", len(got.Memory), memory))
	}
	if want := m.isolated; got.Isolated.String() != want && !truth[unit.CPU(len(m.cpus)-1)].offline {
		if set, _ := unit.ParseCPUSet(want); got.All().Contains(set) {
			all = append(all, fmt.Sprintf("isolated CPUs %q, want %q", got.Isolated, want))
		}
	}
	return all
}

// TestThisMachine compares the topology of the running kernel with the
// reference. It also runs in the guests of test/vm. They have two sockets, two
// dies, sibling threads, and a NUMA node without CPUs.
func TestThisMachine(t *testing.T) {
	got, err := New(proc.Default()).Read(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences(got, placesIn(t, "/sys")) {
		t.Error(d)
	}
	caches := map[node.CacheID]bool{}
	for _, c := range got.CPUs {
		caches[c.L3] = true
	}
	t.Logf("%d CPUs, SMT %v, %d caches, memory %v, isolated %q", len(got.CPUs), got.SMT(), len(caches), got.Memory, got.Isolated)
}
