package launch

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
)

// Delay is the time for which a command's threads were runnable but had to wait
// for a CPU, summed over the threads (/proc/PID/task/TID/schedstat). The
// counters of a thread disappear when it ends, so they are sampled, and waits
// after the last sample are missing.
type Delay struct {
	Waited time.Duration
	// Seen is the CPU time in the same samples. If the CPU time of the whole group
	// is larger, the samples have missed some threads, and Waited some waits.
	Seen time.Duration
}

// A delayMeter samples the threads of a command.
type delayMeter struct {
	fs      proc.FS
	procs   func() ([]int, error)
	main    int // pid of the command; also sampled as a zombie, which procs omits
	base    Delay
	threads map[int]thread // the threads of the last sample, by thread id
	ended   Delay          // sums of ended threads
}

type thread struct{ run, delay time.Duration }

const (
	// samplePeriod is the minimum time between two samples. It bounds the time
	// after a thread's last sample, whose waits are missing.
	samplePeriod = 200 * time.Millisecond
	// A sample that took the CPU time t is followed by a pause of
	// sampleShare·t, but at most longestPause. So sampling uses 0.5 % of one
	// CPU, unless a sample takes very long.
	sampleShare  = 200
	longestPause = 2 * time.Second
)

// newDelayMeter returns a meter for the process main and the processes that
// procs lists. It counts from base, the counters of main at the start.
func newDelayMeter(fs proc.FS, procs func() ([]int, error), main int, base Delay) *delayMeter {
	return &delayMeter{fs: fs, procs: procs, main: main, base: base, threads: map[int]thread{}}
}

// sample reads the counters of each thread once, and adds those of the threads
// that have ended to their sums.
func (m *delayMeter) sample() {
	pids, err := m.procs()
	complete := err == nil
	seen := make(map[int]bool, len(m.threads))
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
			// Counters only grow. If the value is smaller, another thread has
			// got the id.
			if old := m.threads[tid]; s.Run < old.run {
				m.ended.add(old)
			}
			m.threads[tid] = thread{run: s.Run, delay: s.Delay}
			seen[tid] = true
		}
	}
	for tid, old := range m.threads {
		if complete && !seen[tid] {
			m.ended.add(old)
			delete(m.threads, tid)
		}
	}
}

func (d *Delay) add(t thread) {
	d.Waited += t.delay
	d.Seen += t.run
}

// run takes samples until stop is closed, and then a last sample.
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

// total returns the delay summed over all sampled threads, less the base.
func (m *delayMeter) total() Delay {
	d := m.ended
	for _, t := range m.threads {
		d.add(t)
	}
	return Delay{Waited: max(d.Waited-m.base.Waited, 0), Seen: max(d.Seen-m.base.Seen, 0)}
}
