package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/schedtrace"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// A scene binds the workers of the LS load and of the BE load to CPUs. Each
// number is the CPU of one worker; -1 means that the worker is not bound. The
// machine has two cores of two threads each: CPUs 0 and 1, and CPUs 2 and 3.
type scene struct {
	ls, be string
	apart  string // CPUs of the hogs in mode apart: none of those of LS
}

var scenes = map[string]scene{
	// LS needs more than half of its CPU, on which four hogs also run.
	"pinned": {ls: "0", be: "0,0,0,0,1,2,3", apart: "1,2,3"},
	// LS and one hog are on the same CPU, and all others are idle. The clock of
	// the guest counts instructions. With one busy CPU, the instructions of
	// other CPUs add nothing to a delay.
	"lone": {ls: "0", be: "0", apart: "1"},
	// A service on each core, and hogs on any CPU.
	"cores": {ls: "0,2", be: "-1,-1,-1,-1,-1,-1,-1,-1", apart: "1,3"},
	// No worker is bound, so the kernel chooses the CPUs of LS.
	"free": {ls: "-1,-1", be: "-1,-1,-1,-1,-1,-1,-1,-1", apart: "1,3"},
	// A service has as many workers as there are CPUs. Sometimes two of them
	// are on one CPU while hogs run on another.
	"crowded": {ls: "-1,-1,-1,-1", be: "-1,-1,-1,-1,-1,-1,-1,-1", apart: "1,3"},
}

// A mode is an isolation mechanism.
type mode struct {
	lsWeight, beWeight string // cpu.weight
	idle               bool   // cpu.idle on BE
	be                 []string
	apart, alone       bool
	scheduler          bool
	beside             bool // the scheduler lets BE run on the siblings of LS
}

// modes are the mechanisms of the preference order (docs/glossary.md), and
// other modes for comparison.
var modes = map[string]mode{
	"alone": {lsWeight: "100", beWeight: "100", alone: true},
	// All CPUs of the emulator share one stream of instructions, so a busy CPU
	// slows the others down. In this mode, LS has its CPUs alone, but the
	// emulator is as busy as in the modes below.
	"apart": {lsWeight: "100", beWeight: "100", apart: true},
	"equal": {lsWeight: "100", beWeight: "100"},
	// The weights that the kubelet sets for a pod with a request of two CPUs,
	// and for pods without requests.
	"shares": {lsWeight: "79", beWeight: "1"},
	"idle":   {lsWeight: "100", beWeight: "100", idle: true},
	"cookie": {lsWeight: "100", beWeight: "100", idle: true, be: []string{"-k"}},
	"scx":    {lsWeight: "100", beWeight: "100", idle: true, be: []string{"-p", "7"}, scheduler: true},
	// A comparison with this mode shows how much of the cost for LS comes from
	// the scheduler, and how much from keeping BE off the siblings.
	"beside": {lsWeight: "100", beWeight: "100", idle: true, be: []string{"-p", "7"}, scheduler: true, beside: true},
	"both":   {lsWeight: "100", beWeight: "100", idle: true, be: []string{"-p", "7", "-k"}, scheduler: true},
}

// A result is the printed form of one case.
type result struct {
	Scene   string        `json:"scene"`
	Mode    string        `json:"mode"`
	Burst   time.Duration `json:"burst_ns"`
	Epsilon time.Duration `json:"epsilon_ns"`
	Hold    time.Duration `json:"hold_ns"`
	Events  int           `json:"events"`
	schedtrace.Report
	LS        []json.RawMessage `json:"ls"`
	BE        []json.RawMessage `json:"be,omitempty"`
	Scheduler *counterChanges   `json:"scheduler,omitempty"`
}

// counterChanges has the changes of the scheduler's counters in the judged
// time.
type counterChanges struct {
	Variant string               `json:"variant"`
	Exit    string               `json:"exit,omitempty"`
	Counts  node.SchedulerCounts `json:"counts"`
}

// epsilon is the largest difference of the emulator's CPU clocks within one
// context switch.
const epsilon = 20 * time.Microsecond

// hold is the default of scx.Params.Hold. The judge also uses it.
const hold = 200 * time.Microsecond

// runCase runs one case: it starts the loads, traces the judged time, and
// judges the trace.
func (b *bench) runCase(ctx context.Context, sc scene, m mode, burst time.Duration) (r result, err error) {
	if err := setGroups(m); err != nil {
		return r, err
	}
	var s *scx.Scheduler
	if m.scheduler {
		if s, err = b.attach(!m.beside); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, s.Detach()) }()
		if !m.beside {
			r.Hold = hold
		}
	}
	from := now() + b.settle
	to := from + max(b.measure, 50*burst)
	// LS is busy for two thirds of the time.
	ls, err := start(ctx, "-g", lsGroup, "ls", sc.ls, nanos(burst/2), b.loopsFor(burst), nanos(from), nanos(to))
	if err != nil {
		return r, err
	}
	var be *load
	if !m.alone {
		hogs := sc.be
		if m.apart {
			hogs = sc.apart
		}
		args := append(m.be, "-g", beGroup, "be", hogs, fmt.Sprint(hogLoop), nanos(from), nanos(to))
		if be, err = start(ctx, args...); err != nil {
			return r, err
		}
	}
	if err := b.judge(&r, from, to, s); err != nil {
		return r, err
	}
	if r.LS, err = ls.wait(); err == nil && be != nil {
		r.BE, err = be.wait()
	}
	return r, err
}

// judge traces the time between from and to, and judges the trace.
func (b *bench) judge(r *result, from, to time.Duration, s *scx.Scheduler) error {
	events, rules, err := b.record(r, from, to, s)
	if err != nil {
		return err
	}
	rules.Epsilon, rules.Hold = epsilon, r.Hold
	if rules.Cores, err = cores(); err != nil {
		return err
	}
	r.Epsilon, r.Events = epsilon, len(events)
	r.Report, err = schedtrace.Judge(events, rules)
	return err
}

// record traces the time between from and to, with a margin on both sides. It
// also counts what the scheduler does between from and to.
func (b *bench) record(r *result, from, to time.Duration, s *scx.Scheduler) ([]schedtrace.Event, schedtrace.Rules, error) {
	sleepUntil(from - b.around)
	if err := b.recorder.Start(); err != nil {
		return nil, schedtrace.Rules{}, err
	}
	return b.recordUntil(r, from, to, s)
}

// recordUntil is record for a trace that has already begun.
func (b *bench) recordUntil(r *result, from, to time.Duration, s *scx.Scheduler) ([]schedtrace.Event, schedtrace.Rules, error) {
	rules := schedtrace.Rules{ClassOf: classOf, From: from, To: to}
	sleepUntil(from - b.around)
	if late := now() - from; late > 0 {
		return nil, rules, fmt.Errorf("the record began %v late", late)
	}
	before, err := statusOf(s)
	if err != nil {
		return nil, rules, err
	}
	sleepUntil(to + b.around)
	events, err := b.recorder.Stop()
	if err != nil {
		return nil, rules, err
	}
	after, err := statusOf(s)
	if err != nil {
		return nil, rules, err
	}
	if s != nil {
		r.Scheduler = &counterChanges{Variant: fmt.Sprint(after.Variant), Counts: subtractCounts(after.SchedulerCounts, before.SchedulerCounts)}
		if !after.Running {
			r.Scheduler.Exit = fmt.Sprintf("%+v", after.Exit)
		}
	}
	return events, rules, nil
}

// setGroups sets the weights of both cgroups. An idle cgroup accepts no weight.
func setGroups(m mode) error {
	if err := write(beGroup+"/cpu.idle", "0"); err != nil {
		return err
	}
	for file, value := range map[string]string{lsGroup: m.lsWeight, beGroup: m.beWeight} {
		if err := write(file+"/cpu.weight", value); err != nil {
			return err
		}
	}
	if m.idle {
		return write(beGroup+"/cpu.idle", "1")
	}
	return nil
}
