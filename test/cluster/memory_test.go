package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sleepingPod does nothing. The test replaces CLASS and RESOURCES.
const sleepingPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {crowd: "true", koordinator.sh/qosClass: CLASS}}, spec: {nodeName: node-0, hostNetwork: true, terminationGracePeriodSeconds: 0,
containers: [{name: sleep, image: "busybox:1", command: [sleep, "1000000"], resources: {requests: RESOURCES, limits: RESOURCES}}]}}
---
`

// maxAnonymous is the maximum anonymous memory, in KiB, of an agent with a
// Kubernetes client.
const maxAnonymous = 45 << 10

// TestAgentTakesLittleMemory runs a node on which one third of the pods are
// services and two thirds are batch work. tenond manages all of them. There are
// a hundred pods for five minutes, nearly as many as a kubelet allows. In make
// test, TestTenondIsSmallOnANodeOf110Pods checks the same limit without a
// cluster.
func TestAgentTakesLittleMemory(t *testing.T) {
	needsCluster(t)
	if pickLength(true, false) {
		t.Skip("takes minutes, and test/e2e checks the limit with a kubelet of the test: set TENON_TEST_LONG=1")
	}
	c, n := startCluster(t, "memory")
	offer(t, c, n, 8000, "8Gi")
	a := newAgent(t, c, n)
	a.start()
	const crowd, watch = 100, 5 * time.Minute
	var table strings.Builder
	fmt.Fprintln(&table, "pods cpu_percent rss_kib rss_anon_kib_least rss_anon_kib_most")
	for _, pods := range []int{0, crowd} {
		var text strings.Builder
		for i := range pods {
			class, resources := "BE", `{kubernetes.io/batch-cpu: 20, kubernetes.io/batch-memory: 16Mi}`
			if i%3 == 0 {
				class, resources = "LS", `{cpu: 5m, memory: 16Mi}`
			}
			text.WriteString(strings.NewReplacer("NAME", fmt.Sprintf("sleeping-%d", i), "CLASS", class, "RESOURCES", resources).Replace(sleepingPod))
		}
		if pods > 0 {
			a.apply(text.String())
		}
		requireSoon(t, 10*time.Minute, "all pods run", func() error {
			running := strings.Fields(kubectl(t, c, "get", "pods", "-l", "crowd", "--field-selector=status.phase=Running", "-o", "name"))
			if len(running) != pods {
				return fmt.Errorf("%d of %d", len(running), pods)
			}
			return nil
		})
		services := int32(pods+2) / 3
		want := map[string]int32{"LS": services, "BE": int32(pods) - services}
		requireSoon(t, time.Minute, "the agent knows them all", func() error {
			got := a.report().Status.Pods
			for class, n := range want {
				if got[class] != n {
					return fmt.Errorf("it knows %v, want %v", got, want)
				}
			}
			return nil
		})
		begun, used := time.Now(), cpuOf(t, a.pid)
		rss, least := memoryOf(a.pid)
		most := least
		for time.Since(begun) < watch {
			time.Sleep(100 * time.Millisecond)
			var anon int
			rss, anon = memoryOf(a.pid)
			least, most = min(least, anon), max(most, anon)
		}
		share := 100 * (cpuOf(t, a.pid) - used).Seconds() / time.Since(begun).Seconds()
		fmt.Fprintf(&table, "%d %.2f %d %d %d\n", pods, share, rss, least, most)
		if least == 0 || most > maxAnonymous {
			t.Errorf("with %d pods the agent has %d to %d KiB of its own, want at most %d", pods, least, most, maxAnonymous)
		}
	}
	t.Logf("\n%s", table.String())
	writeRaw(t, "memory.txt", table.String())
}

// cpuOf returns the CPU time of the running threads of a process. It misses
// threads that have ended, but threads of tenond do not end.
func cpuOf(t *testing.T, pid int) (used time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads, %v", pid, err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		must(t, err)
		var ran time.Duration
		if _, err := fmt.Sscan(string(text), (*int64)(&ran)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		used += ran
	}
	return used
}
