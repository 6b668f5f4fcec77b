package main

import (
	"fmt"
	"os"
	"reflect"
	"syscall"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/unit"
)

// loadScheduler loads Tenon's scheduler for the cgroups of the two loads.
// smtRule keeps BE off the siblings of LS.
func loadScheduler(smtRule bool) (*scx.Scheduler, error) {
	o := scx.Options{
		CgroupVersion: 2,
		Params:        scx.Params{SMTRule: smtRule, Hold: hold, Headroom: scx.DefaultHeadroom, Cap: scx.NoCap},
	}
	byCPU, err := cores()
	if err != nil {
		return nil, err
	}
	threads := map[int]int{}
	for cpu := unit.CPU(0); int(cpu) < len(byCPU); cpu++ {
		// The machine has cores of two threads, and numbers its CPUs core by
		// core.
		core := byCPU[cpu] / 2
		o.Topology = append(o.Topology, scx.CPU{ID: cpu, Core: core, Thread: threads[core]})
		threads[core]++
	}
	s, err := scx.Load(o)
	if err != nil {
		return nil, err
	}
	var groups []scx.Group
	for dir, class := range map[string]scx.Class{lsGroup: scx.LSX, beGroup: scx.BE} {
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

// statusOf returns the status of the scheduler; the zero status if s is nil.
func statusOf(s *scx.Scheduler) (scx.Status, error) {
	if s == nil {
		return scx.Status{}, nil
	}
	return s.Status()
}

// minus returns the difference between two readings.
func minus(after, before scx.Counts) scx.Counts {
	a, b := reflect.ValueOf(&after).Elem(), reflect.ValueOf(before)
	for i := range a.NumField() {
		a.Field(i).SetUint(a.Field(i).Uint() - b.Field(i).Uint())
	}
	return after
}
