package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// enableAll enables all policies in a scene, on a machine that
// supports all of them.
func (n *scene) enableAll(t testing.TB) {
	t.Helper()
	n.config.Burst = burst.Config{Policy: burst.Both, CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50}
	n.config.Memory.Classes = map[node.Class]memory.Shares{node.LS: {MinPercent: 20, LowPercent: 50}, node.BE: {ThrottlingPercent: 50}}
	n.config.Cache.Classes = map[node.Class]cache.Share{node.LS: {End: 100, Bandwidth: 100}, node.BE: {End: 30, Bandwidth: 50}}
	n.config.IO.Classes = map[node.Class][]blockio.Device{node.BE: {{Name: "vda", ReadBPS: 10 << 20, WeightPercent: 50}}, node.LS: {{Name: "vda", Latency: time.Millisecond}}}
	n.config.Evict = evict.Config{
		Memory: evict.MemoryConfig{ThresholdPercent: 80, LowerPercent: 78}, Grace: 2 * time.Second,
		CPU: evict.CPUConfig{SatisfactionLower: 10, SatisfactionUpper: 40, UsageThreshold: 90, ThresholdPercent: 98, LowerPercent: 95, Window: 10 * time.Second},
	}
	n.snap.Capabilities[node.FeatureCgroupFreezer] = node.Answer{Verdict: node.Yes}
	disk := unit.Device{Major: 8}
	n.snap.Devices = []node.BlockDevice{{Name: "vda", ID: disk, Disk: disk, Weighs: node.FileBFQWeight}}
	n.snap.Resctrl = node.Resctrl{Groups: 8, L3: node.CacheWays{Mask: 1<<11 - 1, Least: 1, Domains: []node.CacheID{0}}, MBDomains: []node.CacheID{0}}
	n.snap.Knobs.Kernel.MB = node.Bandwidth{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}
	for _, w := range n.snap.Workloads {
		n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileControlGroup}] = node.ControlGroupsOf(node.DefaultControlGroup)
	}
	n.showRuns()
	for _, m := range append(isolationFeatures(), node.FeatureHardwareSMT, node.FeatureEEVDFSlice) {
		n.snap.Capabilities[m] = node.Answer{Verdict: node.Yes}
	}
	n.snap.Isolation.LSOn = map[unit.CPU]time.Duration{}
	n.showIsolation()
}

// owners turns all workloads into pods with containers and random overrides.
func (n *scene) owners(rnd *rand.Rand) {
	maybe := func(m unit.Percent) node.Maybe[unit.Percent] {
		if rnd.IntN(2) == 0 {
			return node.Maybe[unit.Percent]{}
		}
		return node.Some(unit.Percent(rnd.IntN(int(m) + 1)))
	}
	for i := range n.snap.Workloads {
		w := &n.snap.Workloads[i]
		for p := range rnd.IntN(3) {
			part := node.Container{Name: fmt.Sprint("c", p), Cgroup: w.Cgroup.Join(fmt.Sprint("c", p))}
			if rnd.IntN(2) == 0 {
				part.CPULimit, part.Weight = node.Some(w.CPULimit.Or(1000)/2), node.Some(unit.WeightOfShares(512))
				part.MemoryLimit, part.MemoryRequest = node.Some(unit.Bytes(1<<30)), node.Some(unit.Bytes(1<<29))
			}
			w.Containers = append(w.Containers, part)
			n.makeGroup(part.Cgroup)
		}
		w.CPUManagedExternally, w.MemoryManagedExternally = rnd.IntN(2) == 0, rnd.IntN(2) == 0
		if w.Class == node.BE && rnd.IntN(2) == 0 {
			w.IdleCgroup, w.Weight = w.Cgroup, node.Some(unit.WeightOfShares(2048))
			// The kubelet gives the cgroup of the BestEffort class the least
			// weight.
			n.snap.Knobs.Now[node.Knob{Cgroup: w.ContentionRoot, File: node.FileCPUWeight}] = node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}.Round(n.snap.Knobs.Kernel)
		}
		w.Overrides = node.Overrides{
			Burst:    node.BurstOverride{Policy: []string{"", node.BurstNone, "auto"}[rnd.IntN(3)], CPUPercent: maybe(1000), QuotaPercent: maybe(300)},
			Memory:   node.MemoryOverride{OwnOnly: rnd.IntN(3) == 0, MinPercent: maybe(100), LowPercent: maybe(100), ThrottlingPercent: maybe(100)},
			IO:       []node.BlockIO{{Name: "vda", WriteBPS: 1 << 20, WeightPercent: maybe(99).Or(0)}},
			Identity: node.Some(node.Identity(rnd.IntN(3))),
		}
		if rnd.IntN(2) == 0 {
			w.Overrides.Cache = node.CacheOverride{ControlGroup: fmt.Sprint(node.ControlGroupPrefix, i), Start: maybe(40), End: node.Some(unit.Percent(50)), Bandwidth: maybe(90)}
		}
		w.Overrides.EvictionExemptFrom = [][]string{nil, {string(evict.CauseCPU)}, {string(evict.CauseMemory)}}[rnd.IntN(3)]
	}
}

// owned lists the knobs of each policy. Two files, cpu.max and cpuset.cpus,
// belong to several policies of this package, but in each cgroup to only one of
// them. TestEveryKnobHasOneOwner checks that.
var owned = map[plan.Owner][]node.File{
	plan.OwnerCPUQOS:    {node.FileCPUWeight},
	plan.OwnerMechanism: ownedByMechanisms,
	plan.OwnerSuppress:  {node.FileCPUMax, node.FileCPUs},
	plan.OwnerLimit:     {node.FileCPUMax},
	plan.OwnerSeat:      {node.FileCPUs},
	plan.OwnerPin:       slices.Concat([]node.File{node.FileCPUs}, ownedByClaims),
	plan.OwnerOrders:    isolation.Owned,
	plan.OwnerMemory:    memory.Owned,
	plan.OwnerCache:     cache.Owned,
	plan.OwnerIO:        blockio.Owned,
	plan.OwnerEvict:     evict.Owned,
}

// TestEveryKnobHasOnePackage checks that exactly one package lists each knob as
// its own. pids.max is in no list, because no policy sets it yet.
func TestEveryKnobHasOnePackage(t *testing.T) {
	ours := slices.Concat(ownedAlways, ownedByClaims, ownedByMechanisms)
	all := slices.Concat(ours, isolation.Owned, memory.Owned, cache.Owned, blockio.Owned, evict.Owned, []node.File{node.FilePIDs})
	if diff := cmp.Diff(slices.Sorted(slices.Values(node.AllFiles)), slices.Sorted(slices.Values(all))); diff != "" {
		t.Errorf("the packages do not own each knob once (-knobs, +owned):\n%s", diff)
	}
	var byPolicy []node.File
	for _, o := range []plan.Owner{plan.OwnerCPUQOS, plan.OwnerMechanism, plan.OwnerSuppress, plan.OwnerLimit, plan.OwnerSeat, plan.OwnerPin} {
		byPolicy = append(byPolicy, owned[o]...)
	}
	slices.Sort(byPolicy)
	if diff := cmp.Diff(slices.Sorted(slices.Values(ours)), slices.Compact(byPolicy)); diff != "" {
		t.Errorf("the policies of this package do not own what it owns (-package, +policies):\n%s", diff)
	}
}

// TestEveryKnobHasOneOwner runs random work with all policies enabled. In each
// tick, at most one policy may want a knob. While no work starts or ends, this
// must be the same policy in all ticks. Each policy must want all knobs that it
// owns and no others.
func TestEveryKnobHasOneOwner(t *testing.T) {
	rnd := rand.New(rand.NewPCG(51, 52))
	files := map[plan.Owner]map[node.File]bool{}
	for try := range 30 {
		n := anyScene(rnd, 48, 1+try%2)
		for i := range 3 {
			n.anyClaim(rnd, fmt.Sprint("own", i))
		}
		n.add(node.Workload{ID: "limited", Class: node.LS, Cgroup: "LS/limited", ContentionRoot: "LS", CPULimit: node.Some(unit.MilliCPU(700))})
		n.owners(rnd)
		n.enableAll(t)
		if try%3 == 0 { // only the overrides of workloads demand knobs
			n.config.Memory.Classes, n.config.Cache.Classes, n.config.IO.Classes = nil, nil, nil
		}
		n.snap.Devices[0].Weighs = []node.File{node.FileBFQWeight, node.FileIOWeight}[try%2]
		n.config.CPUQOS = isolation.Config{Enable: true, Mechanism: node.Mechanisms[try%len(node.Mechanisms)]}
		n.memory = map[node.WorkloadID]unit.Bytes{"node": 60 * gib, "b0": 20 * gib, "own0": gib, "own1": gib, "own2": gib}
		ownerOf := map[node.Knob]plan.Owner{}
		for range 6 {
			n.pass(n.anySpell(rnd))
			n.checkWants(t)
			n.decide(t)
			for _, w := range n.wants {
				if files[w.Owner] == nil {
					files[w.Owner] = map[node.File]bool{}
				}
				files[w.Owner][w.Knob.File] = true
				if before, known := ownerOf[w.Knob]; known && before != w.Owner {
					t.Fatalf("try %d: %v was %s's and is %s's", try, w.Knob, before, w.Owner)
				}
				ownerOf[w.Knob] = w.Owner
				_, inBE := facts.LayoutOf(n.snap).RootAbove(w.Knob.Cgroup)
				if set := w.Knob.File == node.FileCPUs || w.Knob.File == node.FileMems; set && inBE == (w.Owner == plan.OwnerPin) {
					t.Fatalf("try %d: %v, best-effort: %v, is %s's", try, w.Knob, inBE, w.Owner)
				}
			}
		}
	}
	for o, want := range owned {
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(files[o]))); diff != "" {
			t.Errorf("%s wants other knobs than it owns (-owns, +wants):\n%s", o, diff)
		}
	}
	for o := range files {
		if _, is := owned[o]; !is {
			t.Errorf("%s wants %v and stands in no row", o, slices.Sorted(maps.Keys(files[o])))
		}
	}
}
