package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/schedtrace"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
)

// The cgroups that the kubelet makes on a node with systemd: for a service with
// requests and for a batch pod without requests. daemonGroup is for daemons of
// the system.
const (
	kubepods     = cgroupRoot + "/kubepods"
	serviceClass = kubepods + "/burstable"
	servicePod   = serviceClass + "/pod-service"
	serviceGroup = servicePod + "/service"
	batchClass   = kubepods + "/besteffort"
	batchPod     = batchClass + "/pod-batch"
	batchGroup   = batchPod + "/batch"
	daemonGroup  = cgroupRoot + "/system.slice"
)

// A means is one way, of Tenon or of the kubelet, to prefer a service to batch
// work.
type means struct {
	name      string
	idle      []string // cgroups with cpu.idle
	longSlice bool     // batch threads request the longest time slice
	scheduler bool     // batch threads are in sched_ext, under Tenon's scheduler
	alone     bool     // there is no batch work
}

// allMeans lists the means, in the order of the table.
var allMeans = []means{
	{name: "alone", alone: true},
	{name: "default"},
	{name: "floor", longSlice: true},
	{name: "idle", idle: []string{batchClass}},
	{name: "idle-pods", idle: []string{batchPod, batchGroup}, longSlice: true},
	{name: "scx", idle: []string{batchClass}, scheduler: true},
}

// The load is the same in all cells. The times are for a machine whose CPUs are
// all busy. A thread of the service needs serviceWork for a request, and is busy
// for a quarter of the time. There is one daemon and one batch thread for each
// CPU.
const (
	serviceWork = time.Millisecond
	serviceGap  = 4 * time.Millisecond // mean time between the due times of two requests
	daemonWork  = 500 * time.Microsecond
	daemonGap   = 10 * time.Millisecond
)

// A meansResult is the printed form of one cell (means, threads, seed).
type meansResult struct {
	Kernel  string        `json:"kernel"` // release
	CPUs    int           `json:"cpus"`
	Threads int           `json:"threads"`
	Means   string        `json:"means"`
	Seed    int           `json:"seed"`
	LateAt  time.Duration `json:"late_at_ns"` // a wake-up with a longer wait is late
	schedtrace.Waits
	Service   []json.RawMessage `json:"service"`
	Scheduler *counterChanges   `json:"scheduler,omitempty"`
}

// A meansPlan lists the cells to run.
type meansPlan struct {
	means          []string
	threads, seeds []int
	late           time.Duration
}

// numbers parses a list such as "1,4,8".
func numbers(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want positive numbers, separated by commas", text)
		}
		list = append(list, n)
	}
	return list, nil
}

// run runs all cells. It groups them by means, because the emulator takes
// seconds to load the scheduler.
func (p meansPlan) run(ctx context.Context, b *bench) error {
	for _, name := range p.means {
		i := slices.IndexFunc(allMeans, func(m means) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("unknown means %q", name)
		}
		if err := p.runOne(ctx, b, allMeans[i]); err != nil {
			return fmt.Errorf("means %s: %w", name, err)
		}
	}
	return nil
}

func (p meansPlan) runOne(ctx context.Context, b *bench, m means) (err error) {
	if err := makeTree(); err != nil {
		return err
	}
	var s *scx.Scheduler
	if m.scheduler {
		if s, err = loadScheduler(false, map[string]scx.Class{serviceGroup: scx.LSX, batchGroup: scx.BE}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	for _, threads := range p.threads {
		for _, seed := range p.seeds {
			if s != nil {
				if err := s.Beat(); err != nil {
					return err
				}
			}
			r, err := b.cell(ctx, m, threads, seed, p.late, s)
			if err != nil {
				return fmt.Errorf("%d threads, seed %d: %w", threads, seed, err)
			}
			if err := report(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// cell runs one cell.
func (b *bench) cell(ctx context.Context, m means, threads, seed int, late time.Duration, s *scx.Scheduler) (r meansResult, err error) {
	byCPU, err := cores()
	if err != nil {
		return r, err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return r, err
	}
	r = meansResult{Kernel: unix.ByteSliceToString(name.Release[:]), CPUs: len(byCPU), Threads: threads, Means: m.name, Seed: seed, LateAt: late}
	if err := m.weigh(r.CPUs, threads); err != nil {
		return r, err
	}
	// Before it starts a trace, the kernel drops the former one, and for this it
	// waits for all CPUs. If batch work already runs on them, that takes longer
	// than the margin of record.
	if err := b.recorder.Start(); err != nil {
		return r, err
	}
	from := now() + b.settle + b.around
	to := from + b.measure
	var loads []*load
	defer func() {
		for _, l := range loads {
			lines, failed := l.wait()
			err = errors.Join(err, failed)
			if slices.Contains(l.args, "serve") {
				r.Service = lines
			}
		}
	}()
	for _, args := range m.loads(b, r.CPUs, threads, seed) {
		l, err := start(ctx, append(args, nanos(from), nanos(to+100*time.Millisecond))...)
		if err != nil {
			return r, err
		}
		loads = append(loads, l)
	}
	var c result
	events, rules, err := b.recordUntil(&c, from, to, s)
	if err != nil {
		return r, err
	}
	rules.Cores, rules.Late, r.Scheduler = byCPU, late, c.Scheduler
	r.Waits, err = schedtrace.JudgeWaits(events, rules)
	return r, err
}

// loads returns the arguments of the load programs, without their times.
func (m means) loads(b *bench, cpus, threads, seed int) [][]string {
	random := func(what, group string, n int, gap, work time.Duration) []string {
		return []string{"-g", group, what, strconv.Itoa(n), strconv.Itoa(seed), nanos(gap), b.loopsFor(work)}
	}
	all := [][]string{
		random("serve", serviceGroup, threads, serviceGap, serviceWork),
		random("daemons", daemonGroup, cpus, daemonGap, daemonWork),
	}
	if m.alone {
		return all
	}
	batch := []string{"-g", batchGroup}
	if m.longSlice {
		batch = append(batch, "-s", nanos(task.LongSlice))
	}
	if m.scheduler {
		batch = append(batch, "-p", "7")
	}
	anywhere := strings.Repeat("-1,", cpus-1) + "-1"
	return append(all, append(batch, "be", anywhere, strconv.Itoa(hogLoop)))
}

// makeTree makes the cgroups.
func makeTree() error {
	for _, dir := range []string{kubepods, serviceClass, servicePod, serviceGroup, batchClass, batchPod, batchGroup, daemonGroup} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	for _, dir := range []string{kubepods, serviceClass, servicePod, batchClass, batchPod} {
		if err := write(dir+"/cgroup.subtree_control", "+cpu"); err != nil {
			return err
		}
	}
	return nil
}

// weigh sets cpu.idle, and the weights that the kubelet sets for these pods.
// Each thread of the service requests and uses 250 millicores.
func (m means) weigh(cpus, threads int) error {
	service := kubeletWeight(256 * threads)
	for _, dir := range []string{batchClass, batchPod, batchGroup} {
		if err := write(dir+"/cpu.idle", "0"); err != nil {
			return err
		}
	}
	for dir, weight := range map[string]int{
		kubepods: kubeletWeight(1024 * cpus), serviceClass: service, servicePod: service, serviceGroup: service,
		batchClass: 1, batchPod: 1, batchGroup: 1, daemonGroup: 100,
	} {
		if err := write(dir+"/cpu.weight", strconv.Itoa(weight)); err != nil {
			return err
		}
	}
	for _, dir := range m.idle {
		if err := write(dir+"/cpu.idle", "1"); err != nil {
			return err
		}
	}
	return nil
}

// kubeletWeight returns the cpu.weight that the kubelet sets for cpu.shares
// (pkg/kubelet/cm/cgroup_manager_linux.go, CPUSharesToCPUWeight).
func kubeletWeight(shares int) int { return 1 + max(0, shares-2)*9999/262142 }
