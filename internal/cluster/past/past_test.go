package past

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestColumnsGiveTheRoomOfTheFormula makes random pods, adds them up as the queries do,
// and compares the room with that of the formula, asked with the pods.
func TestColumnsGiveTheRoomOfTheFormula(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	policies := []overcommit.ReclaimPolicy{overcommit.ByUsage, overcommit.ByRequest, overcommit.ByMaxUsageRequest}
	rooms := 0
	for range 2000 {
		rules := overcommit.Config{
			Enable: true, ReservedCPU: unit.MilliCPU(rnd.IntN(800)), ReservedMemory: unit.Bytes(rnd.IntN(2048)) << 20, MinServicePercent: unit.Percent(rnd.IntN(2) * 15),
			CPU:    overcommit.Reclaim{ThresholdPercent: unit.Percent(rnd.IntN(101)), Policy: policies[2*rnd.IntN(2)]},
			Memory: overcommit.Reclaim{ThresholdPercent: unit.Percent(rnd.IntN(101)), Policy: policies[rnd.IntN(3)]},
		}
		m := Machine{Name: "n", Size: Size{unit.CPUs(1 + rnd.IntN(64)), unit.Bytes(1+rnd.IntN(256)) << 30}}
		cpu := overcommit.Sums[unit.MilliCPU]{Capacity: m.Size.CPU, Reserved: rules.ReservedCPU, System: unit.MilliCPU(rnd.IntN(2000))}
		memory := overcommit.Sums[unit.Bytes]{Capacity: m.Size.Memory, Reserved: rules.ReservedMemory, System: unit.Bytes(rnd.IntN(4096)) << 20}
		sum := map[Column]int64{}
		for range rnd.IntN(10) {
			u, r := rnd.Int64N(4000), rnd.Int64N(4000)
			uses, holds := rnd.Int64N(16<<20), rnd.Int64N(16<<20) // KiB
			counts, _ := overcommit.Counted(rules.CPU.Policy, node.Some(unit.MilliCPU(u)), node.Some(unit.MilliCPU(r)))
			counted, _ := overcommit.Counted(rules.Memory.Policy, node.Some(unit.Bytes(uses)<<10), node.Some(unit.Bytes(holds)<<10))
			cpu.Others, memory.Others = cpu.Others+counts, memory.Others+counted
			for c, v := range map[Column]int64{
				UsedCPU: u, PodsCPU: u, CountedCPU: int64(counts), AskedCPU: r,
				UsedMemory: uses, PodsMemory: uses, CountedMemory: int64(counted >> 10), AskedMemory: holds,
			} {
				sum[c] += v
			}
		}
		cpu.Unneeded = rules.Unneeded(unit.MilliCPU(sum[AskedCPU]), m.Size.CPU, unit.Bytes(sum[AskedMemory])<<10, m.Size.Memory)
		memory.Unneeded = cpu.Unneeded
		sum[UsedCPU] += int64(cpu.System)
		sum[UsedMemory] += int64(memory.System >> 10)
		d := &NodeDay{Name: "n", Columns: map[Column][]int64{}}
		for _, c := range []Column{UsedCPU, PodsCPU, CountedCPU, AskedCPU, UsedMemory, PodsMemory, CountedMemory, AskedMemory} {
			d.Columns[c] = []int64{sum[c]}
		}
		got := Window{First: 20000, Days: 1, Step: 60}.Node(m, Sources{Label: "node", CPU: CAdvisor, Memory: CAdvisor}, rules, []*NodeDay{d})
		wantCPU, wantMemory := overcommit.AmountOf(rules.CPU, cpu).Value(), overcommit.AmountOf(rules.Memory, memory).Value()
		if got.RoomCPU[0] != int64(wantCPU) || got.RoomMemory[0] != int64(wantMemory>>20) {
			t.Fatalf("room %d and %d, want %v and %v\n%+v\n%+v\n%+v", got.RoomCPU[0], got.RoomMemory[0], wantCPU, wantMemory>>20, rules, cpu, memory)
		}
		if wantCPU > 0 {
			rooms++
		}
		if got.RoomCPU[1] != prospect.Absent || got.UsedMemory[1] != prospect.Absent || len(got.RoomCPU) != 24 {
			t.Fatalf("a step that is not measured has %d and %d", got.RoomCPU[1], got.UsedMemory[1])
		}
	}
	if rooms < 500 {
		t.Errorf("only %d nodes have room", rooms)
	}
}

// TestWhatIsNotKnownIsNoRoom has days in which some series are missing.
func TestWhatIsNotKnownIsNoRoom(t *testing.T) {
	rules := overcommit.Config{CPU: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, ReservedCPU: 500}
	m := Machine{Name: "n", Size: Size{10_000, 10 << 30}}
	known := Sources{Label: "node", CPU: NodeExporter, Memory: NodeExporter, Owners: true}
	for name, tc := range map[string]struct {
		sources           Sources
		used, pods, batch int64
		room, use, could  int64 // could: -2 is no column
	}{
		"all is known":                      {known, 3000, 2000, 700, 6000 - 2000 - 1000, 3000, 700},
		"no pod could be batch work":        {known, 3000, 2000, -1, 3000, 3000, 0},
		"the reservation is more":           {known, 2100, 2000, 0, 6000 - 2000 - 500, 2100, 0},
		"the pods are silent":               {known, 3000, -1, -1, -1, -1, -1},
		"the node is silent":                {known, -1, 2000, 100, -1, -1, 100},
		"no series says what the node used": {Sources{Label: "node", CPU: PodsOnly, Memory: PodsOnly}, -1, 2000, -1, 6000 - 2000 - 500, 2000, -2},
		"no series says what pods used":     {Sources{CPU: NodeExporter, Memory: NodeExporter, Owners: true}, 3000, -1, -1, 3000, 3000, -2},
		"more than there is":                {known, 8000, 7000, 0, 0, 8000, 0},
	} {
		d := &NodeDay{Columns: map[Column][]int64{UsedCPU: {tc.used}, PodsCPU: {tc.pods}, BatchCPU: {tc.batch}}}
		got := Window{First: 1, Days: 1, Step: 60}.Node(m, tc.sources, rules, []*NodeDay{d})
		could := int64(-2)
		if len(got.BatchCPU) > 0 {
			could = got.BatchCPU[0]
		}
		if got.RoomCPU[0] != tc.room || got.UsedCPU[0] != tc.use || could != tc.could {
			t.Errorf("%s: room %d, used %d, could be batch %d; want %d, %d, %d", name, got.RoomCPU[0], got.UsedCPU[0], could, tc.room, tc.use, tc.could)
		}
	}
}

// TestASampleHasTheSharesOfTheFleet draws nodes of three pools.
func TestASampleHasTheSharesOfTheFleet(t *testing.T) {
	var all []Machine
	for i := range 1000 {
		pool, cpu := "large", unit.CPUs(64)
		switch {
		case i < 600:
			pool, cpu = "small", unit.CPUs(4)
		case i < 630:
			pool, cpu = "rare", unit.CPUs(16)
		}
		all = append(all, Machine{Name: fmt.Sprintf("n%04d", i), Pool: pool, Size: Size{CPU: cpu}})
	}
	draw := func(n int, seed uint64) []Machine { return Sample(all, n, seed) }
	count := func(some []Machine, pool string) (n int) {
		for _, m := range some {
			if m.Pool == pool {
				n++
			}
		}
		return n
	}
	for _, n := range []int{1, 7, 50, 100, 999} {
		some := draw(n, 3)
		if len(some) != n || !slices.IsSortedFunc(some, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%d of %d nodes are drawn, in order", len(some), n)
		}
		for pool, of := range map[string]int{"small": 600, "rare": 30, "large": 370} {
			if got := count(some, pool); got < n*of/1000 || got > n*of/1000+1 {
				t.Errorf("%d nodes have %d of pool %s", n, got, pool)
			}
		}
	}
	slices.Reverse(all)
	first, again, other := draw(100, 3), Sample(slices.Clone(all), 100, 3), draw(100, 4)
	same := func(a, b []Machine) bool {
		return slices.EqualFunc(a, b, func(a, b Machine) bool { return a.Name == b.Name })
	}
	if !same(first, again) || same(first, other) {
		t.Error("the seed does not decide what is drawn")
	}
	if len(draw(0, 1)) != 1000 || len(draw(5000, 1)) != 1000 {
		t.Error("without a sample, not all are read")
	}
}

// TestALiteralMatchesItself tries names with characters that mean something to a
// regular expression.
func TestALiteralMatchesItself(t *testing.T) {
	for _, name := range []string{"ip-10-0-0-1.eu.example", `a\b`, "a|b", "[fd00::1]:9100", "(a)*?+{1}^$", "näme"} {
		if re := regexp.MustCompile("^(?:" + literal(name) + ")$"); !re.MatchString(name) || re.MatchString("a") {
			t.Errorf("%q became %q", name, literal(name))
		}
	}
}

// TestAServiceIsTheControllerOfAController reads the names that Kubernetes gives.
func TestAServiceIsTheControllerOfAController(t *testing.T) {
	pod := Pod{"shop", "web-5d9c7b6f4-x2x4z"}
	for _, c := range []struct{ kind, owner, want string }{
		{"ReplicaSet", "web-5d9c7b6f4", "shop/web"},
		{"ReplicaSet", "web", "shop/web"},
		{"ReplicaSet", "web-canary", "shop/web-canary"}, // a has no place in a hash
		{"StatefulSet", "db-5d9c7b6f4", "shop/db-5d9c7b6f4"},
		{"Job", "report-29403720", "shop/report"},
		{"Job", "report-2", "shop/report-2"},
		{"Node", "n1", "shop/web-5d9c7b6f4-x2x4z"},
		{"<none>", "<none>", "shop/web-5d9c7b6f4-x2x4z"},
		{"", "", "shop/web-5d9c7b6f4-x2x4z"},
	} {
		if got := ServiceOf(pod, c.kind, c.owner); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.kind, c.owner, got, c.want)
		}
	}
}

// TestAliasesHideAllNames checks that no name is left, and that the same names have the
// same numbers.
func TestAliasesHideAllNames(t *testing.T) {
	a := AliasesOf([]string{"secret-a", "secret-b"}, []string{"secret-pool"}, []string{"secret-ns/x", "secret-ns/y", "secret-other/x"})
	n := prospect.Node{Name: "secret-b", Pool: "secret-pool", Hurt: []prospect.Hurt{{Service: "secret-other/x"}, {Service: "secret-ns/y", By: "secret-ns/x"}, {Service: "secret-new/z"}}}
	hidden := a.Hide(n)
	if text := fmt.Sprintf("%+v", hidden); strings.Contains(text, "secret") {
		t.Error(text)
	}
	if hidden.Name != "node-2" || hidden.Pool != "pool-1" || hidden.Hurt[0].Service != "namespace-2/service-1" || hidden.Hurt[1].By != "namespace-1/service-1" || hidden.Hurt[2].Service != "" {
		t.Errorf("%+v", hidden)
	}
	if n.Hurt[0].Service != "secret-other/x" {
		t.Error("the node itself is changed")
	}
}
