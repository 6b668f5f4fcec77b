package cgroup

import "tenon.sh/tenon/internal/model/unit"

// v1ReadShares reads cpu.shares. 1024 shares are the weight 100
// (Documentation/scheduler/sched-design-CFS.rst, section 7).
func (t *Tree) v1ReadShares(path string) (unit.Weight, error) {
	n, err := readOften(t, cpu, path, "cpu.shares", parseCount)
	// The kernel limits a written value to MaxShares, so a larger number is never read.
	return unit.WeightOfShares(min(n, unit.MaxShares)), err
}

func (t *Tree) v1WriteShares(path string, w unit.Weight) error {
	return t.write(cpu, path, "cpu.shares", count(w.Shares()))
}
