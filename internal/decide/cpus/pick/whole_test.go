package pick

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
)

// twoNodesASocket returns a topology with two NUMA nodes in each socket.
func twoNodesASocket(sockets, caches, cores, threads int) node.Topology {
	topo := machine(2*sockets, caches, cores, threads)
	for i := range topo.CPUs {
		topo.CPUs[i].Socket /= 2
	}
	return topo
}

// TestAChoiceKeepsASocketWhole takes a NUMA node of a socket that is in use, so
// that a later claim of all CPUs of a socket still fits into one.
func TestAChoiceKeepsASocketWhole(t *testing.T) {
	topo := twoNodesASocket(2, 1, 10, 2)
	for name, c := range map[string]struct {
		taken string
		ask   cpus.Request
		want  string
	}{
		"node 0 is taken": {"0-19", cpus.Request{Policy: cpus.Exclusive, CPUs: 20}, "20-39"},
		"node 1 is taken": {"20-39", cpus.Request{Policy: cpus.Exclusive, CPUs: 20}, "0-19"},
		"node 3 is taken": {"60-79", cpus.Request{Policy: cpus.Exclusive, CPUs: 20}, "40-59"},
		"a part of node 1 is taken, and less is asked for": {"20-29", cpus.Request{Policy: cpus.Exclusive, CPUs: 8}, "32-39"},
		"seats":                              {"40-59", cpus.Request{Policy: cpus.Shared, CPUs: 4, CPU: 4000}, "60-63"},
		"a pool":                             {"40-59", cpus.Request{Policy: cpus.Pool, CPU: 4000}, "60-79"},
		"three nodes: two whole and a third": {"", cpus.Request{Policy: cpus.Exclusive, CPUs: 60}, "20-79"},
	} {
		m := Compile(topo)
		o, why := m.Fit(m.Seats(set(t, c.taken), 0, nil), c.ask)
		if why != cpus.Fits || o.CPUs.String() != c.want {
			t.Errorf("%s: %v (%q), want %s", name, o.CPUs, why, c.want)
		}
	}
}

// A remainder says what a choice of own CPUs is worth, and which domains it leaves. Of
// two equally good choices, the one with the larger remainder is better.
type remainder struct {
	good []int // the smaller, the better: see finder
	left []int // open CPUs of each socket, in descending order, and then of each NUMA node
}

func remainderOf(m *Map, open, set uint64) remainder {
	word := func(lo, hi int32) uint64 { return (1<<hi - 1) &^ (1<<lo - 1) }
	var used, room [cpus.Levels]int
	var r remainder
	for l := cpus.Socket; l < cpus.Levels; l++ {
		var left []int
		for _, p := range m.domains[m.first[l]:m.first[l+1]] {
			w := word(p.lo, p.hi)
			left = append(left, bits.OnesCount64(open&^set&w))
			if set&w != 0 {
				used[l]++
				room[l] += bits.OnesCount64(open & w)
			}
		}
		if l < cpus.L3 {
			slices.SortFunc(left, func(a, b int) int { return b - a })
			r.left = append(r.left, left...)
		}
	}
	split, broken := 0, 0
	for _, c := range m.cores {
		if w := word(c.lo, c.hi); set&w != w {
			split += bits.OnesCount64(set & w)
			if set&w != 0 && open&w == w {
				broken = 1
			}
		}
	}
	r.good = []int{used[cpus.NUMA], used[cpus.Socket], used[cpus.L3], split, broken, room[cpus.L3], room[cpus.NUMA]}
	return r
}

// TestNoEqualChoiceLeavesALargerSocket compares choices with all sets that are
// equally good, on random machines of up to 16 CPUs. None may leave more CPUs in
// one socket, or, if the sockets are equal, in one NUMA node. Only where a
// claim needs several of them may a few choices leave less: which CPUs it takes
// from caches that it does not need in full is decided one core after another.
// TENON_TEST_LONG=1 tries more.
func TestNoEqualChoiceLeavesALargerSocket(t *testing.T) {
	rnd := rand.New(rand.NewPCG(63, 64))
	tries := 300
	if os.Getenv("TENON_TEST_LONG") != "" {
		tries = 5000
	}
	claims, worse := 0, 0
	for try := range tries {
		topo := anyMachine(rnd, 16)
		for i := range topo.CPUs {
			topo.CPUs[i].Kind = 0
		}
		m := Compile(topo)
		sockets := m.first[cpus.NUMA] - m.first[cpus.Socket]
		s := m.Seats(some(rnd, topo.All()), 0, nil)
		for n := 1; n <= m.Open(s).Len(); n++ {
			o, why := m.Fit(s, cpus.Request{Policy: cpus.Exclusive, CPUs: n})
			if why != cpus.Fits {
				t.Fatalf("try %d: %d of %v: %q", try, n, m.Open(s), why)
			}
			claims++
			got := remainderOf(m, s.open[0], m.maskOf(o.CPUs)[0])
			best, at := got, uint64(0)
			for set := uint64(1)<<n - 1; set < 1<<len(m.cpus); {
				if set&^s.open[0] == 0 {
					if r := remainderOf(m, s.open[0], set); slices.Equal(r.good, got.good) && slices.Compare(r.left, best.left) > 0 {
						best, at = r, set
					}
				}
				low := set & -set
				up := set + low
				set = (set^up)>>2/low | up
			}
			switch {
			case at == 0:
			case o.Sockets > 1, o.Nodes > 1 && slices.Equal(got.left[:sockets], best.left[:sockets]):
				worse++
			default:
				t.Fatalf("try %d: %d CPUs of %v get %v, which leaves %v; %v is equally good and leaves %v\n%+v", try, n, m.Open(s), o.CPUs, got.left, m.cpusOf(mask{at}), best.left, topo)
			}
		}
	}
	t.Logf("%d claims; %d choices of several sockets or NUMA nodes leave less than another", claims, worse)
	if worse*100 > claims {
		t.Errorf("%d of %d choices leave less than another", worse, claims)
	}
}
