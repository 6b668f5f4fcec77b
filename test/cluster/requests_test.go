package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/test/turn"
)

// timedPod is a service without requests that shows how long its requests take
// (test/cluster/timed).
const timedPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: timed, koordinator.sh/qosClass: LS}, annotations: {tenon.sh/objective: '{"p99": "5ms", "family": "timed_seconds", "source": SOURCE}'}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [/opt/timed], volumeMounts: [{name: bin, mountPath: /opt}]}], volumes: [{name: bin, hostPath: {path: BIN}}]}}`

// startPrometheus starts a Prometheus server in the network of the cluster. It reads
// pods of the namespace default at port 8080, and gives them the labels that are usual
// in a cluster. The package of Debian cannot find pods by the API server. It returns a
// function that ends the server.
func startPrometheus(t *testing.T, c *Cluster, pods ...string) (end func()) {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 5s}\nscrape_configs:\n- job_name: pods\n  static_configs:\n"
	for _, pod := range pods {
		config += fmt.Sprintf("  - {targets: [%q], labels: {namespace: default, pod: %s}}\n", kubectl(t, c, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")+":8080", pod)
	}
	file := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(file, []byte(config), 0o600))
	out, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := c.Command(ctx, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:9090")
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	var ended bool
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		_ = cmd.Wait() // it was killed
		text, err := os.ReadFile(out.Name())
		if err = errors.Join(err, out.Close()); err != nil || t.Failed() {
			t.Logf("prometheus said:\n%.6000s %v", text, err)
		}
	}
	t.Cleanup(end)
	return end
}

// TestRequestLatencyMakesBatchWorkGiveWay gives two services an objective for their
// requests. The agent reads the histogram of one itself, and a real Prometheus server
// reads that of the other. Batch work that makes them wait must be named and bounded,
// and when Prometheus or the manager has gone, nothing may stay bound by what it said.
func TestRequestLatencyMakesBatchWorkGiveWay(t *testing.T) {
	inTurn(t)
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Fatalf("%v: run scripts/install-deps.sh test", err)
	}
	runParallel(t)
	c, n := startCluster(t, "requests")
	a := newAgent(t, c, n)
	a.start()
	rawLog(t, "requests-tenond.log", a.log)
	a.apply(chartConfig(t, nil))
	// Other work of the machine must not take the CPUs for which the pods compete.
	must(t, os.WriteFile(filepath.Join(n.Cgroup("cpu", ""), "cpu.shares"), []byte("32768"), 0o644))
	ask := func() []*replica { return managers(t, c, "--prometheus-url", "http://127.0.0.1:9090") }
	replicas := ask()
	group := a.pod(hogPod, "hog", "besteffort")
	timed := strings.Replace(timedPod, "BIN", a.bin, 1)
	a.pod(strings.Replace(timed, "SOURCE", `"metrics", "port": 8080`, 1), "direct", "besteffort")
	a.pod(strings.Replace(timed, "SOURCE", `"query"`, 1), "asked", "besteffort")
	end := startPrometheus(t, c, "direct", "asked")
	requests := func(pod string) (v1alpha1.ServiceObjective, v1alpha1.ServiceRequests) {
		all := a.report().Status.Objectives
		if all == nil {
			return v1alpha1.ServiceObjective{}, v1alpha1.ServiceRequests{}
		}
		i := slices.IndexFunc(all.Services, func(s v1alpha1.ServiceObjective) bool { return s.Pod == pod && s.Requests != nil })
		if i < 0 {
			return v1alpha1.ServiceObjective{}, v1alpha1.ServiceRequests{}
		}
		return all.Services[i], *all.Services[i].Requests
	}
	bounded := func() bool {
		return a.read("cpu", group, "cpu.cfs_quota_us") >= 0 || a.read("cpu", "besteffort", "cpu.cfs_quota_us") >= 0
	}
	for _, pod := range []string{"direct", "asked"} {
		requireSoon(t, 3*time.Minute, "the requests of "+pod+" are measured", func() error {
			s, r := requests(pod)
			if r.Percentile != "p99" || r.Measured == nil || len(r.Buckets) == 0 || r.State == v1alpha1.ObjectiveUndecided {
				return fmt.Errorf("%+v %+v", s, r)
			}
			t.Logf("%s: p99 is at most %v: %s %s", pod, r.Measured.Duration, r.State, s.Cause)
			return nil
		})
	}
	// From here on, only the numbers of Prometheus can bound anything.
	kubectl(t, c, "delete", "pod", "direct")
	kubectl(t, c, "exec", "hog", "--", "touch", "/busy")
	losses := []string{"Prometheus", "the manager"}
	if one, err := turn.Choose(0, losses); err == nil {
		losses = one
	}
	for i, lost := range losses {
		if i > 0 {
			end = startPrometheus(t, c, "asked")
		}
		lose := end
		if lost == "the manager" {
			lose = func() {
				for _, r := range replicas {
					r.stop()
				}
			}
		}
		boundUntilItIsLost(t, lost, lose, requests, bounded)
	}
}

// boundUntilItIsLost waits until the batch pod is bounded because of what Prometheus
// says. Then it ends Prometheus or the manager, and waits until nothing is bound.
func boundUntilItIsLost(t *testing.T, lost string, lose func(), requests func(string) (v1alpha1.ServiceObjective, v1alpha1.ServiceRequests), bounded func() bool) {
	t.Helper()
	begun := time.Now()
	requireSoon(t, 4*time.Minute, "the objective is missed, and the batch pod is named", func() error {
		s, r := requests("asked")
		named := slices.IndexFunc(s.Runners, func(r v1alpha1.ObjectiveRunner) bool { return r.Namespace == "default" && r.Pod == "hog" })
		if s.State != v1alpha1.ObjectiveMissed || s.Cause != "best-effort" || named < 0 {
			return fmt.Errorf("%+v %+v", s, r)
		}
		t.Logf("missed %v after the batch work began: p99 %v, %+v", time.Since(begun).Round(time.Second), r.Measured, s.Runners)
		return nil
	})
	requireSoon(t, time.Minute, "batch work gets a bound", func() error {
		if !bounded() {
			return errors.New("it has none")
		}
		return nil
	})
	lose()
	begun = time.Now()
	requireSoon(t, 3*time.Minute, "nothing is known without "+lost, func() error {
		s, r := requests("asked")
		if s.State != v1alpha1.ObjectiveUndecided || s.Cause != "no-source" || r.Trouble == "" {
			return fmt.Errorf("%+v %+v", s, r)
		}
		t.Logf("undecided %v after the end of %s: %s", time.Since(begun).Round(time.Second), lost, r.Trouble)
		return nil
	})
	requireSoon(t, 4*time.Minute, "the bound goes", func() error {
		if bounded() {
			return errors.New("batch work still has a quota")
		}
		return nil
	})
	t.Logf("the bound went %v after the end of %s", time.Since(begun).Round(time.Second), lost)
}
