package main

import (
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

func named(t *testing.T, name string) maker {
	t.Helper()
	for _, m := range makers {
		if m.name == name {
			return m
		}
	}
	t.Fatal(name)
	return maker{}
}

// TestASingleClaimGetsTheBest compares single claims with the best choice among all sets of
// caches, on each kind of node in random states. Tenon must always have the best NUMA nodes,
// caches and cores, and in 95 % of the choices the best remaining CPUs. A rival that does not
// know caches must have the best caches in at most 90 %. With TENON_TEST_LONG=1, Tenon gets
// 10,000 claims of each kind.
func TestASingleClaimGetsTheBest(t *testing.T) {
	for _, h := range kinds {
		f := newFrame(h)
		for i, m := range makers {
			claims := 40
			if i == 0 && os.Getenv("TENON_TEST_LONG") != "" {
				claims = 10_000
			}
			s, err := placeSingle(f, m, claims, 5)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && (s.nodes != 100 || s.caches != 100 || s.split != 100 || s.left < 95) {
				t.Errorf("%s, %s: %+v", h.name, m.name, s)
			}
			t.Logf("%s, %s, %d claims: %+v", h.name, m.name, claims, s)
		}
	}
	s, err := placeSingle(newFrame(kinds[1]), named(t, "koordinator"), 60, 5)
	if err != nil || s.caches > 90 {
		t.Errorf("a choice that knows no caches: %+v %v", s, err)
	}
}

// TestMostIsTheMost compares branch and bound with a search through all
// assignments.
func TestMostIsTheMost(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		room, claims := make([]int, 3), make([]int, 1+rnd.IntN(5))
		for i := range room {
			room[i] = rnd.IntN(9)
		}
		for i := range claims {
			claims[i] = 1 + rnd.IntN(8)
		}
		best := 0
		for way := range 1024 { // four places for each of up to five claims
			left, inside := [3]int(room), 0
			for i, w := 0, way; i < len(claims); i, w = i+1, w/4 {
				if w%4 < 3 {
					left[w%4] -= claims[i]
					inside++
				}
			}
			if left[0] >= 0 && left[1] >= 0 && left[2] >= 0 {
				best = max(best, inside)
			}
		}
		if got := maxPlaced(room, claims); got != best {
			t.Fatalf("%v in %v: %d, want %d", claims, room, got, best)
		}
	}
}

func TestASequenceComesNearTheBestOfAll(t *testing.T) {
	f := newFrame(smallMachine)
	of := map[string]float64{}
	for _, m := range makers {
		s, err := sequences(f, m, 80, 3)
		if err != nil {
			t.Fatal(err)
		}
		of[m.name] = s
	}
	if of["tenon"] < 90 || of["tenon"] > 100 || of["tenon"] < of["koordinator"] || of["tenon"] < of["kubelet"] {
		t.Error(of)
	}
}

// TestWholeCoresOnlyChangesNoEvenClaim shows why the option full-pcpus-only is
// not a rival of its own. For a whole number of cores it chooses the same CPUs.
// It refuses all other numbers.
func TestWholeCoresOnlyChangesNoEvenClaim(t *testing.T) {
	f := newFrame(kinds[1])
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 60 {
		h := newHost(f, occupied(rnd, f))
		n := 1 + rnd.IntN(16)
		if h.whole[machineLevel][0] < n {
			continue
		}
		plain, strict := newKubelet(f, []*host{h}, spread, false), newKubelet(f, []*host{h}, spread, false)
		strict.options[cpumanager.FullPCPUsOnlyOption] = "true"
		for _, k := range []*kubelet{plain, strict} {
			if err := k.begin(0, h.closed); err != nil {
				t.Fatal(err)
			}
		}
		c := &claim{id: "p", cpus: n, request: unit.CPUs(n)}
		a, _ := plain.take(0, c)
		b, ok := strict.take(0, c)
		if ok != (n%2 == 0) || ok && a != b {
			t.Fatalf("%d CPUs beside %v: %v, and with full-pcpus-only %v %v", n, h.closed, a, b, ok)
		}
	}
}

// TestRivalFollowsTheKubeletPolicy checks that the rival uses the hints and the state of
// the kubelet's own policy.
func TestRivalFollowsTheKubeletPolicy(t *testing.T) {
	f := newFrame(kinds[0])
	h := newHost(f, f.reservedCPUs())
	k := newKubelet(f, []*host{h}, spread, true)
	if err := k.begin(0, h.closed); err != nil {
		t.Fatal(err)
	}
	c := &claim{id: "p", cpus: 4, request: unit.CPUs(4)}
	set, ok := k.take(0, c)
	if !ok || set.Len() != 4 || !set.Intersect(f.reservedCPUs()).Empty() {
		t.Fatal(set, ok)
	}
	p := podOf(c)
	hints := k.nodes[0].GetTopologyHints(klog.Logger{}, p, &p.Spec.Containers[0], lifecycle.AddOperation)["cpu"]
	if len(hints) == 0 || !hints[0].Preferred || hints[0].NUMANodeAffinity.Count() != 1 {
		t.Errorf("a pod with CPUs of one NUMA node has the hints %v", hints)
	}
	k.leave(0, c)
	if left := k.nodes[0].state.GetDefaultCPUSet().Size(); left != f.cpus {
		t.Errorf("%d CPUs are free after the end of the only pod", left)
	}
}

// TestChurnComparesTheSamePods runs a small trace with every rival.
func TestChurnComparesTheSamePods(t *testing.T) {
	for _, h := range kinds {
		f := newFrame(h)
		of := map[string]figures{}
		tr := trace{load: 0.85, arrivals: 150, warm: 30, seed: 1}
		for _, m := range makers {
			x, err := run(f, 3, m, tr)
			if err != nil {
				t.Fatalf("%s, %s: %v", h.name, m.name, err)
			}
			of[m.name] = x
		}
		if of["tenon"].oneCache < of["koordinator"].oneCache || of["tenon"].oneNode < of["kubelet"].oneNode || of["tenon"].refused > 0 {
			t.Errorf("%s: %+v", h.name, of)
		}
		tr.pools = 0.2
		for _, name := range []string{"tenon", "koordinator", "best-fit", "kubelet-aligned"} {
			x, err := run(f, 3, named(t, name), tr)
			again, anew := run(f, 3, named(t, name), tr)
			if err != nil || anew != nil || again != x {
				t.Fatalf("%s, %s: %+v, and again %+v; %v %v", h.name, name, x, again, err, anew)
			}
		}
	}
}

// TestATraceHasItsLoad checks the number of CPUs in use on a cluster with room
// for all claims.
func TestATraceHasItsLoad(t *testing.T) {
	f := newFrame(kinds[0])
	for _, pools := range []float64{0, 0.2} {
		tr := trace{load: 0.5, pools: pools, arrivals: 3000, seed: 3}
		k, err := newCluster(f, 40, named(t, "best-fit"), 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.follow(tr); err != nil {
			t.Fatal(err)
		}
		spare := 0.0
		for _, h := range k.hosts {
			spare += float64(h.spare()) / 1000 / float64(h.usable*len(k.hosts))
		}
		if math.Abs(spare-0.5) > 0.06 || len(k.waiting) > 0 {
			t.Errorf("pools %.1f: %.3f of the CPUs are spare at half load, and %d pods wait", pools, spare, len(k.waiting))
		}
	}
}

func TestAReportSaysWhatTenonIsBesideOthers(t *testing.T) {
	var lines []string
	for block := range 20 {
		noise := float64(block%5) / 10
		for rival, v := range map[string]float64{"tenon": 90, "kubelet": 80, "best-fit": 90.05, "koordinator": 95, "tenon-packed": 88 + 20*noise} {
			lines = append(lines, row{"churn", "amd", 80, 0, rival, block, "one-cache", v + noise}.String(), row{"churn", "amd", 80, 0, rival, block, "split", v + noise}.String())
		}
	}
	all, err := read(strings.Join(lines, "\n") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	text := summary(all)
	for _, want := range []string{"(better)", "(worse)", "(equal)", "(undecided)", "churn, amd, load 80 %, pools 0 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if _, word := verdict("split", stat.Sample{0: 1}, stat.Sample{0: 9}); word != "undecided" {
		t.Errorf("one block decides: %s", word)
	}
	if _, err := read("churn,amd\n"); err == nil {
		t.Error("a short line is read")
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range []string{"-rivals=me", "-kinds=z80", "-loads=0", "-loads=x", "-pools=101", "-blocks=0", "-part=half"} {
		if _, err := parse([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	var rows []row
	o, err := parse([]string{"-part=single", "-blocks=2", "-tries=3", "-kinds=arm"})
	if err != nil {
		t.Fatal(err)
	}
	if err := measure(o, func(r row) error { rows = append(rows, r); return nil }); err != nil || len(rows) != 2*4*len(makers) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}
