package main

import (
	"fmt"
	"os"
	"reflect"
	"syscall"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// bothGroups are the cgroups of the two loads.
var bothGroups = map[string]scx.Class{lsGroup: scx.LSX, beGroup: scx.BE}

// loadScheduler loads Tenon's scheduler with the classes of cgroups. With
// smtRule, BE must stay off the siblings of LS.
func loadScheduler(smtRule bool, classes map[string]scx.Class) (*scx.Scheduler, error) {
	o := scx.Options{
		CgroupVersion: 2,
		Params:        scx.Params{SMTRule: smtRule, Hold: hold, Headroom: scx.DefaultHeadroom, Cap: scx.NoCap},
	}
	byCPU, err := cores()
	if err != nil {
		return nil, err
	}
	// The machine numbers its CPUs core by core and cache by cache. The number
	// of a core or cache is that of its first CPU.
	caches, err := firstOf("cache/index3/shared_cpu_list")
	if err != nil {
		return nil, err
	}
	core, llc := -1, -1
	for cpu := unit.CPU(0); int(cpu) < len(byCPU); cpu++ {
		if byCPU[cpu] == int(cpu) {
			core++
		}
		if caches[cpu] == int(cpu) {
			llc++
		}
		o.Topology = append(o.Topology, scx.CPU{ID: cpu, Core: core, Thread: int(cpu) - byCPU[cpu], LLC: llc})
	}
	s, err := scx.Load(o)
	if err != nil {
		return nil, err
	}
	var groups []scx.Group
	for dir, class := range classes {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		groups = append(groups, scx.Group{Cgroup: info.Sys().(*syscall.Stat_t).Ino, Class: class})
	}
	if err := s.Classify(groups); err != nil {
		return nil, fmt.Errorf("classify: %w", err)
	}
	return s, nil
}

// statusOf returns the status of the scheduler, or the zero status if s is nil.
func statusOf(s *scx.Scheduler) (scx.Status, error) {
	if s == nil {
		return scx.Status{}, nil
	}
	return s.Status()
}

// subtractCounts returns the difference between two readings.
func subtractCounts(after, before node.SchedulerCounts) node.SchedulerCounts {
	a, b := reflect.ValueOf(&after).Elem(), reflect.ValueOf(before)
	for i := range a.NumField() {
		a.Field(i).SetUint(a.Field(i).Uint() - b.Field(i).Uint())
	}
	return after
}
