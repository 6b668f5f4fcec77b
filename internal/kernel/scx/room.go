package scx

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// A room holds, for each CPU, the time that was available to BE: the CPU was idle or ran BE.
type room struct {
	at   time.Time
	free map[unit.CPU]time.Duration // time available to BE since Load
	ok   map[unit.CPU]bool          // enough time was available to BE between the last two readings
}

// A CPU has room for BE if at least 1/roomDivisor of its time since the last reading
// was available to BE. There is at least the time roomEvery between two readings.
const (
	roomEvery   = 500 * time.Millisecond
	roomDivisor = 10
)

// lookForRoom computes how much time of each CPU was available to BE since the
// last reading.
func (s *Scheduler) lookForRoom(at time.Time) error {
	passed := at.Sub(s.room.at)
	if passed < roomEvery {
		return nil
	}
	next := room{at: at, free: make(map[unit.CPU]time.Duration, len(s.topology)), ok: make(map[unit.CPU]bool, len(s.topology))}
	for _, c := range s.topology {
		cpu := &s.view.cpu
		if err := element(s.view.cpus, int(c.ID), cpu); err != nil {
			return fmt.Errorf("read the counters of CPU %d: %w", c.ID, err)
		}
		free := time.Duration(cpu.ClassNs[scheduler613QosClassQOS_NONE] + cpu.ClassNs[scheduler613QosClassQOS_BE])
		before, known := s.room.free[c.ID]
		next.free[c.ID] = free
		// The program counts time only at context switches. On a CPU that stays
		// idle, the counters do not grow, so its present state decides.
		open := cpu.Stray == 0 && (cpu.Class == uint32(scheduler613QosClassQOS_NONE) || cpu.Class == uint32(scheduler613QosClassQOS_BE))
		next.ok[c.ID] = open || known && free-before > passed/roomDivisor
	}
	s.room = next
	return nil
}

// HasRoom reports whether any CPU that the thread may use had time for BE at
// the last Beat. If it is false, a thread that left sched_ext because of a
// LongWait should not return. Before Linux 7.1, the kernel's watchdog adds the
// next wait of such a thread to its old one.
func (s *Scheduler) HasRoom(tid int) bool {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &cpus); err != nil {
		return true // the thread has ended
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for cpu, ok := range s.room.ok {
		if ok && cpus.IsSet(int(cpu)) {
			return true
		}
	}
	return false
}
