package record

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A life is a simulated node over time. The load of its services changes, and
// its batch jobs start and end. Some counters sometimes cannot be read, and in
// one tick all writes fail.
type life struct {
	config policy.Config
	state  policy.State
	snap   node.Snapshot
	random *rand.Rand
	jobs   int
	number int
}

func newLife(workloads int) *life {
	l := &life{random: rand.New(rand.NewPCG(1, 2))}
	l.config = policy.Config{Suppress: suppress.Config{Enable: true, ThresholdPercent: 65}, Overcommit: overcommit.Config{
		Enable: true, CPU: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByMaxUsageRequest},
		Window: 5 * time.Minute, Look: time.Minute, DegradeAfter: time.Minute, RenewAfter: 5 * time.Minute, WorthPPM: 100_000,
		Peak: overcommit.PeakPrediction{Enable: true, MarginPercent: 10, ColdStart: 20 * time.Minute},
	}, Burst: burst.Config{Policy: burst.Both, CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: 60, PoolPercent: 50}}
	l.snap = node.Snapshot{
		At:           time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
		Capabilities: node.Capabilities{node.FeatureCPUIdle: {Verdict: node.Yes, Why: "tried"}, node.FeatureCPUBurst: {Verdict: node.Yes}, node.FeatureResctrlL3: {Verdict: node.No, Why: "no resctrl"}},
		MemoryTotal:  node.Some[unit.Bytes](8 << 30),
		Busy:         map[unit.CPU]time.Duration{},
		Knobs: node.Knobs{
			Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096},
			Now:    map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
		},
	}
	for c := range unit.CPU(8) {
		l.snap.Topology.CPUs = append(l.snap.Topology.CPUs, node.LogicalCPU{ID: c, Core: node.CoreID(c / 2)})
	}
	for i := range workloads {
		class := node.LS
		if i%2 == 1 {
			class = node.BE
		}
		l.add(class, i)
	}
	return l
}

func (l *life) add(class node.Class, i int) {
	l.join(node.WorkloadID(fmt.Sprintf("%s.slice/unit-%03d.service", strings.ToLower(string(class)), i)), class, func(w *node.Workload) {
		if i%5 == 0 {
			w.MemoryLimit, w.CPULimit = node.Some[unit.Bytes](1<<30), node.Some[unit.MilliCPU](300)
		}
		if i == 2 {
			w.Class, w.CPURequest = node.LSR, node.Some(unit.CPUs(1))
		}
	})
}

// join adds a workload with the cgroup that its ID names, after the changes.
func (l *life) join(id node.WorkloadID, class node.Class, changes ...func(*node.Workload)) {
	w := node.Workload{ID: id, Class: class, Rule: "all"}
	w.Cgroup = node.CgroupPath(w.ID)
	w.ContentionRoot = w.Cgroup.Parent()
	for _, change := range changes {
		change(&w)
	}
	at := 0
	for at < len(l.snap.Workloads) && l.snap.Workloads[at].ID < w.ID {
		at++
	}
	l.snap.Workloads = append(l.snap.Workloads[:at:at], append([]node.Workload{w}, l.snap.Workloads[at:]...)...)
	for _, p := range []node.CgroupPath{w.Cgroup, w.ContentionRoot} {
		for f, v := range map[node.File]node.Value{
			node.FileCPUWeight: node.CPUWeight{Weight: unit.WeightOf(100)},
			node.FileCPUMax:    node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod},
			node.FileMemory:    node.NoMemoryLimit,
			node.FileCPUs:      node.CPUs{},
			node.FilePIDs:      node.Maximum{Max: node.NoMaximum},
		} {
			if k := (node.Knob{Cgroup: p, File: f}); l.snap.Knobs.Now[k] == nil {
				l.snap.Knobs.Now[k] = v
			}
		}
		if k := (node.Knob{Cgroup: p, File: node.FilePolicy}); l.config.CPUQOS.Enable && l.snap.Knobs.Now[k] == nil {
			l.snap.Knobs.Now[k] = node.ThreadsNormal
		}
	}
}

// tick advances the time by every, and makes a tick.
func (l *life) tick(every time.Duration) Tick {
	l.number++
	s := l.snap
	s.At = s.At.Add(every + time.Duration(l.random.IntN(1000))*time.Microsecond)
	s.Busy = map[unit.CPU]time.Duration{}
	for c := range unit.CPU(8) {
		s.Busy[c] = l.snap.Busy[c] + time.Duration(l.random.Int64N(int64(every)))
	}
	s.Usage.CPU = node.Some(s.Busy[0])
	s.Isolation.LSOn = map[unit.CPU]time.Duration{}
	for c := range unit.CPU(8) {
		s.Isolation.LSOn[c] = l.snap.Isolation.LSOn[c] + time.Duration(l.random.Int64N(int64(every)))/2
	}
	if l.number%50 == 0 {
		s.Isolation.Failures = append(slices.Clone(s.Isolation.Failures), node.Failure{At: s.At, Mechanism: node.MechanismSiblings, Why: "no room"})
	}
	if l.number == 40 && !l.config.CPUQOS.Enable {
		s.Isolation.Request = node.Request{At: s.At, Mechanism: node.MechanismIdle}
	}
	s.Workloads = nil
	for i, w := range l.snap.Workloads {
		used := w.Usage.CPU.Or(0)
		if i%3 != 2 { // the other workloads are idle
			used += time.Duration(l.random.Int64N(int64(every) / int64(1+len(l.snap.Workloads)/4)))
			w.Usage.Memory = node.Some(unit.Bytes(l.random.Int64N(1<<20) * 4096))
		}
		w.Usage.CPU = node.Some(used)
		if w.Class == node.LS {
			w.Usage.PerCPU = map[unit.CPU]time.Duration{0: used / 2, 1: used - used/2}
			w.Usage.Delay = l.wait(w, every)
			w.Usage.Periods = node.Some(w.Usage.Periods.Or(0) + 10)
			w.Usage.ThrottledPeriods = node.Some(w.Usage.ThrottledPeriods.Or(0) + l.random.Int64N(3))
		}
		s.Workloads = append(s.Workloads, w)
	}
	l.snap = s
	s.Waits = l.waits()
	shown := s
	if l.number%17 == 0 { // a counter that cannot be read
		shown.Workloads = append([]node.Workload(nil), s.Workloads...)
		shown.Workloads[0].Usage = node.Usage{}
	}
	if l.number%29 == 0 {
		shown.Busy = nil
	}
	if l.number%23 == 0 {
		shown.Waits, shown.Isolation.LSOn = nil, nil
	}
	t := Tick{Config: l.config, Before: l.state, MaxSteps: 200}
	t.Sense, t.Decide, t.Act = 300*time.Microsecond, 200*time.Microsecond, time.Millisecond
	t.Begun = s.At.Add(time.Millisecond)
	if l.number%7 == 0 {
		t.Events = []tick.Event{{At: s.At, Kind: tick.EventDelay, Workload: "ls", Text: "waits", More: l.number % 2}}
	}
	t.Snapshot = shown
	var steps []plan.Step
	l.state, t.Wants, steps = t.decide(l.config, l.state)
	now, before := map[node.Knob]node.Value{}, map[node.Knob]node.Value{}
	for k, v := range s.Knobs.Now {
		now[k] = v
	}
	for k, v := range s.Knobs.Before {
		before[k] = v
	}
	for i, st := range steps {
		o := tick.Outcome{Step: st}
		if l.number%13 == 0 && i == 0 {
			o.Err = fmt.Errorf("apply %v: %w", st, errors.New("device or resource busy"))
		} else {
			if _, touched := before[st.Knob]; !touched && !st.Knob.File.OrdersScheduler() {
				before[st.Knob] = st.From
			}
			if st.Release {
				delete(before, st.Knob)
			}
			now[st.Knob] = st.To
		}
		t.Done = append(t.Done, o)
	}
	l.snap.Knobs.Now, l.snap.Knobs.Before = now, before
	if l.config.CPUQOS.Enable && l.number%700 == 0 {
		l.eject()
	}
	if l.number%40 == 0 { // one job starts, and one ends
		l.jobs++
		l.add(node.BE, 5000+l.jobs)
	}
	if l.number%60 == 0 {
		gone := l.snap.Workloads[0]
		l.snap.Workloads = l.snap.Workloads[1:]
		for _, f := range node.Files {
			delete(l.snap.Knobs.Now, node.Knob{Cgroup: gone.Cgroup, File: f})
			delete(l.snap.Knobs.Before, node.Knob{Cgroup: gone.Cgroup, File: f})
		}
	}
	if l.number%100 == 0 {
		l.config.Suppress.ThresholdPercent = 110 - l.config.Suppress.ThresholdPercent
	}
	return t
}

// isolates gives the simulated node a kernel with sched_ext.
func (l *life) isolates() {
	l.config.CPUQOS = isolation.Config{Enable: true}
	for _, m := range []node.Feature{node.FeatureSchedExt, node.FeatureHardwareSMT} {
		l.snap.Capabilities[m] = node.Answer{Verdict: node.Yes, Why: "tried"}
	}
	for k := range l.snap.Knobs.Now {
		if k.File == node.FileCPUWeight {
			l.snap.Knobs.Now[node.Knob{Cgroup: k.Cgroup, File: node.FilePolicy}] = node.ThreadsNormal
		}
	}
	l.snap.Knobs.Now[node.Knob{File: node.FileScheduler}] = node.Scheduler{}
}

// eject makes the kernel eject the BE scheduler. The scheduler loses its
// orders.
func (l *life) eject() {
	l.snap.Isolation.Failures = append(slices.Clone(l.snap.Isolation.Failures), node.Failure{At: l.snap.At, Mechanism: node.MechanismSchedExt, Why: "runnable task stall"})
	l.snap.Knobs.Now[node.Knob{File: node.FileScheduler}] = node.Scheduler{}
	for k := range l.snap.Knobs.Now {
		if k.File.OrdersScheduler() {
			delete(l.snap.Knobs.Now, k)
		}
	}
}

// wait adds some waits to a workload, and returns the sum of the workload's waits.
func (l *life) wait(w node.Workload, every time.Duration) node.RunQueueDelay {
	counts := make([]uint64, 29)
	copy(counts, w.Usage.Delay.Counts)
	counts[l.random.IntN(20)] += uint64(l.random.IntN(100))
	return node.RunQueueDelay{Sum: node.Some(w.Usage.Delay.Sum.Or(0) + time.Duration(l.random.Int64N(int64(every)))), Counts: counts}
}

// waits returns how long every service waited for every second job.
func (l *life) waits() []node.Wait {
	var all []node.Wait
	for _, w := range l.snap.Workloads {
		if w.Class != node.LS {
			continue
		}
		for i, r := range l.snap.Workloads {
			if r.Class == node.BE && i%4 == 1 {
				all = append(all, node.Wait{Waiter: w.ID, Runner: r.ID, Time: w.Usage.Delay.Sum.Or(0) / 2})
			}
		}
	}
	return all
}

func lived(workloads, turns int, every time.Duration) []Tick {
	l := newLife(workloads)
	var all []Tick
	for range turns {
		all = append(all, l.tick(every))
	}
	return all
}
