package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	runParallel(t)
	c, n := startCluster(t, "culprit")
	a := newAgent(t, c, n)
	a.start()
	pods, times := pickLength(5, 20), pickLength(2, 100)
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
		var found time.Duration
		others := map[string]bool{}
		for time.Since(begun) < 8*time.Second {
			for _, name := range bounded() {
				if name != hog {
					others[name] = true
				} else if found == 0 {
					found = time.Since(begun)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		kubectl(t, a.c, "exec", hog, "--", "rm", "/busy")
		if all += min(len(others), 1); !others["all"] {
			all -= min(len(others), 1)
		}
		delete(others, "all")
		wrong += len(others)
		if found > 0 {
			alone++
		}
		if found > 0 && found <= 3*time.Second {
			soon++
		}
		t.Logf("time %d: %s bounded after %v, others %v", i, hog, found.Round(10*time.Millisecond), others)
	}
	free()
	t.Logf("of %d times, the pod to blame was bounded %d times, %d of them within 3 s; %d other pods were, and all batch work %d times", times, alone, soon, wrong, all)
	if alone < times*9/10 || wrong > max(times/20, 1) {
		t.Errorf("bounded %d of %d, and %d others", alone, times, wrong)
	}
}
