package meter

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/proc"
)

// Threads adds up the counters of threads, including threads that end. The
// kernel forgets the counters of a thread that has ended, so Read must be
// called several times a second. The zero value is ready for use. It is not
// safe for concurrent use.
type Threads struct {
	total proc.SchedStat
	// lastCounters holds the last counters of each thread by its ID. It keeps
	// the counters of threads that seem to have ended, because a list of
	// processes may omit a process that still runs.
	lastCounters map[int]proc.SchedStat
}

// Read reads the threads of processes. It returns the sum over all threads that
// it has ever read. It skips threads and processes that end meanwhile.
func (t *Threads) Read(fs proc.FS, pids []int) (proc.SchedStat, error) {
	if t.lastCounters == nil {
		t.lastCounters = map[int]proc.SchedStat{}
	}
	for _, pid := range pids {
		threads, err := fs.Threads(pid)
		if errors.Is(err, proc.ErrGone) {
			continue
		}
		if err != nil {
			return t.total, err
		}
		for _, tid := range threads {
			now, err := fs.SchedStat(pid, tid)
			if errors.Is(err, proc.ErrGone) {
				continue
			}
			if err != nil {
				return t.total, err
			}
			t.add(tid, now)
		}
	}
	return t.total, nil
}

func (t *Threads) add(tid int, now proc.SchedStat) {
	last := t.lastCounters[tid]
	if now.Run < last.Run || now.Delay < last.Delay || now.Slices < last.Slices {
		last = proc.SchedStat{} // the kernel gave the ID to another thread
	}
	t.lastCounters[tid] = now
	t.total.Run += now.Run - last.Run
	t.total.Delay += now.Delay - last.Delay
	t.total.Slices += now.Slices - last.Slices
}
