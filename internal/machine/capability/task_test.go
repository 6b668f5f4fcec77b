package capability

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

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
