package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestALabelLeavesAPodAlone labels one of two batch pods that run. The agent must
// put back each file of the cgroups of this pod, go on with the other pod, and
// take the first one again when the label is gone.
func TestALabelLeavesAPodAlone(t *testing.T) {
	needsCluster(t)
	c, n := startCluster(t, "ignore")
	offer(t, c, n, 4000, "2Gi")
	a := newAgent(t, c, n)
	a.pod(strings.Replace(servicePod, "LIMIT", "1", 1), "web", "burstable")
	managed, alone := a.pod(batchPod, "managed", "besteffort"), a.pod(batchPod, "alone", "besteffort")
	before := a.values()
	a.start()
	// changed lists the files of a pod that differ from before the agent.
	changed := func(pod string) (files []string) {
		now := a.values()
		for _, file := range slices.Sorted(maps.Keys(before)) {
			if strings.Contains(file, pod) && now[file] != before[file] {
				files = append(files, fmt.Sprintf("%s is %q and was %q", file, now[file], before[file]))
			}
		}
		return files
	}
	want := func(claim string, leftAlone bool) {
		t.Helper()
		requireSoon(t, time.Minute, claim, func() error {
			if len(changed(managed)) == 0 {
				return fmt.Errorf("the agent has no setting in %s", managed)
			}
			if files := changed(alone); (len(files) == 0) != leftAlone {
				return fmt.Errorf("in %s: %q", alone, files)
			}
			return nil
		})
	}
	want("both are managed", false)
	t.Logf("the agent has changed %q", changed(alone))
	kubectl(t, c, "label", "pod", "alone", "tenon.sh/ignore=true")
	want("what was written is put back", true)
	requireSoon(t, 2*time.Minute, "the report counts the pod", func() error {
		if got := a.report().Status.Pods["Unmanaged"]; got != 1 {
			return fmt.Errorf("it counts %d unmanaged pods", got)
		}
		return nil
	})
	kubectl(t, c, "label", "pod", "alone", "tenon.sh/ignore-")
	want("it is managed again", false)
}
