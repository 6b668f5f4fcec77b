package launch

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
)

// Delay is the time that a command's threads were ready to run and waited for a
// CPU, summed over its threads, from /proc/PID/task/TID/schedstat. The counters
// of a thread vanish when it ends, so they are sampled: waits after the last
// sample of a thread are missing.
type Delay struct {
	Waited time.Duration
	// Seen is the CPU time of the same threads in the same samples. Where it
	// falls short of the CPU time of the whole group, Waited does too.
	Seen time.Duration
}

// A delayMeter samples the threads of a group.
type delayMeter struct {
	fs      proc.FS
	procs   func() ([]int, error)
	main    int // sampled even as a zombie, which cgroup.procs does not list
	base    Delay
	threads map[int]thread // by thread id
	ended   Delay          // of threads whose id belongs to another thread now
}

type thread struct{ run, delay time.Duration }

const (
	// samplePeriod is the shortest time between two samples; waits of a
	// thread's last period are lost.
	samplePeriod = 200 * time.Millisecond
	// sampleShare bounds the cost: a sample that took t of CPU time is
	// followed by a pause of sampleShare·t, that is, 0.5 % of one CPU, up to
	// the longest pause.
	sampleShare  = 200
	longestPause = 2 * time.Second
)

// newDelayMeter returns a meter of main, which starts with base on its
// counters, and of procs.
func newDelayMeter(fs proc.FS, procs func() ([]int, error), main int, base Delay) *delayMeter {
	return &delayMeter{fs: fs, procs: procs, main: main, base: base, threads: map[int]thread{}}
}

// sample reads every thread of the group once. Threads come and go meanwhile:
// one that cannot be read is left out.
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
			// Counters only grow; a smaller one is another thread with the
			// same id.
			if old := m.threads[tid]; s.Run < old.run {
				m.ended.Waited += old.delay
				m.ended.Seen += old.run
			}
			m.threads[tid] = thread{run: s.Run, delay: s.Delay}
		}
	}
}

// run samples until stop is closed, and once more at the end.
func (m *delayMeter) run(stop <-chan struct{}) {
	runtime.LockOSThread() // its CPU time is the cost of the samples
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

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// total returns the sums over all threads seen so far.
func (m *delayMeter) total() Delay {
	d := m.ended
	for _, t := range m.threads {
		d.Waited += t.delay
		d.Seen += t.run
	}
	return Delay{Waited: max(d.Waited-m.base.Waited, 0), Seen: max(d.Seen-m.base.Seen, 0)}
}
