package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/objectivetext"
)

// frontPod is a service without requests. So its cgroup is beside those of
// best-effort pods and has the same weight, and its threads wait for them.
const frontPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: NAME, koordinator.sh/qosClass: LS}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [sh, -c, "work() { while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; usleep 3000; done; }; work & work & wait"]}]}}`

// hogPod is batch work that uses all CPUs while the file /busy exists.
const hogPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: spin, image: "busybox:1", command: [sh, -c, "spin() { while :; do if [ -e /busy ]; then i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; else sleep 1; fi; done; }; spin & spin & spin & spin & wait"]}]}}`

// cappedPod is a service with a CPU limit and an objective. While the file /busy
// exists, its 32 threads use the limit up in each period. So many threads wait
// often enough for a verdict in each second. Its limit makes them wait for longer
// than the objective, and other work of the machine hardly does.
const cappedPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: LS}, annotations: {tenon.sh/objective: '{"runQueueDelay": "20ms"}'}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [sh, -c, "spin() { while :; do if [ -e /busy ]; then i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; else sleep 0.2; fi; done; }; n=0; while [ $n -lt 32 ]; do spin & n=$((n+1)); done; wait"],
resources: {requests: {cpu: 200m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}}]}}`

// chartConfig returns the ConfigMap of the chart with its default values, and more
// keys.
func chartConfig(t *testing.T, more map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	must(t, err)
	var values struct{ Strategies map[string]any }
	must(t, yaml.Unmarshal(text, &values))
	if len(values.Strategies) < 3 {
		t.Fatalf("the chart has the strategies %v", values.Strategies)
	}
	data := map[string]string{}
	for key, strategy := range values.Strategies {
		text, err := json.Marshal(strategy)
		must(t, err)
		data[key] = string(text)
	}
	for key, value := range more {
		data[key] = value
	}
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "slo-controller-config", "namespace": "koordinator-system"}, "data": data,
	})
	must(t, err)
	return string(config)
}

// outweigh gives a cgroup sixteen times the usual weight. The function that it returns
// gives the former one back.
func outweigh(t *testing.T, shares string) func() {
	t.Helper()
	before, err := os.ReadFile(shares)
	must(t, err)
	must(t, os.WriteFile(shares, []byte("16384"), 0o644))
	return func() { must(t, os.WriteFile(shares, before, 0o644)) }
}

// keepsObjectives checks on a running agent, with the default ConfigMap of the
// chart, that batch work gets a bound while a service waits for it longer than the
// objective of the service allows, that the report names the batch pod, and that
// the bound goes. Batch work must have no bound while a service waits for its own
// CPU limit.
func keepsObjectives(t *testing.T, a *agent) {
	t.Helper()
	a.apply(chartConfig(t, nil))
	// Other work of the machine must not take the CPUs for which the pods compete. Beside
	// a busy pod of another class, the kernel gives a group of the least weight on another
	// CPU next to nothing of the weight of the groups above it, so these need much.
	if !inGuest() { // a guest has no other work
		for _, group := range []string{"", "kubepods"} {
			defer outweigh(t, filepath.Join(a.n.Cgroup("cpu", group), "cpu.shares"))()
		}
	}
	hog := a.pod(hogPod, "hog", "besteffort")
	a.pod(frontPod, "front", "besteffort")
	// The bound is at the pod while a service is beside it, and otherwise at the level.
	quota := func() int {
		return max(a.read("cpu", hog, "cpu.cfs_quota_us"), a.read("cpu", "besteffort", "cpu.cfs_quota_us"))
	}
	state := func(pod string) (v1alpha1.ServiceObjective, *v1alpha1.Objectives) {
		all := a.report().Status.Objectives
		if all == nil {
			return v1alpha1.ServiceObjective{}, &v1alpha1.Objectives{}
		}
		i := slices.IndexFunc(all.Services, func(s v1alpha1.ServiceObjective) bool { return s.Pod == pod })
		if i < 0 {
			return v1alpha1.ServiceObjective{}, all
		}
		return all.Services[i], all
	}

	// The only batch pod is named like one of several.
	bounded := func(all *v1alpha1.Objectives) bool {
		return slices.ContainsFunc(all.Bounded, func(b v1alpha1.BoundedWork) bool { return b.Pod == "hog" && b.Service == "front" })
	}

	// The annotation of a running pod takes effect.
	kubectl(t, a.c, "annotate", "pod", "front", `tenon.sh/objective={"runQueueDelay": "2ms"}`)
	requireSoon(t, time.Minute, "the report has the objective", func() error {
		if s, _ := state("front"); s.RunQueueDelay == nil || s.RunQueueDelay.Duration != 2*time.Millisecond || s.State == v1alpha1.ObjectiveUndecided {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if q := quota(); q >= 0 {
		t.Errorf("batch work that does not run has a quota of %d", q)
	}
	rounds := pickLength(1, 2)
	for range rounds {
		kubectl(t, a.c, "exec", "hog", "--", "touch", "/busy")
		begun := time.Now()
		// While tests beside this one use the machine, the verdict is rightly that other work
		// is the cause.
		requireSoon(t, 3*time.Minute, "batch work gets a bound", func() error {
			if quota() < 0 {
				s, all := state("front")
				return fmt.Errorf("it has none: %+v %+v", s, all)
			}
			return nil
		})
		t.Logf("the bound appeared %v after the batch work began", time.Since(begun).Round(10*time.Millisecond))
		requireSoon(t, time.Minute, "the report names the batch pod", func() error {
			s, all := state("front")
			named := slices.IndexFunc(s.Runners, func(r v1alpha1.ObjectiveRunner) bool {
				return r.Namespace == "default" && r.Pod == "hog" && r.Kind == "best-effort"
			})
			if s.State != v1alpha1.ObjectiveMissed || s.Cause != "best-effort" || s.CulpritNamespace != "default" || s.Culprit != "hog" || named < 0 || !bounded(all) {
				return fmt.Errorf("%+v %+v", s, all)
			}
			// So it is in kubectl tenon objectives.
			services := objectivetext.Services(nodepages.Reported([]v1alpha1.NodeReport{a.report()}), func(_, pod string) string { return pod })
			if len(services) != 1 || services[0].Service != "front" || services[0].Missed != 1 || !slices.Equal(services[0].Culprits, []string{"default/hog"}) || !slices.Equal(services[0].Bounded, []string{"default/hog"}) {
				return fmt.Errorf("%+v", services)
			}
			t.Log("\n" + objectivetext.Table(services))
			t.Logf("reported %v after the batch work began: %+v", time.Since(begun).Round(10*time.Millisecond), s)
			return nil
		})
		kubectl(t, a.c, "exec", "hog", "--", "rm", "/busy")
		begun = time.Now()
		requireSoon(t, 4*time.Minute, "the bound goes", func() error {
			if q := quota(); q >= 0 {
				return fmt.Errorf("batch work has a quota of %d", q)
			}
			return nil
		})
		t.Logf("the bound went %v after the batch work ended", time.Since(begun).Round(time.Second))
		requireSoon(t, time.Minute, "the report says so", func() error {
			s, all := state("front")
			if s.Cause == "best-effort" || all.By != "" || bounded(all) {
				return fmt.Errorf("%+v %+v", s, all)
			}
			if l := s.Lasted; l == nil || l.Missed.Duration <= 0 {
				return fmt.Errorf("it was missed, and the report says %+v", l)
			}
			return nil
		})
	}

	// Beside other tests the machine itself makes a service without a CPU request wait for
	// longer than 2 ms. A larger objective is kept, and its time begins anew.
	kubectl(t, a.c, "annotate", "--overwrite", "pod", "front", `tenon.sh/objective={"runQueueDelay": "1s"}`)
	requireSoon(t, time.Minute, "the report says that it is kept", func() error {
		s, _ := state("front")
		if l := s.Lasted; s.State != v1alpha1.ObjectiveKept || l == nil || l.Kept.Duration <= 0 || l.Missed.Duration > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	// The pod's own word goes before the ConfigMap, and without it the ConfigMap
	// counts.
	kubectl(t, a.c, "annotate", "--overwrite", "pod", "front", "tenon.sh/objective={}")
	a.apply(chartConfig(t, map[string]string{"objective-config": `{"objectives": [{"namespaces": ["default"], "podSelector": {"matchLabels": {"app": "front"}}, "objective": {"runQueueDelay": "900ms"}}]}`}))
	requireSoon(t, time.Minute, "the pod has no objective", func() error {
		if s, _ := state("front"); s.Pod != "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	kubectl(t, a.c, "annotate", "pod", "front", "tenon.sh/objective-")
	requireSoon(t, time.Minute, "the pod has the objective of the ConfigMap", func() error {
		if s, _ := state("front"); s.RunQueueDelay == nil || s.RunQueueDelay.Duration != 900*time.Millisecond {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if restarts := kubectl(t, a.c, "get", "pod", "front", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); restarts != "0" {
		t.Errorf("the pod was restarted %s times", restarts)
	}
	kubectl(t, a.c, "delete", "pod", "front")
	keepsBatchWork(t, a, quota, state)
}

// keepsBatchWork lets a service miss its objective because of its own CPU limit,
// several times, beside batch work that runs.
func keepsBatchWork(t *testing.T, a *agent, quota func() int, state func(string) (v1alpha1.ServiceObjective, *v1alpha1.Objectives)) {
	t.Helper()
	a.pod(cappedPod, "capped", "")
	kubectl(t, a.c, "exec", "hog", "--", "touch", "/busy")
	requireSoon(t, 2*time.Minute, "the report has the objective", func() error {
		if s, _ := state("capped"); s.State != v1alpha1.ObjectiveKept && s.State != v1alpha1.ObjectiveMissed {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	kubectl(t, a.c, "exec", "capped", "--", "touch", "/busy")
	requireSoon(t, 2*time.Minute, "the report blames the limit of the service", func() error {
		if s, all := state("capped"); s.State != v1alpha1.ObjectiveMissed || s.Cause != "own-limit" || s.ThrottledPeriods == 0 {
			return fmt.Errorf("%+v %+v", s, all)
		}
		return nil
	})
	kubectl(t, a.c, "exec", "capped", "--", "rm", "/busy")
	seen := map[string]int{} // causes in reports
	watch := func(during time.Duration) error {
		for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if q := quota(); q >= 0 {
				s, all := state("capped")
				return fmt.Errorf("batch work has a quota of %d: %+v %+v", q, s, all)
			}
		}
		return nil
	}
	bounded, others, times := 0, 0, pickLength(2, 50)
	for i := 0; i < times; i++ {
		kubectl(t, a.c, "exec", "capped", "--", "touch", "/busy")
		err := watch(4 * time.Second)
		kubectl(t, a.c, "exec", "capped", "--", "rm", "/busy")
		err = errors.Join(err, watch(1500*time.Millisecond))
		s, _ := state("capped")
		if s.State == v1alpha1.ObjectiveMissed {
			seen[s.Cause]++
		}
		switch {
		case err == nil:
		case s.Cause == "best-effort" && s.ThrottledPeriods == 0 && others < max(times/10, 1):
			// Work outside the cluster made the service wait between two bursts. The
			// limit did not stop the service then, so this burst does not count.
			t.Logf("time %d begins again: %v", i, err)
			others++
			i--
			seen["best-effort"]--
			requireSoon(t, 4*time.Minute, "the bound goes", func() error {
				if q := quota(); q >= 0 {
					return fmt.Errorf("batch work has a quota of %d", q)
				}
				return nil
			})
		default:
			bounded++
			t.Errorf("time %d: %v", i, err)
		}
	}
	t.Logf("the service used up its own limit %d times; batch work got a bound %d times, and %d times because of work outside; causes in reports: %v", times, bounded, others, seen)
	if seen["best-effort"] > 0 {
		t.Errorf("the reports blame batch work: %v", seen)
	}
	kubectl(t, a.c, "delete", "pod", "hog", "capped")
}
