package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// promptConfig is a colocation-config that makes batch resources change as soon
// as the agent's measurements change.
const promptConfig = `{"enable": true, "metricReportIntervalSeconds": 1, "metricAggregateDurationSeconds": 5, "updateTimeThresholdSeconds": 1, "cpuReclaimThresholdPercent": PERCENT, "memoryReclaimThresholdPercent": 100}`

// TestARestartedKubeletKeepsBatchPods runs batch pods on a node until it has no
// free batch resources. The manager must publish at least the requests of these
// pods, so that a restarted kubelet admits them again. When a pod ends, the
// published amount must fall.
func TestARestartedKubeletKeepsBatchPods(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "held")
	offer(t, c, n, 4000, "4Gi")
	a := newAgent(t, c, n)
	w := &watchedNode{agent: a}
	share := func(percent string) {
		t.Helper()
		a.apply(strings.Replace(strings.Replace(strategies, "THRESHOLD", "", 1), `{"enable": true}`, strings.Replace(promptConfig, "PERCENT", percent, 1), 1))
	}
	share("300") // like on a machine with other work
	pods, ids := []string{"first", "second"}, map[string]string{}
	for _, p := range pods {
		a.pod(strings.Replace(batchPod, "while :; do :; done", "sleep 3600", 1), p, "besteffort")
		ids[p] = containers(t, c, p)
	}
	a.start()
	replicas := managers(t, c)
	for i, r := range replicas {
		rawLog(t, fmt.Sprintf("manager-%d.log", i), r.log)
	}
	var table strings.Builder
	begun := time.Now()
	published := func(claim string, good func(cpu int64, b v1alpha1.BatchAmount, reason string) bool) {
		t.Helper()
		requireSoon(t, 40*time.Second, claim, func() error {
			cpu, memory := w.batchResources()
			status := a.report().Status
			b, p := status.Batch.CPU, status.Published
			if b == nil || p == nil || !good(cpu, *b, p.Reason) {
				return fmt.Errorf("batch-cpu is %d, batch-memory %d, published %+v of %+v", cpu, memory, p, b)
			}
			fmt.Fprintf(&table, "%.1f s: %s: batch-cpu %d, batch-memory %d (%s): reported %s, requested %s\n", time.Since(begun).Seconds(), claim, cpu, memory, p.Reason, b.Amount.String(), b.Requested.String())
			return nil
		})
	}
	published("there is more than the pods request", func(cpu int64, b v1alpha1.BatchAmount, _ string) bool {
		return cpu > 2000 && b.Amount.MilliValue() > 2000 && b.Requested != nil && b.Requested.MilliValue() == 2000
	})
	share("0")
	published("what the pods request stays", func(cpu int64, b v1alpha1.BatchAmount, _ string) bool {
		return cpu == 2000 && b.Amount.IsZero() && b.Requested != nil && b.Requested.MilliValue() == 2000
	})

	admitted := func() int {
		text, err := os.ReadFile(filepath.Join(n.Dir, "kubelet.log"))
		must(t, err)
		return strings.Count(string(text), `"SyncLoop ADD" source="api"`)
	}
	before := admitted()
	fmt.Fprintf(&table, "%.1f s: the kubelet is killed\n", time.Since(begun).Seconds())
	restart(t, n)
	must(t, n.AwaitReady(t.Context()))
	requireSoon(t, 20*time.Second, "the kubelet has its pods again", func() error {
		if admitted() == before {
			return errors.New("it has none")
		}
		return nil
	})
	// This is longer than the agent needs to report what the kubelet answers.
	for range 8 {
		if cpu, _ := w.batchResources(); cpu != 2000 {
			t.Errorf("after the restart batch-cpu is %d", cpu)
		}
		time.Sleep(500 * time.Millisecond)
	}
	for _, p := range pods {
		if err := phase(t, c, p, "Running"); err != nil {
			t.Error(err)
		}
		if got := containers(t, c, p); got != ids[p] {
			t.Errorf("the containers of %s are %s and were %s", p, got, ids[p])
		}
	}
	fmt.Fprintf(&table, "%.1f s: both pods run, with the containers of before\n", time.Since(begun).Seconds())
	events := kubectl(t, c, "get", "events", "-o", "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}")
	if slices.ContainsFunc(strings.Fields(events), func(reason string) bool { return strings.HasPrefix(reason, "OutOf") }) {
		t.Errorf("the kubelet refused pods: %s", events)
	}

	kubectl(t, c, "delete", "pod", "first")
	published("what a pod requested that has ended goes", func(cpu int64, _ v1alpha1.BatchAmount, reason string) bool {
		return cpu == 1000 && strings.HasPrefix(reason, "batch-cpu: running pods request 1000m")
	})
	t.Logf("\n%s", table.String())
	writeRaw(t, "published.txt", table.String())
}
