package suppress

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAContestedQuotaIsReplacedBySets checks both directions. If another
// component writes the quota again and again, the cpusets limit BE. If it
// writes the cpusets, the quota limits BE.
func TestAContestedQuotaIsReplacedBySets(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		policy   Policy
		contests []node.File
		bySet    bool
	}{
		{ByQuota, nil, false},
		{ByQuota, []node.File{node.FileCPUMax}, true},
		{"", []node.File{node.FileCPUMax}, true},
		{ByQuota, []node.File{node.FileCPUs}, false},
		{ByQuota, []node.File{node.FileCPUs, node.FileCPUMax}, false},
		{ByCPUSet, nil, true},
		{ByCPUSet, []node.File{node.FileCPUs}, false},
		{ByCPUSet, []node.File{node.FileCPUMax}, true},
	} {
		s := node.Snapshot{At: now, Knobs: node.Knobs{Now: map[node.Knob]node.Value{{Cgroup: "be", File: node.FileCPUs}: node.CPUs{Set: unit.CPUSetOf(0, 1)}}}}
		for _, f := range c.contests {
			found := []time.Time{now.Add(-3 * time.Second), now.Add(-2 * time.Second), now.Add(-time.Second)}
			s.Conflicts = append(s.Conflicts, node.WriteConflict{Knob: node.Knob{Cgroup: "be", File: f}, Wrote: now, Found: found})
		}
		x := suppressor{Config: Config{Enable: true, Policy: c.policy}, Layout: facts.Layout{Roots: []node.CgroupPath{"be"}}, snap: s, cpus: unit.CPUSetOf(0, 1)}
		if x.limitsBySet() != c.bySet {
			t.Errorf("policy %q, contested %v: by set %v", c.policy, c.contests, x.limitsBySet())
		}
	}
}

// TestAQuotaThatSystemdResetsStaysTheBound resets the quota each minute, as systemd does
// when the kubelet sets the weight of the level.
func TestAQuotaThatSystemdResetsStaysTheBound(t *testing.T) {
	now := time.Unix(1e9, 0)
	var resets []time.Time
	for m := range 10 {
		resets = append(resets, now.Add(-time.Duration(10-m)*time.Minute))
	}
	quota := node.Knob{Cgroup: "be.slice", File: node.FileCPUMax}
	s := node.Snapshot{At: now, Conflicts: []node.WriteConflict{{Knob: quota, Wrote: now, Resets: resets}}}
	s.Knobs.Now = map[node.Knob]node.Value{{Cgroup: "be.slice", File: node.FileCPUs}: node.CPUs{Set: unit.CPUSetOf(0, 1)}}
	x := suppressor{Config: Config{Enable: true}, Layout: facts.Layout{Roots: []node.CgroupPath{"be.slice"}}, snap: s, cpus: unit.CPUSetOf(0, 1)}
	if x.limitsBySet() {
		t.Error("best-effort work is bounded by a set of CPUs")
	}
}
