package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// contractFacts returns facts about Tenon on the kernel: knobs with several files,
// the order of plans, the content of snapshots, and the values of released knobs.
func contractFacts() []Fact {
	return []Fact{
		{Name: "an applied value shows as it was rounded", Check: appliedShowsRounded},
		{Name: "a released knob has its old value and leaves the journal", Check: releaseRestores},
		{Name: "a released set of CPUs gives tasks all of the parent's back", Check: releaseGivesTasksAllCPUs},
		{Name: "an odd weight survives idle", Needs: node.FeatureCPUIdle, Check: oddWeightSurvivesIdle},
		{Name: "a plan can move a tree in both directions", Check: planMovesTree},
		{Name: "quota, period and burst change together", Needs: node.FeatureCPUBurst, Check: coupledCPUMax},
		{Name: "a snapshot shows the knobs from the workload up to its top group", Check: snapshotShowsAncestors},
		{Name: "a snapshot counts the use of a workload", Check: snapshotCountsUse},
		{Name: "a step on a group that is gone fails", Check: stepOnGoneGroup},
		{Name: "a value that the kernel refuses is an error and no change", Check: refusedValueIsNoChange},
	}
}

func set(p node.CgroupPath, f node.File, v node.Value) plan.Want {
	return plan.Want{Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: f}, Value: v, Owner: plan.OwnerConformance, Reason: "fact"}
}

func release(k node.Knob) plan.Want {
	return plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerConformance, Reason: "fact"}
}

// oddValues returns values that differ from every default. If a kernel rounds a
// knob, it changes the value given here.
func (b *Bench) oddValues() map[node.File]node.Value {
	first, _, _ := b.firstTwoCPUs()
	cpu, _ := unit.ParseCPUSet(first)
	memory := node.Memory{High: unit.MaxBytes, Max: 64<<20 + 1234}
	if b.kernel.CgroupVersion == 2 {
		memory = node.Memory{Min: 4096, Low: 1<<20 + 5, High: 32<<20 + 77, Max: 64<<20 + 1234}
	}
	odd := map[node.File]node.Value{
		node.FileCPUWeight: node.CPUWeight{Weight: unit.WeightOfShares(333)},
		node.FileCPUMax:    node.CPUMax{Quota: 34567 * time.Microsecond, Period: 123456 * time.Microsecond},
		node.FileCPUs:      node.CPUs{Set: cpu},
		node.FileMemory:    memory,
	}
	for i, l := range node.LimitFiles {
		if b.kernel.Lacks(l.File) {
			continue
		}
		odd[l.File] = l.Of(int64(77 + i))
		if l.Bytes {
			odd[l.File] = l.Of(int64(1<<20 + 77 + i))
		}
	}
	return odd
}

func appliedShowsRounded(b *Bench) error {
	defer b.manage(b.cgroup)()
	odd := b.oddValues()
	for _, f := range slices.Sorted(maps.Keys(odd)) {
		if err := b.want(set(b.cgroup, f, odd[f])); err != nil {
			return err
		}
		if err := b.checkSnapshot(node.Knob{Cgroup: b.cgroup, File: f}, odd[f].Round(b.kernel)); err != nil {
			return err
		}
	}
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	for f, v := range odd {
		if steps := plan.Diff(s.Knobs, []plan.Want{set(b.cgroup, f, v)}); len(steps) != 0 {
			return fmt.Errorf("the same value, applied again, makes a step: %v", steps)
		}
	}
	return nil
}

func releaseGivesTasksAllCPUs(b *Bench) error {
	child, err := b.child("child")
	if err != nil {
		return err
	}
	defer b.manage(child)()
	if _, err := b.task(child, 0); err != nil {
		return err
	}
	k := node.Knob{Cgroup: child, File: node.FileCPUs}
	first, _, err := b.firstTwoCPUs()
	if err != nil {
		return err
	}
	one, err := unit.ParseCPUSet(first)
	if err != nil {
		return err
	}
	file := b.pick("cpuset.cpus", "cpuset.cpus.effective")
	all, err := b.ReadFile(b.cgroup, file)
	if err != nil {
		return err
	}
	if err := b.want(set(child, node.FileCPUs, node.CPUs{Set: one})); err != nil {
		return err
	}
	if err := b.want(release(k)); err != nil {
		return err
	}
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	if _, still := s.Knobs.Before[k]; still {
		return fmt.Errorf("%v was released and is still in the journal", k)
	}
	return b.mustShow(child, file, strings.TrimSpace(all))
}

func releaseRestores(b *Bench) error {
	defer b.manage(b.cgroup)()
	odd := b.oddValues()
	before, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	var releases []plan.Want
	for _, f := range slices.Sorted(maps.Keys(odd)) {
		k := node.Knob{Cgroup: b.cgroup, File: f}
		releases = append(releases, release(k))
		if err := b.want(set(b.cgroup, f, odd[f])); err != nil {
			return err
		}
		s, err := b.Snapshot(b.ctx)
		if err != nil {
			return err
		}
		if got := s.Knobs.Before[k]; got != before.Knobs.Now[k] {
			return fmt.Errorf("in the snapshot, %v had the value %v before Tenon, want %v", k, got, before.Knobs.Now[k])
		}
	}
	if err := b.want(set(b.cgroup, node.FilePIDs, node.Maximum{Max: 99})); err != nil { // the journal keeps the original value after a second write
		return err
	}
	if err := b.want(releases...); err != nil {
		return err
	}
	after, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	for f := range odd {
		k := node.Knob{Cgroup: b.cgroup, File: f}
		if got, want := after.Knobs.Now[k], before.Knobs.Now[k]; got != want {
			return fmt.Errorf("released %v is %v, was %v", k, got, want)
		}
		if v, kept := after.Knobs.Before[k]; kept {
			return fmt.Errorf("released %v still has the journaled value %v", k, v)
		}
	}
	return nil
}

func oddWeightSurvivesIdle(b *Bench) error {
	defer b.manage(b.cgroup)()
	k := node.Knob{Cgroup: b.cgroup, File: node.FileCPUWeight}
	odd, idle := b.oddValues()[node.FileCPUWeight], node.CPUWeight{Idle: true}
	return firstOf(
		func() error { return b.set(b.cgroup, b.pick("cpu.shares", "cpu.weight"), b.pick("333", "33")) },
		func() error { return b.want(set(b.cgroup, k.File, idle)) },
		func() error { return b.checkSnapshot(k, idle) },
		func() error { return b.want(release(k)) },
		func() error { return b.checkSnapshot(k, odd.Round(b.kernel)) },
		// A weight can be set while the group is still idle.
		func() error { return b.want(set(b.cgroup, k.File, idle)) },
		func() error { return b.want(set(b.cgroup, k.File, node.CPUWeight{Weight: unit.WeightOf(7)})) },
		func() error {
			return b.checkSnapshot(k, node.CPUWeight{Weight: unit.WeightOf(7)}.Round(b.kernel))
		},
	)
}

// planMovesTree narrows the limits and CPU sets of a parent and its child in
// one plan, and widens them in another. The kernel must accept the steps in
// this order.
func planMovesTree(b *Bench) error {
	first, second, err := b.firstTwoCPUs()
	if err != nil {
		return err
	}
	child, err := b.child("child")
	if err != nil {
		return err
	}
	defer b.manage(child)()
	one, _ := unit.ParseCPUSet(first)
	two, _ := unit.ParseCPUSet(first + "," + second)
	tree := func(parent, inner unit.MilliCPU, cpus unit.CPUSet) []plan.Want {
		return []plan.Want{
			set(b.cgroup, node.FileCPUMax, node.Limit(parent)), set(child, node.FileCPUMax, node.Limit(inner)),
			set(b.cgroup, node.FileCPUs, node.CPUs{Set: cpus}), set(child, node.FileCPUs, node.CPUs{Set: cpus}),
		}
	}
	return firstOf(
		func() error { return b.want(tree(1500, 1000, two)...) },
		func() error { return b.want(tree(300, 200, one)...) },
		func() error { return b.want(tree(1800, 1700, two)...) },
		func() error {
			return b.checkSnapshot(node.Knob{Cgroup: child, File: node.FileCPUMax}, node.Limit(1700))
		},
		func() error {
			return b.checkSnapshot(node.Knob{Cgroup: child, File: node.FileCPUs}, node.CPUs{Set: two})
		},
	)
}

func coupledCPUMax(b *Bench) error {
	defer b.manage(b.cgroup)()
	k := node.Knob{Cgroup: b.cgroup, File: node.FileCPUMax}
	ms := time.Millisecond
	for _, v := range []node.CPUMax{
		{Quota: 80 * ms, Period: 100 * ms, Burst: 80 * ms},
		{Quota: 10 * ms, Period: 100 * ms, Burst: 10 * ms}, // quota and burst are both lower than before
		{Quota: 500 * ms, Period: 1000 * ms, Burst: 400 * ms},
		{Quota: 2 * ms, Period: 4 * ms}, // quota, period and burst are all lower than before
		{Quota: node.NoQuota, Period: 50 * ms},
	} {
		if err := b.want(set(b.cgroup, k.File, v)); err != nil {
			return err
		}
		if err := b.checkSnapshot(k, v); err != nil {
			return err
		}
	}
	return nil
}

func snapshotShowsAncestors(b *Bench) error {
	child, err := b.child("child")
	if err != nil {
		return err
	}
	grandchild, err := b.child("child/grandchild")
	if err != nil {
		return err
	}
	defer b.manage(grandchild)()
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	for _, p := range []node.CgroupPath{grandchild, child, b.cgroup, b.cgroup.Parent()} {
		for _, f := range node.Files {
			if k := (node.Knob{Cgroup: p, File: f}); s.Knobs.Now[k] == nil && !b.kernel.Lacks(f) {
				return fmt.Errorf("%v is missing in the snapshot", k)
			}
		}
	}
	for k := range s.Knobs.Now {
		if k.Cgroup == "" {
			return fmt.Errorf("the snapshot contains %v, but Tenon does not manage the root", k)
		}
	}
	return nil
}

func snapshotCountsUse(b *Bench) error {
	if _, err := b.task(b.cgroup, 4<<20); err != nil {
		return err
	}
	defer b.manage(b.cgroup)()
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	for _, w := range s.Workloads {
		if w.Cgroup != b.cgroup {
			continue
		}
		if !w.Usage.CPU.Known() || !w.Usage.Throttled.Known() {
			return fmt.Errorf("the usage of %s is unknown: %+v", b.cgroup, w.Usage)
		}
		if m, _ := w.Usage.Memory.Value(); m < 4<<20 {
			return fmt.Errorf("%s holds 4 MiB and shows %v", b.cgroup, m)
		}
		return nil
	}
	return fmt.Errorf("%s is managed and not in the snapshot", b.cgroup)
}

func stepOnGoneGroup(b *Bench) error {
	if err := b.RemoveGroup(b.cgroup); err != nil {
		return err
	}
	err := b.Apply(b.ctx, plan.Step{Knob: node.Knob{Cgroup: b.cgroup, File: node.FilePIDs}, To: node.Maximum{Max: 5}})
	if err == nil {
		return fmt.Errorf("a step on %s, which is gone, was accepted", b.cgroup)
	}
	return nil
}

func refusedValueIsNoChange(b *Bench) error {
	defer b.manage(b.cgroup)()
	k := node.Knob{Cgroup: b.cgroup, File: node.FileCPUMax}
	start := node.CPUMax{Quota: 30 * time.Millisecond, Period: 100 * time.Millisecond}
	if err := b.want(set(b.cgroup, k.File, start)); err != nil {
		return err
	}
	bad := node.CPUMax{Quota: 40 * time.Millisecond, Period: 2 * time.Second}
	if err := mustFail(b.Apply(b.ctx, plan.Step{Knob: k, From: start, To: bad}), syscall.EINVAL); err != nil {
		return fmt.Errorf("apply %v: %w", bad, err)
	}
	return b.checkSnapshot(k, start)
}
