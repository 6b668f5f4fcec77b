package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/perf"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/meter"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A round is one run of a cell.
type round struct {
	*machine
	cell         Cell
	index, block int
	div          division
	slots        []*slot
	agent        *testbed.AgentRunner
	void         []string
}

// measure runs a cell once.
func (b *machine) measure(ctx context.Context, cell Cell, index, block int) (_ measured, err error) {
	r := &round{machine: b, cell: cell, index: index, block: block, div: b.divide(cell, b.hardware, b.Seed, block)}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.build(); err != nil {
		return measured{}, err
	}
	switch cell.Strategy {
	case Tenon:
		r.agent, err = r.govern(ctx)
	case StaticBurst:
		r.agent, err = r.RunPools(ctx, r.groups(), cell.Limit)
	}
	if err != nil {
		return measured{}, err
	}
	var rows []jobs.Job
	if b.Fill == Window && !r.div.waiting {
		rows, err = r.window(ctx)
	} else {
		rows, err = r.wholeJobs(ctx)
	}
	if err != nil {
		return measured{}, err
	}
	_, faults := r.agent.Report()
	void := append(r.void, faults...)
	for _, j := range rows {
		if j.Extra.Void != "" {
			void = append(void, fmt.Sprintf("job %d: %s", j.Index, j.Extra.Void))
		}
	}
	if len(void) > 0 {
		for i := range rows {
			rows[i].Extra.Void = strings.Join(void, "; ")
		}
	}
	return measured{rows, void}, nil
}

func (r *round) group() node.CgroupPath { return r.Root.Join("jobs") }

// build makes the cgroups of the slots.
func (r *round) build() error {
	for _, p := range []node.CgroupPath{r.Root, r.group()} {
		if err := r.Host.MakeGroup(p); err != nil {
			return err
		}
		if err := r.Tree.WriteCPUs(string(p), r.Place.Tested); err != nil {
			return err
		}
	}
	for i, p := range r.div.slots {
		s := &slot{b: r.machine, index: i, group: r.group().Join(fmt.Sprintf("slot-%d", i)), bounds: p}
		s.meter = meter.Meter{FS: r.FS, Tree: r.Tree, Group: s.group}
		r.slots = append(r.slots, s)
		if err := s.build(r.cell); err != nil {
			return err
		}
	}
	return nil
}

// govern starts Tenon's loop. For the loop, the jobs are best-effort workloads
// with a CPU limit.
func (r *round) govern(ctx context.Context) (*testbed.AgentRunner, error) {
	var list []node.Workload
	for i, s := range r.slots {
		list = append(list, node.Workload{
			ID: node.WorkloadID(fmt.Sprintf("job-%d", i)), Class: node.BE, Cgroup: s.group, ContentionRoot: r.group(),
			CPULimit: node.Some(r.cell.Limit), CPURequest: node.Some(r.cell.Limit),
		})
	}
	return r.RunAgent(ctx, list, policy.Config{CPUQOS: testbed.Pinned(""), NodeCPUs: facts.NodeCPUs{CPUs: r.Place.Tested}}, true)
}

func (r *round) groups() []node.CgroupPath {
	all := make([]node.CgroupPath, len(r.slots))
	for i, s := range r.slots {
		all[i] = s.group
	}
	return all
}

// close ends all jobs and removes the cgroups.
func (r *round) close() error {
	err := r.agent.Stop()
	for _, s := range r.slots {
		s.end()
	}
	return errors.Join(err, testbed.Clear(r.Root, r.Host, r.Tree))
}

// length returns the length of the measured part. Jobs that get little CPU do
// little work in a short time. Therefore they need a longer measured part.
func (r *round) length() time.Duration {
	all := unit.MilliCPU(0)
	for _, p := range r.div.slots {
		if p.Quota == 0 {
			return r.Window
		}
		all += p.Quota
	}
	if all < 400 {
		return 2 * r.Window
	}
	return r.Window
}

// window measures endless jobs for a time. It writes the quotas only after
// every job has begun to work. Under a small quota, the first frame of a job
// would take many seconds.
func (r *round) window(ctx context.Context) ([]jobs.Job, error) {
	for i, s := range r.slots {
		if err := s.start(i, r.cell.Threads, 0); err != nil {
			return nil, err
		}
	}
	for _, s := range r.slots {
		if err := s.awaitFirstUnit(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range r.slots {
		if err := s.hold(); err != nil {
			return nil, err
		}
	}
	if err := testbed.Pause(ctx, r.Warmup); err != nil {
		return nil, err
	}
	disturbances, err := r.watch()
	if err != nil {
		return nil, err
	}
	from, to, err := meter.During(ctx, r.slots, func(ctx context.Context) error { return testbed.Pause(ctx, r.length()) })
	if err != nil {
		return nil, err
	}
	if r.void, err = disturbances(); err != nil {
		return nil, err
	}
	// Wait for progress reports after the end of the run: the progress at the
	// end is interpolated between two reports.
	if err := testbed.Pause(ctx, 2*meter.Period); err != nil {
		return nil, err
	}
	var rows []jobs.Job
	for i, s := range r.slots {
		j := r.row(s, i, from[i], to[i])
		frames, _ := s.marks.ProgressBetween(j.In, j.Out)
		j.Extra.Work, j.Extra.LocalJobs = node.Some(frames), node.Some(float64(r.cell.Jobs))
		if r.whole > 0 {
			j.Extra.JobWork = node.Some(r.whole)
		}
		if err := s.exitError(); err != nil {
			j.Extra.Void = err.Error()
		} else if frames <= 0 {
			j.Extra.Void = fmt.Sprintf("it did no work in %v", j.Duration().Round(time.Millisecond))
		}
		rows = append(rows, j)
	}
	return rows, nil
}

// row describes what the job in a slot did between two readings.
func (r *round) row(s *slot, number int, from, to meter.Reading) jobs.Job {
	kindOf := r.Type
	if kindOf == "" {
		kindOf = strings.ReplaceAll(string(r.cell.Strategy), "-", "")
	}
	j := jobs.Job{
		Host: r.host, Type: kindOf, Concurrency: r.cell.Jobs, CPU: r.cell.Limit, Memory: r.cell.Memory, Index: number,
		Pod: fmt.Sprintf("run%d_lab_job", r.index), Container: number, In: from.At.UTC(), Out: to.At.UTC(), Source: r.task.source(), Precision: time.Nanosecond,
	}
	j.Extra = jobs.Extra{
		Strategy: string(r.cell.Strategy), Block: r.block, Run: r.index, Slice: s.bounds.CPUs, Threads: r.cell.Threads,
		CPUSeconds:       node.Some((to.CPU.Usage - from.CPU.Usage).Seconds()),
		Periods:          node.Some(to.CPU.Periods - from.CPU.Periods),
		ThrottledPeriods: node.Some(to.CPU.NrThrottled - from.CPU.NrThrottled),
		ThrottledSeconds: node.Some((to.CPU.Throttled - from.CPU.Throttled).Seconds()),
		WaitSeconds:      node.Some((to.Wait - from.Wait).Seconds()),
		Migrations:       meter.CountBetween(from, to, perf.Migrations), Switches: meter.CountBetween(from, to, perf.Switches),
		Cycles: meter.CountBetween(from, to, perf.Cycles), Instructions: meter.CountBetween(from, to, perf.Instructions), CacheMisses: meter.CountBetween(from, to, perf.CacheMisses),
	}
	if r.cell.Strategy == StaticBurst { // Tenon's loop chose the pool
		if cpus, err := r.Tree.EffectiveCPUs(string(s.group)); err == nil {
			j.Extra.Slice = cpus
		}
	}
	if peak, err := cgroup.MemoryPeak(r.Tree, string(s.group)); err == nil {
		j.Extra.PeakMemory = node.Some(peak)
	}
	return j
}

// watch starts to watch the tested CPUs for other work.
func (r *round) watch() (func() ([]string, error), error) {
	return harness.Disturbances(r.Site, r.group(), r.StealPercent, r.ForeignPercent)
}
