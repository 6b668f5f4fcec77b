package capability

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// TestARefusedRealTimePolicyIsReported checks the three possible answers about
// the policy of the watchdog. The kernel of this machine must give one of them.
func TestARefusedRealTimePolicyIsReported(t *testing.T) {
	for want, err := range map[node.Verdict]error{
		node.Yes: nil, node.No: fmt.Errorf("sched_setattr of thread 0: %w", syscall.EPERM), node.Unknown: errors.New("something else"),
	} {
		if a := fifoAnswer(err); a.Verdict != want || a.Why == "" {
			t.Errorf("%v: %+v, want %v", err, a, want)
		}
	}
	if a := fifoAnswer(ownThreadToFIFO()); a.Verdict == node.Unknown {
		t.Errorf("this machine: %+v", a)
	}
}

// TestNoThreadStaysRealTime looks at the threads right after the probe, which is when a
// command moves itself into its cgroup.
func TestNoThreadStaysRealTime(t *testing.T) {
	for range 100 {
		if err := ownThreadToFIFO(); err != nil {
			t.Skip(err)
		}
		tids, err := proc.Default().Threads(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		for _, tid := range tids {
			policy, err := task.PolicyOf(tid)
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
			if err == nil && policy.RealTime() {
				t.Fatalf("thread %d has the policy %v", tid, policy)
			}
		}
	}
}
