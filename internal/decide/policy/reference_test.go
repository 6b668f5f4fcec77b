package policy

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A nodeCase is one input for both formulas. If the field have is empty, BE
// work starts with all CPUs.
type nodeCase struct {
	name      string
	topo      node.Topology
	threshold unit.Percent // 0: 65
	min       unit.Percent // 0: not set
	use       unit.MilliCPU
	on        string // where the service runs
	lse, lsr  string
	have      string
	lend      bool
	missing   bool // the counter of the service is missing in the last tick
	ticks     int  // number of ticks of one second; 0: until nothing changes
	remark    string
}

// binding is the work that is bound to CPUs, with the CPU sets of its pods.
type binding struct {
	class node.Class
	cpus  string
}

func (c nodeCase) bound() []binding {
	return slices.DeleteFunc([]binding{{node.LSE, c.lse}, {node.LSR, c.lsr}}, func(b binding) bool { return b.cpus == "" })
}

// reference is Koordinator's cpuset policy, written from its description. The
// number of CPUs is capacity × threshold − use of others, rounded up, and at
// least two. It grows by at most a tenth of the CPUs per tick. Koordinator
// takes CPUs from those of LSR pods and from the other CPUs, in proportion to
// the sizes of these two groups. In each group it takes the lowest core of each
// NUMA node in turn. The second result is the way in which Koordinator failed,
// or "".
func reference(c nodeCase, have unit.CPUSet) (unit.CPUSet, string) {
	if c.missing {
		return have, ""
	}
	capacity := unit.CPUs(len(c.topo.CPUs))
	suppress := capacity.Percent(c.threshold) - c.use
	if c.min > 0 {
		suppress = max(suppress, capacity.Percent(c.min))
	}
	n := max(int((suppress+999)/1000), 2)
	n = min(n, have.Len()+(len(c.topo.CPUs)+9)/10)
	candidates := c.topo.All().Minus(list(c.lse))
	lsr := candidates.Intersect(list(c.lsr))
	ls := candidates.Minus(lsr)
	if candidates.Empty() {
		return unit.CPUSet{}, "panics: integer divide by zero"
	}
	fromLSR := n * lsr.Len() / candidates.Len()
	set := referencePool(c.topo, lsr, fromLSR).Union(referencePool(c.topo, ls, n-fromLSR))
	if set.Empty() {
		return set, "an empty set: the kernel refuses it"
	}
	return set, ""
}

// referencePool takes n CPUs from a pool as Koordinator does. If the pool has
// fewer than n, it takes none.
func referencePool(t node.Topology, pool unit.CPUSet, n int) unit.CPUSet {
	var set unit.CPUSet
	if n > pool.Len() {
		return set
	}
	byNode := map[node.NUMANode][]node.LogicalCPU{}
	for _, c := range t.CPUs {
		if pool.Has(c.ID) {
			byNode[c.NUMA] = append(byNode[c.NUMA], c)
		}
	}
	var buckets [][]node.LogicalCPU
	for _, b := range byNode {
		slices.SortFunc(b, func(x, y node.LogicalCPU) int { return cmp.Or(cmp.Compare(x.Core, y.Core), cmp.Compare(x.ID, y.ID)) })
		buckets = append(buckets, b)
	}
	slices.SortFunc(buckets, func(x, y []node.LogicalCPU) int {
		return cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x[0].ID, y[0].ID))
	})
	take := func(each int) {
		for progress := true; progress; {
			progress = false
			for _, b := range buckets {
				for i := range b {
					free := i+each <= len(b) && b[i].Core == b[i+each-1].Core && !set.Has(b[i].ID) && !set.Has(b[i+each-1].ID)
					if free && set.Len()+each <= n {
						for _, c := range b[i : i+each] {
							set = set.With(c.ID)
						}
						progress = true
						break
					}
				}
			}
		}
	}
	take(2)
	take(1)
	return set
}

func list(s string) unit.CPUSet {
	set, err := unit.ParseCPUSet(s)
	if err != nil {
		panic(err)
	}
	return set
}

// tenon returns the result of Tenon's cpuset policy: the set, and the quota if
// there is one. The service has per-CPU counters only on cgroup v1.
func tenon(t *testing.T, c nodeCase, version int, have unit.CPUSet) (unit.CPUSet, string) {
	n := newScene(c.topo, version)
	n.config.Suppress = suppress.Config{Enable: true, ThresholdPercent: c.threshold, MinPercent: c.min, Policy: suppress.ByCPUSet}
	n.config.NodeCPUs.LendLSR = c.lend
	n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
	n.add(node.Workload{ID: "be", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
	for _, bound := range c.bound() {
		for i, part := range strings.Split(bound.cpus, ",") {
			w := node.Workload{ID: node.WorkloadID(fmt.Sprint(bound.class, i)), Class: bound.class, ContentionRoot: node.CgroupPath(bound.class)}
			w.Cgroup = w.ContentionRoot.Join(string(w.ID))
			n.add(w)
			n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{Set: list(part)}
		}
	}
	if have != c.topo.All() {
		for _, p := range []node.CgroupPath{"be", "be/job"} {
			k := node.Knob{Cgroup: p, File: node.FileCPUs}
			n.snap.Knobs.Before[k], n.snap.Knobs.Now[k] = n.snap.Knobs.Now[k], node.CPUs{Set: have}
		}
	}
	p := spell{
		every: time.Second, missing: map[node.WorkloadID]bool{},
		use: map[node.WorkloadID]unit.MilliCPU{"web": c.use, "be": 0},
	}
	if version == 1 {
		p.on = map[node.WorkloadID]unit.CPUSet{"web": list(c.on)}
	}
	n.pass(p)
	n.decide(t) // the first tick has no rate
	n.state.Growth = unit.CPUs(len(c.topo.CPUs)).Percent(suppress.Growth)
	for range c.ticks {
		p.missing["web"] = c.missing
		n.pass(p)
		n.decide(t)
	}
	quota := ""
	if q, is := n.snap.Knobs.Now[node.Knob{Cgroup: "be", File: node.FileCPUMax}].(node.CPUMax); is && facts.IsQuota(q) {
		quota = fmt.Sprintf(" and a quota of %v", facts.MilliOf(q))
	}
	set := n.snap.Knobs.Now[node.Knob{Cgroup: "be", File: node.FileCPUs}].(node.CPUs).Set
	if set.Empty() {
		set = c.topo.All()
	}
	return set, quota
}

// countSharedCores counts the CPUs of a set that share a core with work that is
// not BE.
func (c nodeCase) countSharedCores(set unit.CPUSet) int {
	others := list(c.lse).Union(list(c.lsr))
	if c.use > 0 {
		others = others.Union(list(c.on))
	}
	n := 0
	for cpu := range set.All() {
		if !c.topo.Siblings(cpu).Intersect(others).Empty() {
			n++
		}
	}
	return n
}

var nodeCases = []nodeCase{
	{name: "a service on two cores", topo: machine(8, 2, 1, 1), use: 1000, on: "0-3",
		remark: "the reference takes the lowest cores, wherever the service is; rounding up spends 0.8 CPU more than the budget"},
	{name: "two NUMA nodes", topo: machine(16, 2, 2, 2), use: 2000, on: "0-3",
		remark: "Tenon shares no core, and uses both caches"},
	{name: "the service moves to where BE is", topo: machine(16, 2, 2, 2), use: 2000, on: "4-7", have: "4-11",
		remark: "the reference's choice does not depend on load; Tenon's follows the mean of 5 s, two CPUs at a time"},
	{name: "the service fills one node", topo: machine(104, 2, 2, 2), use: 26000, on: "0-51",
		remark: "half of the reference's CPUs are siblings of the service's"},
	{name: "threads of a core far apart", topo: split(16, 2), use: 2000, on: "0-3",
		remark: "siblings come from the topology, not from the numbers"},
	{name: "LSE on most CPUs", topo: machine(16, 2, 2, 2), use: 1000, on: "12-13", lse: "0-11",
		remark: "a pool that is too small: no answer, or all of it"},
	{name: "LSE on all CPUs", topo: machine(4, 2, 1, 1), use: 500, on: "0-1", lse: "0-1,2-3",
		remark: "no set is right; Tenon leaves it and bounds by quota"},
	{name: "LSE on half a core", topo: machine(8, 2, 1, 1), use: 0, lse: "0",
		remark: "its sibling comes last in both"},
	{name: "LSR bound to two cores", topo: machine(16, 2, 2, 2), use: 2000, on: "8-11", lsr: "0-3",
		remark: "the reference always lends LSR's CPUs, in proportion"},
	{name: "the same, lent", topo: machine(16, 2, 2, 2), use: 2000, on: "8-11", lsr: "0-3", lend: true, threshold: 100,
		remark: "as configured, and last of all"},
	{name: "the service needs all", topo: machine(16, 2, 2, 2), use: 16000, on: "0-15",
		remark: "the reference's least is two CPUs by set and 0.02 by quota; Tenon's is the same by both"},
	{name: "the service needs all, minimum 10 %", topo: machine(16, 2, 2, 2), use: 16000, on: "0-15", min: 10,
		remark: "1.6 CPUs: rounded up, and kept exactly"},
	{name: "two CPUs", topo: machine(2, 1, 1, 1), use: 200, on: "0",
		remark: "the reference's least is the whole node"},
	{name: "one CPU", topo: machine(1, 1, 1, 1), use: 200, on: "0",
		remark: "two of one: the pool is too small"},
	{name: "the counter of the service is missing", topo: machine(16, 2, 2, 2), use: 2000, on: "0-3", have: "4-15", missing: true, ticks: 1,
		remark: "the reference keeps what BE had, for ever"},
	{name: "one tick of growth", topo: machine(104, 2, 2, 2), use: 10400, on: "0-19", have: "102-103", ticks: 1,
		remark: "a tenth of the node, rounded up, and rounded down; the reference drops the CPUs that BE has"},
	{name: "1024 CPUs", topo: machine(1024, 2, 32, 8), use: 256000, on: "0-511",
		remark: "the same, in the large"},
}

// split returns the same topology as machine(), but numbers the CPUs
// differently: the numbers of two siblings differ by half the count of CPUs.
func split(cpus, smt int) node.Topology {
	t := machine(cpus, smt, 2, 2)
	for i := range t.CPUs {
		core := i % (cpus / smt)
		t.CPUs[i] = node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(core), L3: node.CacheID(core * 2 / (cpus / smt)), NUMA: node.NUMANode(core * 2 / (cpus / smt))}
	}
	return t
}

// comparison is the file with the table of TestComparisonWithTheReference.
const comparison = "testdata/suppress-formula.md"

// TestComparisonWithTheReference runs each case with both formulas and compares
// the table of results with the file. go test -update writes the file.
func TestComparisonWithTheReference(t *testing.T) {
	var table strings.Builder
	fmt.Fprintln(&table, "| case | CPUs | LS runs on | reference | beside LS | Tenon, v1 | beside LS | Tenon, v2 | beside LS | remark |")
	fmt.Fprintln(&table, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, c := range nodeCases {
		c.threshold = cmp.Or(c.threshold, 65)
		c.ticks = cmp.Or(c.ticks, 60)
		have := c.topo.All()
		if c.have != "" {
			have = list(c.have)
		}
		theirs, fault := have, ""
		for range c.ticks {
			if theirs, fault = reference(c, theirs); fault != "" {
				break
			}
		}
		v1, quota1 := tenon(t, c, 1, have)
		v2, quota2 := tenon(t, c, 2, have)
		shared := "–"
		if fault == "" {
			fault, shared = cpusOf(theirs), fmt.Sprint(c.countSharedCores(theirs))
		}
		where := fmt.Sprintf("%s (%v)", c.on, c.use)
		for _, bound := range c.bound() {
			where += fmt.Sprintf(", %s %s", bound.class, bound.cpus)
		}
		if c.use == 0 {
			where = strings.TrimPrefix(where, " (0m), ")
		}
		fmt.Fprintf(&table, "| %s | %d | %s | %s | %s | %s%s | %d | %s%s | %d | %s |\n", c.name, len(c.topo.CPUs), where,
			fault, shared, cpusOf(v1), quota1, c.countSharedCores(v1), cpusOf(v2), quota2, c.countSharedCores(v2), c.remark)
	}
	page, err := os.ReadFile(comparison)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
	before, rest, ok1 := strings.Cut(string(page), begin)
	told, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s: want the table between %q and %q", comparison, begin, end)
	case *update:
		if err := os.WriteFile(comparison, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case told != table.String():
		t.Errorf("the table in %s is not what the formulas give now:\n%s", comparison, table.String())
	}
}

func cpusOf(s unit.CPUSet) string { return fmt.Sprintf("%v (%d)", s, s.Len()) }
