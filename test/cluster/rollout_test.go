package cluster

import (
	"fmt"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestANodeThatIsOffLeavesBatchWorkAHundredthOfACPU has a rollout, and labels the node as
// the manager and an owner do. While the node is off, batch work that wants all CPUs gets a
// hundredth of one and is not evicted, and nothing is offered. Meanwhile the report counts
// how long a service waits.
func TestANodeThatIsOffLeavesBatchWorkAHundredthOfACPU(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "rollout")
	a := newAgent(t, c, n)
	a.start()
	a.apply(chartConfig(t, map[string]string{
		"rollout-config":    `{"enable": true, "marginPercent": 10}`,
		"colocation-config": `{"enable": true, "memoryReclaimThresholdPercent": 100}`,
	}))
	a.pod(frontPod, "front", "besteffort")
	kubectl(t, c, "annotate", "pod", "front", `tenon.sh/objective={"runQueueDelay": "1s"}`)
	group := a.pod(hogPod, "job", "besteffort")
	kubectl(t, c, "exec", "job", "--", "touch", "/busy")
	is := func(off bool) func() error {
		return func() error {
			quota, period := a.read("cpu", group, "cpu.cfs_quota_us"), a.read("cpu", group, "cpu.cfs_period_us")
			narrow := quota >= 0 && quota*90 <= period
			offered := a.report().Status.Batch.Memory // other work of the machine may use all CPU
			// An amount rises once a minute, and the formula at once.
			if narrow != off || (quota < 0) == off || offered == nil || off && offered.Amount.Sign() > 0 || !off && offered.Formula.Sign() <= 0 {
				return fmt.Errorf("the quota is %d of %d, and %+v is offered", quota, period, offered)
			}
			return nil
		}
	}
	requireSoon(t, time.Minute, "a node that the manager has not labelled is off", is(true))
	for _, x := range []struct {
		label string
		off   bool
	}{{"on", false}, {"off", true}, {"on", false}, {"never", true}} {
		kubectl(t, c, "label", "node", n.Name, "--overwrite", "tenon.sh/rollout="+x.label)
		requireSoon(t, time.Minute, "the node does what its label says: "+x.label, is(x.off))
	}
	var before *v1alpha1.CountedWaits
	requireSoon(t, time.Minute, "the report counts the waits of the service", func() error {
		o := a.report().Status.Objectives
		if o == nil || len(o.Services) != 1 || o.Services[0].Counted == nil {
			return fmt.Errorf("it has %+v", o)
		}
		now := o.Services[0].Counted
		if before == nil {
			before = now
		}
		if now.Waits <= before.Waits || now.Waited.Duration <= before.Waited.Duration {
			return fmt.Errorf("it was %+v and is %+v", before, now)
		}
		return nil
	})
	if err := phase(t, c, "job", "Running"); err != nil {
		t.Error(err)
	}
}
