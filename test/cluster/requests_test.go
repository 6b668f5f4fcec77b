package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// answeringPod is a service without requests that knows nothing of its latency
// (test/cluster/timed). With an answer of 20 ms of CPU time, a pod of the same weight
// that uses all CPUs makes it miss its objective, and other work of the machine hardly
// does.
const answeringPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: answering, koordinator.sh/qosClass: LS}, annotations: {tenon.sh/objective: '{"p99": "30ms", "source": "socket", "port": 8080}'}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [/opt/timed, answer], volumeMounts: [{name: bin, mountPath: /opt}]}], volumes: [{name: bin, hostPath: {path: BIN}}]}}`

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
	bounded := func() bool {
		return a.read("cpu", group, "cpu.cfs_quota_us") >= 0 || a.read("cpu", "besteffort", "cpu.cfs_quota_us") >= 0
	}
	for _, pod := range []string{"direct", "asked"} {
		requireSoon(t, 3*time.Minute, "the requests of "+pod+" are measured", func() error {
			s, r := a.requests(pod)
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
		boundUntilItIsLost(t, a, lost, lose, bounded)
	}
}

// boundUntilItIsLost waits until the batch pod is bounded because of what Prometheus
// says. Then it ends Prometheus or the manager, and waits until nothing is bound.
func boundUntilItIsLost(t *testing.T, a *agent, lost string, lose func(), bounded func() bool) {
	t.Helper()
	begun := time.Now()
	requireSoon(t, 4*time.Minute, "the objective is missed, and the batch pod is named", func() error {
		s, r := a.requests("asked")
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
		s, r := a.requests("asked")
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

// requests returns what the report says about the objective of a pod for its requests.
func (a *agent) requests(pod string) (v1alpha1.ServiceObjective, v1alpha1.ServiceRequests) {
	a.t.Helper()
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

// TestSlowAnswersAtTheSocketMakeTheHogGiveWay gives a service that shows nothing an
// objective for its requests, which the kernel measures at its sockets. Of two batch
// pods, the one that uses all CPUs must be named and bounded alone, and its bound must
// go when it has ended its work.
func TestSlowAnswersAtTheSocketMakeTheHogGiveWay(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "socket")
	a := newAgent(t, c, n)
	a.start()
	rawLog(t, "socket-tenond.log", a.log)
	a.apply(chartConfig(t, nil))
	// Other work of the machine must not take the CPUs for which the pods compete.
	must(t, os.WriteFile(filepath.Join(n.Cgroup("cpu", ""), "cpu.shares"), []byte("32768"), 0o644))
	groups := map[string]string{}
	for _, name := range []string{"hog", "calm"} {
		groups[name] = a.pod(hogPod, name, "besteffort")
	}
	a.pod(strings.Replace(answeringPod, "BIN", a.bin, 1), "web", "besteffort")
	client := c.Command(t.Context(), filepath.Join(a.bin, "timed"), "ask", "http://"+kubectl(t, c, "get", "pod", "web", "-o", "jsonpath={.status.podIP}")+":8080/")
	must(t, client.Start())
	t.Cleanup(func() {
		_ = client.Process.Kill()
		_ = client.Wait() // it was killed
	})
	// bounded lists the batch pods that have a quota, and "all" if their level has one.
	bounded := func() (now []string) {
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			if a.read("cpu", groups[name], "cpu.cfs_quota_us") >= 0 {
				now = append(now, name)
			}
		}
		if a.read("cpu", "besteffort", "cpu.cfs_quota_us") >= 0 {
			now = append(now, "all")
		}
		return now
	}
	requireSoon(t, 3*time.Minute, "the requests are measured at the socket", func() error {
		s, r := a.requests("web")
		if r.Source != "socket" || r.Percentile != "p99" || r.Measured == nil || len(r.Buckets) == 0 {
			return fmt.Errorf("%+v %+v", s, r)
		}
		t.Logf("p99 is at most %v: %s %s", r.Measured.Duration, r.State, s.Cause)
		return nil
	})
	if now := bounded(); len(now) > 0 {
		t.Errorf("before batch work runs, %v are bounded", now)
	}

	kubectl(t, c, "exec", "hog", "--", "touch", "/busy")
	begun := time.Now()
	requireSoon(t, 4*time.Minute, "the objective is missed, and the batch pod is named", func() error {
		s, r := a.requests("web")
		if s.State != v1alpha1.ObjectiveMissed || s.Cause != "best-effort" || s.CulpritNamespace != "default" || s.Culprit != "hog" {
			return fmt.Errorf("%+v %+v", s, r)
		}
		t.Logf("missed %v after the batch work began: p99 %v, %+v", time.Since(begun).Round(time.Second), r.Measured, s.Runners)
		return nil
	})
	requireSoon(t, time.Minute, "the batch pod alone has a bound", func() error {
		now, all := bounded(), a.report().Status.Objectives
		if !slices.Equal(now, []string{"hog"}) || all == nil || len(all.Bounded) != 1 || all.Bounded[0].Pod != "hog" || all.Bounded[0].Service != "web" {
			return fmt.Errorf("%v are bounded; the report says %+v", now, all)
		}
		return nil
	})

	kubectl(t, c, "exec", "hog", "--", "rm", "/busy")
	begun = time.Now()
	requireSoon(t, 4*time.Minute, "no bound is left", func() error {
		if now := bounded(); len(now) > 0 {
			return fmt.Errorf("%v are bounded", now)
		}
		return nil
	})
	t.Logf("the bound went %v after the batch work", time.Since(begun).Round(time.Second))
}
