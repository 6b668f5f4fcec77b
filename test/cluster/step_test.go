package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/kernel/proc"
)

// steppedPod is a service that uses one CPU while the file /busy exists.
const steppedPod = `{apiVersion: v1, kind: Pod, metadata: {name: stepped, labels: {koordinator.sh/qosClass: LS}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [sh, -c, "while :; do if [ -e /busy ]; then i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; else sleep 0.05; fi; done"],
resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 1, memory: 64Mi}}}]}}`

// quickConfig is a ConfigMap that makes batch resources rise quickly enough for
// a test. It does not affect how soon they fall.
const quickConfig = `{"enable": true, "metricAggregateDurationSeconds": 10, "metricReportIntervalSeconds": 5, "resourceDiffThreshold": 0.05, "cpuReclaimThresholdPercent": 400, "memoryReclaimThresholdPercent": 95}`

// TestAStepOfLoadLowersAllocatable makes a service use a CPU. It measures the
// time until the kubelet and the schedulers see that the node's batch-cpu has
// fallen. The value passes from the kernel's CPU accounting through tenond's
// report, the API server and the leading manager to the status of the node.
// With TENON_TEST_LONG=1 there are 20 steps. A step is repeated if other work of
// the machine ended at the same time, because the use of the CPUs did not rise.
func TestAStepOfLoadLowersAllocatable(t *testing.T) {
	aloneInTurn(t)
	c, n := startCluster(t, "step")
	a := newAgent(t, c, n)
	a.apply(strings.Replace(strings.Replace(strategies, "THRESHOLD", "", 1), `{"enable": true}`, quickConfig, 1))
	a.pod(steppedPod, "stepped", "burstable")
	a.start()
	managers(t, c)
	rawLog(t, "tenond.log", a.log)
	batch := func() int64 {
		text, err := c.Get(t.Context(), "/api/v1/nodes/"+n.Name)
		must(t, err)
		var node corev1.Node
		must(t, json.Unmarshal(text, &node))
		return node.Status.Allocatable.Name("kubernetes.io/batch-cpu", "DecimalSI").Value()
	}

	full := int64(runtime.NumCPU()) * (4000 - 1000) // the amount with quick if all CPUs are in use
	var table, line strings.Builder
	fmt.Fprintln(&table, "before_milli after_milli half_s most_s")
	fmt.Fprintln(&line, "step seconds batch_cpu_milli")
	busy := func(within func()) (cpus float64) {
		was, err1 := proc.Default().Stat()
		begun := time.Now()
		within()
		is, err2 := proc.Default().Stat()
		must(t, errors.Join(err1, err2))
		return float64(is.All.Busy()-was.All.Busy()) / float64(time.Since(begun))
	}
	const most = 5 // steps that may be repeated
	repeated := 0
	for i := 0; i < pickLength(1, 20); i++ {
		var before int64
		var used float64 // CPUs of the whole machine
		// On a busy machine, the service would only take CPU from other work,
		// and the use would not rise.
		requireSoon(t, 3*time.Minute, "more than a CPU is idle", func() error {
			first := batch()
			used = busy(func() { time.Sleep(3 * time.Second) })
			if before = batch(); before < full+1100 || max(first-before, before-first) > 100 {
				return fmt.Errorf("batch-cpu is %d, then %d", first, before)
			}
			return nil
		})
		kubectl(t, c, "exec", "stepped", "--", "touch", "/busy")
		begun := time.Now()
		var at []time.Duration
		var is []int64
		// The long form observes for how long the value falls.
		fallen := func() bool { return pickLength(true, false) && len(is) > 0 && before-is[len(is)-1] >= 300 }
		more := busy(func() {
			for time.Since(begun) < 15*time.Second && !fallen() {
				is, at = append(is, batch()), append(at, time.Since(begun))
				fmt.Fprintf(&line, "%d %.2f %d\n", i, at[len(at)-1].Seconds(), is[len(is)-1])
				time.Sleep(100 * time.Millisecond)
			}
		}) - used
		kubectl(t, c, "exec", "stepped", "--", "rm", "/busy")
		after := slices.Min(is)
		if before-after < 300 {
			if more < 0.5 && repeated < most {
				repeated++
				i--
				t.Logf("repeated a step: the machine used only %.2f CPUs more", more)
				continue
			}
			t.Errorf("batch-cpu is still %d and was %d when a service began to use a CPU; the machine used %.2f CPUs more", after, before, more)
			continue
		}
		passed := func(percent int64) float64 {
			return at[slices.IndexFunc(is, func(v int64) bool { return v <= before-(before-after)*percent/100 })].Seconds()
		}
		fmt.Fprintf(&table, "%d %d %.2f %.2f\n", before, after, passed(50), passed(90))
	}
	t.Logf("\n%s", table.String())
	writeRaw(t, "steps.txt", table.String())
	writeRaw(t, "timeline.txt", line.String())
}
