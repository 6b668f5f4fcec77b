package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// innocentPod is batch work that uses a little CPU all the time, and all CPUs while
// the file /busy exists.
const innocentPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: spin, image: "busybox:1", command: [sh, -c, "little() { while :; do i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; usleep 100000; done; }; spin() { while :; do if [ -e /busy ]; then i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; else usleep 100000; fi; done; }; little & spin & spin & spin & spin & wait"]}]}}`

// TestTheBatchPodToBlameGivesWayAlone checks that of many batch pods the one that
// makes a service wait is bounded alone. Each time another pod is to blame.
func TestTheBatchPodToBlameGivesWayAlone(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "culprit")
	a := newAgent(t, c, n)
	a.start()
	const pods = 5 // TestABatchPodToBlameAmongTwenty has more
	times := pickLength(2, 10)
	a.apply(chartConfig(t, nil))
	// Other work of the machine must not take the CPUs for which the pods compete.
	must(t, os.WriteFile(filepath.Join(n.Cgroup("cpu", ""), "cpu.shares"), []byte("16384"), 0o644))
	a.pod(frontPod, "front", "besteffort")
	groups := map[string]string{}
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprint("job", i))
		groups[names[i]] = a.pod(innocentPod, names[i], "besteffort")
	}
	kubectl(t, a.c, "annotate", "pod", "front", `tenon.sh/objective={"runQueueDelay": "2ms"}`)
	// bounded lists the pods that have a quota of their own, and "all" if the level has
	// one.
	bounded := func() (now []string) {
		for _, name := range names {
			if a.read("cpu", groups[name], "cpu.cfs_quota_us") >= 0 {
				now = append(now, name)
			}
		}
		if a.read("cpu", "besteffort", "cpu.cfs_quota_us") >= 0 {
			now = append(now, "all")
		}
		return now
	}
	free := func() {
		requireSoon(t, 3*time.Minute, "no bound is left", func() error {
			if now := bounded(); len(now) > 0 {
				return fmt.Errorf("%v are bounded", now)
			}
			return nil
		})
	}
	rnd := rand.New(rand.NewPCG(44, uint64(time.Now().UnixNano())))
	alone, soon, wrong, all := 0, 0, 0, 0
	for i := range times {
		free()
		hog := names[rnd.IntN(pods)]
		kubectl(t, a.c, "exec", hog, "--", "touch", "/busy")
		begun := time.Now()
		var first []string // the pods that got the first bound
		var found time.Duration
		most := 0 // of pods that were bounded at once
		for time.Since(begun) < 8*time.Second {
			now := bounded()
			if most = max(most, len(now)); len(now) > 0 && first == nil {
				first, found = now, time.Since(begun)
			}
			time.Sleep(50 * time.Millisecond)
		}
		kubectl(t, a.c, "exec", hog, "--", "rm", "/busy")
		switch {
		case len(first) == 1 && first[0] == hog:
			if alone++; found <= 3*time.Second {
				soon++
			}
		case len(first) > 0:
			wrong++
		}
		if most > 1 { // the back-off of all batch work
			all++
		}
		t.Logf("time %d: %s is busy; %v bounded after %v, at most %d at once", i, hog, first, found.Round(10*time.Millisecond), most)
	}
	free()
	for pod, reason := range map[string]string{"front": "BatchWorkBounded", "": "CPUBounded"} { // of the service, and of any job
		requireSoon(t, 2*time.Minute, "the owner finds the event "+reason, func() error {
			if events := kubectl(t, a.c, "get", "events", "--field-selector", "reason="+reason, "-o", "jsonpath={.items[*].involvedObject.name}"); events == "" || !strings.Contains(events, pod) {
				return fmt.Errorf("events of %q", events)
			}
			return nil
		})
	}
	t.Logf("of %d times, the pod to blame alone was bounded first %d times, %d of them within 3 s; others were bounded first %d times; later all batch work gave way %d times",
		times, alone, soon, wrong, all)
	// Where other tests run on this machine, the service may wait for them as well.
	if alone < times*9/10 || wrong > times/20 {
		t.Errorf("the pod to blame was bounded first %d times of %d, and others %d times", alone, times, wrong)
	}
}
