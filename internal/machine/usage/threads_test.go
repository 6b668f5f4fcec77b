package usage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// stat returns the line of /proc/PID/task/TID/stat for a thread in a state.
func stat(tid int, state string) string {
	return fmt.Sprintf("%d (work) %s 1 1 1%s", tid, state, strings.Repeat(" 0", 46))
}

// reads sets the quota counters of the workload web, and takes a
// snapshot. It returns the number of threads that web has in the snapshot.
func (h *countedNode) reads(at time.Time, write func(group, file, text string), periods, throttled int) (threads, runnable node.Maybe[int]) {
	return h.uses(at, write, 1, periods, throttled)
}

// uses is like the method reads, but first sets how much CPU the workload web has used.
func (h *countedNode) uses(at time.Time, write func(group, file, text string), used, periods, throttled int) (threads, runnable node.Maybe[int]) {
	write("web", "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods %d\nnr_throttled %d\nthrottled_usec 0", used, periods, throttled))
	s := node.Snapshot{At: at}
	w := h.workloads["web"]
	w.Usage, _ = h.Workload(w)
	s.Workloads = append(s.Workloads, w)
	h.FillThreads(&s)
	return s.Workloads[0].Usage.Threads, s.Workloads[0].Usage.Runnable
}

func TestThreadsAreCountedWhileMostPeriodsAreThrottled(t *testing.T) {
	h, write, procfs := newCountedNode(t, "web")
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
	h, write, procfs := newCountedNode(t, "web")
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

// TestTheThreadsOfASleeperAreNotCounted checks a workload that sleeps. Its
// threads do not wait for quota.
func TestTheThreadsOfASleeperAreNotCounted(t *testing.T) {
	h, write, procfs := newCountedNode(t, "web")
	write("web", "cgroup.procs", "10")
	procfs("10/task/10/stat", stat(10, "R"))
	at := time.Unix(100, 0)
	h.reads(at, write, 10, 10)
	if _, runnable := h.reads(at.Add(time.Second), write, 20, 20); runnable != node.Some(1) {
		t.Fatalf("while it is throttled %v are runnable, want 1", runnable)
	}
	procfs("10/task/10/stat", stat(10, "S"))
	for after := 2; after < 12; after++ {
		want := node.Maybe[int]{}
		if after < 4 {
			want = node.Some(1)
		}
		if _, runnable := h.reads(at.Add(time.Duration(after)*time.Second), write, 20, 20); runnable != want {
			t.Errorf("asleep for %d s: %v are runnable, want %v", after-1, runnable, want)
		}
	}
	if _, runnable := h.reads(at.Add(12*time.Second), write, 30, 30); runnable != node.Some(0) {
		t.Errorf("throttled again: %v are runnable, want 0", runnable)
	}
	// The workload runs, but the counters of its quota periods are old.
	procfs("10/task/10/stat", stat(10, "R"))
	for after := 14; after < 24; after++ {
		if _, runnable := h.uses(at.Add(time.Duration(after)*time.Second), write, after, 30, 30); runnable != node.Some(1) {
			t.Errorf("after %d s with old counters %v are runnable, want 1", after-12, runnable)
		}
	}
}

func TestOfManyProcessesAPartIsListed(t *testing.T) {
	h, write, procfs := newCountedNode(t, "web")
	const processes = 5 * processesListed
	var pids strings.Builder
	for pid := 10; pid < 10+processes; pid++ {
		fmt.Fprintln(&pids, pid)
		state := "R"
		if pid%40 >= 20 {
			state = "S"
		}
		procfs(fmt.Sprintf("%d/task/%d/stat", pid, pid), stat(pid, state))
	}
	write("web", "cgroup.procs", pids.String())
	var x throttledWork
	for range 3 {
		files := x.count(h.Counters, "web", time.Unix(100, 0))
		if x.threads != node.Some(processes) || x.runnable != node.Some(processes/2) {
			t.Errorf("%v threads, %v of them runnable, want %d and half of them", x.threads, x.runnable, processes)
		}
		if files > processesListed+threadsCounted {
			t.Errorf("it read %d files", files)
		}
	}
}
