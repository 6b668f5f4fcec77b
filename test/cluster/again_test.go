package cluster

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// limitedPod is a best-effort pod with a CPU limit, which the container runtime writes.
// Its container ends when the test wants it to.
const limitedPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: main, image: "busybox:1", command: [sh, -c, "while [ ! -e /end ]; do sleep 0.2; done; exit 1"],
resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: LIMIT, memory: 64Mi}}}]}}`

// TestAContainerStartsAgainInABoundedPod ends the container of a best-effort pod that CPU
// suppress bounds below the limit of this container. On cgroup v1 the kernel refuses the
// limit of the new container while the pod has less. It must run again all the same, and
// the pod must then be bounded as before.
func TestAContainerStartsAgainInABoundedPod(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "again")
	a := newAgent(t, c, n)
	limit := runtime.NumCPU() // more than the 65 % of the node that best-effort work may have
	group := a.pod(strings.Replace(limitedPod, "LIMIT", fmt.Sprintf(`"%d"`, limit), 1), "again", "burstable")
	a.start()
	bounded := func() error {
		if q := a.read("cpu", group, "cpu.cfs_quota_us"); q < 0 || q >= limit*100_000 {
			return fmt.Errorf("its quota is %d", q)
		}
		return nil
	}
	requireSoon(t, 30*time.Second, "the pod is bounded below its limit", bounded)
	kubectl(t, c, "exec", "again", "--", "touch", "/end")
	requireSoon(t, 2*time.Minute, "the container runs again", func() error {
		text := kubectl(t, c, "get", "pod", "again", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state}")
		if strings.HasPrefix(text, "0 ") || !strings.Contains(text, `"running"`) {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
	requireSoon(t, 30*time.Second, "the pod is bounded again", bounded)
}
