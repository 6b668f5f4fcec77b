package lab

import (
	"context"
	"sort"
	"sync"
	"time"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/unit"
)

// samplePeriod is the time between two readings. The lab shares the client's
// CPUs, so it must not be often.
const samplePeriod = 200 * time.Millisecond

// The counters of a reading: seconds, or a number of slices.
const (
	lsUsage = iota
	beUsage
	spinUsage
	lsThrottled
	beThrottled
	idle
	steal
	runDelay
	timeslices
	stalled
	lsRefaults
	lsMajorFaults
	beRefaults
	numCounters
)

// A reading is all counters at one moment.
type reading struct {
	at    time.Time
	count [numCounters]float64
	limit float64 // the batch work's quota in CPUs; 0: none
	hold  holdings
}

// A recording is what a sampler has read along the course of a run.
type recording struct {
	mu       sync.Mutex
	readings []reading
	err      error // the first that makes the run useless
	noPSI    bool
}

// follow forgets what was read before, and reads each period until ctx ends,
// and once more then.
func (r *recording) follow(ctx context.Context, period time.Duration, read func()) {
	r.mu.Lock()
	r.readings = nil
	r.mu.Unlock()
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

// course returns the readings so far.
func (r *recording) course() ([]reading, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readings, r.err
}

// A sampler reads the counters of a run along its course.
type sampler struct {
	recording
	tree   *cgroup.Tree
	fs     proc.FS
	tested unit.CPUSet
	// The groups of the service, of the batch work, of the place where the
	// batch work meets the service, and of the spinner. Empty: there is none.
	service, batch, meet, spinner node.CgroupPath
	ls                            []int // processes of the service
	memory                        bool  // memory is counted, too
}

func (s *sampler) run(ctx context.Context) { s.follow(ctx, samplePeriod, s.read) }

func (s *sampler) read() {
	r, err := s.reading()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.err == nil {
			s.err = err
		}
		return
	}
	s.readings = append(s.readings, r)
}

func (s *sampler) reading() (reading, error) {
	var r reading
	for _, pid := range s.ls {
		threads, err := s.fs.Threads(pid)
		if err != nil {
			return r, err
		}
		for _, tid := range threads {
			st, err := s.fs.SchedStat(pid, tid)
			if err != nil {
				return r, err
			}
			r.count[runDelay] += st.Delay.Seconds()
			r.count[timeslices] += float64(st.Slices)
		}
	}
	stat, err := s.fs.Stat()
	if err != nil {
		return r, err
	}
	for cpu := range s.tested.All() {
		t := stat.PerCPU[cpu]
		// Idle time is measured even where the busy kinds are only sampled by
		// the tick (kernel/time/tick-sched.c, get_cpu_idle_time_us).
		r.count[idle] += (t.Idle + t.IOWait).Seconds()
		r.count[steal] += t.Steal.Seconds()
	}
	ls, err := s.tree.CPUStat(string(s.service))
	if err != nil {
		return r, err
	}
	r.count[lsUsage], r.count[lsThrottled] = ls.Usage.Seconds(), ls.Throttled.Seconds()
	r.at = time.Now()
	if s.batch != "" {
		be, err := s.tree.CPUStat(string(s.batch))
		if err != nil {
			return r, err
		}
		r.count[beUsage], r.count[beThrottled] = be.Usage.Seconds(), be.Throttled.Seconds()
		if !s.meet.Contains(s.service) {
			// The quota is at the meeting point, and so is its throttling.
			if at, err := s.tree.CPUStat(string(s.meet)); err == nil {
				r.count[beThrottled] = at.Throttled.Seconds()
			}
		}
		if limit, err := s.tree.ReadCPUMax(string(s.meet)); err == nil && limit.Quota != cgroup.NoQuota && limit.Period > 0 {
			r.limit = float64(limit.Quota) / float64(limit.Period)
		}
	}
	if s.spinner != "" {
		spin, err := s.tree.CPUStat(string(s.spinner))
		if err != nil {
			return r, err
		}
		r.count[spinUsage] = spin.Usage.Seconds()
	}
	if !s.noPSI {
		p, err := s.fs.Pressure("cpu")
		if err != nil {
			s.noPSI = true
		}
		r.count[stalled] = p.Some.Total.Seconds()
	}
	if s.memory {
		return r, s.readMemory(&r)
	}
	return r, nil
}

func (s *sampler) capacity() int { return s.tested.Len() }

// readingAt interpolates the counters at t.
func readingAt(course []reading, t time.Time) reading {
	i := sort.Search(len(course), func(i int) bool { return !course[i].at.Before(t) })
	switch {
	case len(course) == 0:
		return reading{at: t}
	case i == 0:
		return course[0]
	case i == len(course):
		return course[i-1]
	}
	a, b := course[i-1], course[i]
	r := reading{at: t, limit: a.limit, hold: a.hold}
	f := float64(t.Sub(a.at)) / float64(b.at.Sub(a.at))
	for k := range r.count {
		r.count[k] = a.count[k] + f*(b.count[k]-a.count[k])
	}
	return r
}

// A spent value is what happened between two readings; CPU as a number of
// CPUs in use.
type spent struct {
	wall           float64 // seconds
	ls, be, other  float64 // other includes the spinner
	foreign        float64 // what is not of the experiment
	stealRatio     float64
	count          [numCounters]float64
	busy, capacity float64
}

func between(a, b reading, tested int) spent {
	s := spent{wall: b.at.Sub(a.at).Seconds(), capacity: float64(tested)}
	if s.wall <= 0 {
		return spent{capacity: s.capacity}
	}
	for k := range s.count {
		s.count[k] = max(b.count[k]-a.count[k], 0)
	}
	s.ls, s.be = s.count[lsUsage]/s.wall, s.count[beUsage]/s.wall
	s.stealRatio = s.count[steal] / s.wall / s.capacity
	s.busy = s.capacity - (s.count[idle]+s.count[steal])/s.wall
	// The idle counter has steps of 10 ms; the groups' own counters do not.
	s.busy = min(max(s.busy, s.ls+s.be), s.capacity)
	s.other = max(s.busy-s.ls-s.be, 0)
	s.foreign = max(s.other-s.count[spinUsage]/s.wall, 0)
	return s
}

// samples is the course between two moments, for the picture.
func samples(course []reading, from, to time.Time, tested int) []report.Sample {
	var out []report.Sample
	for i := 1; i < len(course); i++ {
		if course[i].at.Before(from) || course[i-1].at.After(to) {
			continue
		}
		s := between(course[i-1], course[i], tested)
		out = append(out, report.Sample{
			At: course[i].at.Sub(from), LS: s.ls, BE: s.be, Other: s.other, Limit: course[i].limit,
		})
	}
	return out
}
