package inprocess_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestAPodWaitsForTheFirstReason lets two pods wait on a node that must keep
// its last CPU open. NodeResourcesFit refuses the node for one of them, because
// of the requests. Then the framework does not ask the plugin, so its reason is
// missing (docs/scheduler.md).
func TestAPodWaitsForTheFirstReason(t *testing.T) {
	b := newBed(t, 1)
	defer b.start(t.Context())()
	b.pods("there", 0, 15)
	b.settles()
	b.pods("one", 0, 1)
	b.pods("two", 0, 2)
	want := map[string]string{
		"one-0": "0/1 nodes are available: 1 no room for own CPUs: the last open ones stay open. preemption",
		"two-0": "0/1 nodes are available: 1 Insufficient cpu. preemption",
	}
	eventually(t, func() error {
		for _, p := range b.api.Pods() {
			if w, waits := want[p.Name]; waits && (len(p.Status.Conditions) != 1 || !strings.HasPrefix(p.Status.Conditions[0].Message, w)) {
				return fmt.Errorf("%s says %+v, want %q", p.Name, p.Status.Conditions, w)
			}
		}
		return nil
	})
}
