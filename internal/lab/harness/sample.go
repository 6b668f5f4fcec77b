package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/meter"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// SamplePeriod is the time between two readings. It is long because the lab
// runs on the CPUs of the client.
const SamplePeriod = meter.Period

// The counters of a reading: times in seconds, and numbers of timeslices,
// refaults and major faults.
const (
	LSUsage = iota
	BEUsage
	SpinUsage
	LSThrottled
	BEThrottled
	Idle
	Steal
	RunDelay
	Timeslices
	Stalled
	LSRefaults
	LSMajorFaults
	BERefaults
	numCounters
)

// A Reading holds the values of all counters at one time.
type Reading struct {
	At    time.Time
	Count [numCounters]float64
	Limit float64 // quota of the batch work in CPUs; 0: none
	Hold  holdings

	NoSteal bool // Count[Steal] is not known
}

// A Recording is the list of the readings that a sampler took during a run.
type Recording struct {
	Mu       sync.Mutex
	Readings []Reading
	Err      error // the first error that makes the run useless
	NoPSI    bool
}

// Follow drops older readings. It then calls read once in each period until ctx
// ends, and once more after that.
func (r *Recording) Follow(ctx context.Context, period time.Duration, read func()) {
	r.Mu.Lock()
	r.Readings = nil
	r.Mu.Unlock()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		read()
		select {
		case <-ctx.Done():
			read()
			return
		case <-ticker.C:
		}
	}
}

// HasPSI reports whether the readings have the pressure on the CPU.
func (r *Recording) HasPSI() bool { return !r.NoPSI }

// Collect returns the readings so far.
func (r *Recording) Collect() ([]Reading, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Readings, r.Err
}

// A Sampler reads the counters of a run.
type Sampler struct {
	Recording
	Tree   *cgroup.Tree
	FS     proc.FS
	Tested unit.CPUSet
	// The cgroups of the service, of the batch work, of the contention root of
	// the batch work, and of the spinner. A path is empty if there is no such
	// cgroup.
	Service, Batch, Root, Spinner node.CgroupPath
	// LSProcesses lists the processes of the service. Each reading calls it,
	// because a service may start and end processes. If it is nil, their
	// threads are not read.
	LSProcesses func() ([]int, error)
	// BatchUsed returns the CPU time of the batch work. It is set only if the
	// service and the batch work run outside all cgroups.
	BatchUsed func() (time.Duration, error)
	Memory    bool // also read the memory counters

	threads meter.Threads // of the service
}

// Run drops earlier readings, and takes new ones until ctx ends. After that, it
// takes a last one.
func (s *Sampler) Run(ctx context.Context) { s.Follow(ctx, SamplePeriod, s.read) }

func (s *Sampler) read() {
	r, err := s.Reading()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if err != nil {
		if s.Err == nil {
			s.Err = err
		}
		return
	}
	s.Readings = append(s.Readings, r)
}

// Reading reads the counters once.
func (s *Sampler) Reading() (Reading, error) {
	var r Reading
	threads, err := s.readThreads()
	if err != nil {
		return r, err
	}
	r.Count[RunDelay], r.Count[Timeslices] = threads.Delay.Seconds(), float64(threads.Slices)
	stat, err := s.FS.Stat()
	if err != nil {
		return r, err
	}
	for cpu := range s.Tested.All() {
		t, known := stat.PerCPU[cpu]
		if !known {
			return r, fmt.Errorf("read the times of CPU %d: %w", cpu, cmp.Or(stat.Unread.Err("/proc/stat"), errors.New("/proc/stat has no line of it")))
		}
		r.NoSteal = r.NoSteal || stat.Unread.Lack(fmt.Sprintf("cpu%d steal", cpu))
		// The kernel measures idle time exactly, but may sample the busy times
		// only at its timer tick (kernel/time/tick-sched.c,
		// get_cpu_idle_time_us).
		r.Count[Idle] += (t.Idle + t.IOWait).Seconds()
		r.Count[Steal] += t.Steal.Seconds()
	}
	if err := s.readUse(&r, threads.Run); err != nil {
		return r, err
	}
	if s.Spinner != "" {
		spin, err := s.Tree.CPUStat(string(s.Spinner))
		if err != nil {
			return r, err
		}
		r.Count[SpinUsage] = spin.Usage.Seconds()
	}
	if !s.NoPSI {
		p, err := s.FS.Pressure("cpu")
		if err != nil && !p.Some.Known {
			s.NoPSI = true
		}
		r.Count[Stalled] = p.Some.Total.Seconds()
	}
	if s.Memory {
		return r, s.readMemory(&r)
	}
	return r, nil
}

// readThreads returns the sum of the scheduling counters of all threads of the
// service, including those that have ended.
func (s *Sampler) readThreads() (proc.SchedStat, error) {
	if s.LSProcesses == nil {
		return proc.SchedStat{}, nil
	}
	pids, err := s.LSProcesses()
	if err != nil && !errors.Is(err, proc.ErrGone) { // Watch reports a service that has ended
		return proc.SchedStat{}, err
	}
	return s.threads.Read(s.FS, pids)
}

// readUse reads the CPU time of the service and of the batch work. used is the
// CPU time of the service's threads.
func (s *Sampler) readUse(r *Reading, used time.Duration) error {
	if s.BatchUsed != nil {
		r.Count[LSUsage] = used.Seconds()
		r.At = time.Now()
		be, err := s.BatchUsed()
		r.Count[BEUsage] = be.Seconds()
		return err
	}
	ls, err := s.Tree.CPUStat(string(s.Service))
	if err != nil {
		return err
	}
	r.Count[LSUsage], r.Count[LSThrottled] = ls.Usage.Seconds(), ls.Throttled.Seconds()
	r.At = time.Now()
	if s.Batch == "" {
		return nil
	}
	be, err := s.Tree.CPUStat(string(s.Batch))
	if err != nil {
		return err
	}
	r.Count[BEUsage], r.Count[BEThrottled] = be.Usage.Seconds(), be.Throttled.Seconds()
	if !s.Root.Contains(s.Service) {
		// The quota is at the contention root, so the kernel counts throttling
		// there.
		at, err := s.Tree.CPUStat(string(s.Root))
		if err != nil {
			return err
		}
		r.Count[BEThrottled] = at.Throttled.Seconds()
	}
	if limit, err := s.Tree.ReadCPUMax(string(s.Root)); err == nil && limit.Quota != cgroup.NoQuota && limit.Period > 0 {
		r.Limit = float64(limit.Quota) / float64(limit.Period)
	}
	return nil
}

// Capacity returns the number of tested CPUs.
func (s *Sampler) Capacity() int { return s.Tested.Len() }

// ReadingAt interpolates the counters for time t.
func ReadingAt(course []Reading, t time.Time) Reading {
	i := sort.Search(len(course), func(i int) bool { return !course[i].At.Before(t) })
	switch {
	case len(course) == 0:
		return Reading{At: t}
	case i == 0:
		return course[0]
	case i == len(course):
		return course[i-1]
	}
	a, b := course[i-1], course[i]
	r := Reading{At: t, Limit: a.Limit, Hold: a.Hold}
	f := float64(t.Sub(a.At)) / float64(b.At.Sub(a.At))
	for k := range r.Count {
		r.Count[k] = a.Count[k] + f*(b.Count[k]-a.Count[k])
	}
	return r
}

// A Spent is the difference between two readings. LS, BE, other, foreign and
// Busy are mean numbers of CPUs in use.
type Spent struct {
	Wall           float64 // seconds
	LS, BE, other  float64 // other includes the spinner
	foreign        float64 // work outside of the experiment
	StealRatio     float64
	noSteal        bool // StealRatio is not known
	Count          [numCounters]float64
	Busy, capacity float64
}

func Between(a, b Reading, tested int) Spent {
	s := Spent{Wall: b.At.Sub(a.At).Seconds(), capacity: float64(tested)}
	if s.Wall <= 0 {
		return Spent{capacity: s.capacity}
	}
	for k := range s.Count {
		s.Count[k] = max(b.Count[k]-a.Count[k], 0)
	}
	s.LS, s.BE = s.Count[LSUsage]/s.Wall, s.Count[BEUsage]/s.Wall
	s.noSteal = a.NoSteal || b.NoSteal
	s.StealRatio = s.Count[Steal] / s.Wall / s.capacity
	s.Busy = s.capacity - (s.Count[Idle]+s.Count[Steal])/s.Wall
	// The idle counter advances in steps of 10 ms, but the CPU counters of the
	// cgroups are exact. Therefore their sum is the least value of Busy.
	s.Busy = min(max(s.Busy, s.LS+s.BE), s.capacity)
	s.other = max(s.Busy-s.LS-s.BE, 0)
	s.foreign = max(s.other-s.Count[SpinUsage]/s.Wall, 0)
	return s
}

// samples returns the samples between two times, for the picture.
func samples(course []Reading, from, to time.Time, tested int) []report.Sample {
	var out []report.Sample
	for i := 1; i < len(course); i++ {
		if course[i].At.Before(from) || course[i-1].At.After(to) {
			continue
		}
		s := Between(course[i-1], course[i], tested)
		out = append(out, report.Sample{
			At: course[i].At.Sub(from), LS: s.LS, BE: s.BE, Other: s.other, Limit: course[i].Limit,
		})
	}
	return out
}

// holdings is the memory of the service and of the batch work at one time.
type holdings struct {
	LSFile, BEFile, BEAnon unit.Bytes
}

// readMemory adds the memory counters to a reading.
func (s *Sampler) readMemory(r *Reading) error {
	ls, err := s.Tree.MemoryStat(string(s.Service))
	if err != nil {
		return err
	}
	r.Hold.LSFile = ls.File
	r.Count[LSRefaults], r.Count[LSMajorFaults] = float64(ls.Refaults), float64(ls.MajorFaults)
	if s.Batch == "" {
		return nil
	}
	be, err := s.Tree.MemoryStat(string(s.Batch))
	if err != nil {
		return err
	}
	r.Hold.BEFile, r.Hold.BEAnon = be.File, be.Anon
	r.Count[BERefaults] = float64(be.Refaults)
	return nil
}
