package usage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// stat is a line of /proc/PID/task/TID/stat in a state.
func stat(tid int, state string) string {
	return fmt.Sprintf("%d (work) %s 1 1 1%s", tid, state, strings.Repeat(" 0", 46))
}

// reads returns the threads of web after a reading of its quota's counters.
func (h *counted) reads(at time.Time, write func(group, file, text string), periods, throttled int) (threads, runnable node.Maybe[int]) {
	write("web", "cpu.stat", fmt.Sprintf("usage_usec 1\nnr_periods %d\nnr_throttled %d\nthrottled_usec 0", periods, throttled))
	s := node.Snapshot{At: at}
	w := h.workloads["web"]
	w.Usage, _ = h.Workload(w)
	s.Workloads = append(s.Workloads, w)
	h.FillThreads(&s)
	return s.Workloads[0].Usage.Threads, s.Workloads[0].Usage.Runnable
}

func TestThreadsAreCountedWhileMostPeriodsAreThrottled(t *testing.T) {
	h, write, procfs := newCounted(t, "web")
	write("web", "cgroup.procs", "10\n20")
	for tid, state := range map[int]string{10: "R", 11: "R", 12: "S"} {
		procfs(fmt.Sprintf("10/task/%d/stat", tid), stat(tid, state))
	}
	procfs("20/task/20/stat", stat(20, "R"))
	at := time.Unix(100, 0)
	none := node.Maybe[int]{}
	if threads, _ := h.reads(at, write, 1000, 900); threads != none {
		t.Errorf("before the second reading it has %v threads", threads)
	}
	if threads, _ := h.reads(at.Add(time.Second), write, 1010, 904); threads != none {
		t.Errorf("throttled in 4 of 10 periods it has %v threads", threads)
	}
	threads, runnable := h.reads(at.Add(2*time.Second), write, 1020, 913)
	if threads != node.Some(4) || runnable != node.Some(3) {
		t.Errorf("it has %v threads, %v of them runnable, want 4 and 3", threads, runnable)
	}
	procfs("20/task/20/stat", stat(20, "S"))
	if _, runnable := h.reads(at.Add(3*time.Second), write, 1030, 922); runnable != node.Some(3) {
		t.Errorf("a second after the last count %v are runnable", runnable)
	}
	if _, runnable := h.reads(at.Add(4*time.Second), write, 1040, 931); runnable != node.Some(2) {
		t.Errorf("after two seconds %v are runnable, want 2", runnable)
	}
	if threads, _ := h.reads(at.Add(5*time.Second), write, 1050, 931); threads != none {
		t.Errorf("not throttled any more, it has %v threads", threads)
	}
}

func TestOfManyThreadsAPartIsRead(t *testing.T) {
	h, write, procfs := newCounted(t, "web")
	write("web", "cgroup.procs", "10")
	for tid := 10; tid < 10+4*threadsCounted; tid++ {
		state := "R"
		if tid%8 >= 4 {
			state = "S"
		}
		procfs(fmt.Sprintf("10/task/%d/stat", tid), stat(tid, state))
	}
	at := time.Unix(100, 0)
	h.reads(at, write, 10, 10)
	threads, runnable := h.reads(at.Add(time.Second), write, 20, 20)
	if threads != node.Some(4*threadsCounted) || runnable != node.Some(2*threadsCounted) {
		t.Errorf("%v threads, %v of them runnable, want %d and half of them", threads, runnable, 4*threadsCounted)
	}
}
