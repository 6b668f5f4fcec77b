package launch

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
)

// Delay is the time that the threads of a command were runnable but waited for
// a CPU. It is the sum over the threads, from /proc/PID/task/TID/schedstat. The
// counters of a thread disappear when it ends, so they are sampled. Waits after
// the last sample of a thread are missing.
type Delay struct {
	Waited time.Duration
	// Seen is the CPU time of the same threads in the same samples. If it is
	// less than the CPU time of the whole group, waits are missing in Waited.
	Seen time.Duration
}

// A delayMeter samples the threads of a group.
type delayMeter struct {
	fs      proc.FS
	procs   func() ([]int, error)
	main    int // sampled even as a zombie, which cgroup.procs does not list
	base    Delay
	threads map[int]thread // by thread id
	ended   Delay          // of threads whose id another thread has now
}

type thread struct{ run, delay time.Duration }

const (
	// samplePeriod is the minimum time between two samples. If a thread waits
	// after its last sample, that wait is lost.
	samplePeriod = 200 * time.Millisecond
	// sampleShare limits what sampling costs. If a sample took the CPU time t,
	// a pause of sampleShare·t follows (0.5 % of one CPU), but not more than
	// the longest pause.
	sampleShare  = 200
	longestPause = 2 * time.Second
)

// newDelayMeter returns a meter. It samples the main process, whose counters
// begin at base, and the processes that a function (procs) returns.
func newDelayMeter(fs proc.FS, procs func() ([]int, error), main int, base Delay) *delayMeter {
	return &delayMeter{fs: fs, procs: procs, main: main, base: base, threads: map[int]thread{}}
}

// sample reads every thread of the group once. If a thread has ended since it
// was listed, it is skipped.
func (m *delayMeter) sample() {
	pids, _ := m.procs()
	if !slices.Contains(pids, m.main) {
		pids = append(pids, m.main)
	}
	for _, pid := range pids {
		tids, err := m.fs.Threads(pid)
		if err != nil {
			continue
		}
		for _, tid := range tids {
			s, err := m.fs.SchedStat(pid, tid)
			if err != nil {
				continue
			}
			// Counters only grow. If a value is smaller, it belongs to another
			// thread with the same id.
			if old := m.threads[tid]; s.Run < old.run {
				m.ended.Waited += old.delay
				m.ended.Seen += old.run
			}
			m.threads[tid] = thread{run: s.Run, delay: s.Delay}
		}
	}
}

// run takes samples until a channel (stop) is closed, and then a last one.
func (m *delayMeter) run(stop <-chan struct{}) {
	runtime.LockOSThread() // the CPU time of this thread is the cost of the samples
	defer runtime.UnlockOSThread()
	for pause := samplePeriod / 4; ; {
		select {
		case <-stop:
			m.sample()
			return
		case <-time.After(pause):
		}
		start := threadCPU()
		m.sample()
		pause = min(max(samplePeriod, sampleShare*(threadCPU()-start)), longestPause)
	}
}

// threadCPU returns the CPU time of the calling thread.
func threadCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// total returns the sums over all sampled threads.
func (m *delayMeter) total() Delay {
	d := m.ended
	for _, t := range m.threads {
		d.Waited += t.delay
		d.Seen += t.run
	}
	return Delay{Waited: max(d.Waited-m.base.Waited, 0), Seen: max(d.Seen-m.base.Seen, 0)}
}
