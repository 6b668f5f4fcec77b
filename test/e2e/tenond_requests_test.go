package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// requestsConfig gives the service an objective for its requests. BE has the same
// weight as the service, so that the service waits for it.
const requestsConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 500ms
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"], OBJECTIVE}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
`

// TestSlowRequestsBoundTheBatchWorkToBlame runs a service that shows a histogram,
// beside batch work of which one part uses all CPUs. The histogram is honest about
// slow requests only while the service waits for that work: before that, it is a lie
// that may cost batch work nothing. At the end the objective goes away.
func TestSlowRequestsBoundTheBatchWorkToBlame(t *testing.T) {
	inTurn(t)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rtt_seconds", Buckets: []float64{0.001, 0.005, 0.05}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(h)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	var took atomic.Int64
	took.Store(int64(2 * time.Millisecond))
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
				h.Observe(time.Duration(took.Load()).Seconds())
			}
		}
	}()

	objective := fmt.Sprintf(`objective: {p99: 5ms, source: metrics, port: %d, family: rtt_seconds}`, server.Listener.Addr().(*net.TCPAddr).Port)
	s := plantSite(t, strings.Replace(requestsConfig, "OBJECTIVE", objective, 1))
	metrics := metricsShown(s.listenFor(t))
	s.run("batch/quiet", "sleep", "600")
	d := s.tenond()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	metrics.await(t, "kept", "")
	if !metrics.have("tenon_request_target_seconds{", `percentile="p99"`, "} 0.005") || !metrics.have("tenon_request_latency_seconds{", "} 0.005") {
		t.Error("the metrics lack the target or what was measured")
	}

	took.Store(int64(20 * time.Millisecond))                // a lie: the service sleeps
	metrics.await(t, "missed", "downstream", "not-waiting") // the latter where other work stalls on memory or a disk
	time.Sleep(2 * time.Second)
	if s.bounded(job) || s.bounded(batch) || s.bounded("batch/quiet") {
		t.Fatal("batch work has a bound because of what the service says alone")
	}

	s.crowd(job)
	s.crowd(service)
	metrics.await(t, "missed", "best-effort")
	eventually(t, "the batch work to blame is bounded", func() bool { return s.bounded(job) })
	if s.bounded("batch/quiet") || s.bounded(batch) {
		t.Error("other batch work is bounded, too")
	}

	s.configure(strings.Replace(requestsConfig, ", OBJECTIVE", "", 1))
	d.signal(syscall.SIGHUP)
	narrow := s.quotaOf(job)
	eventually(t, "the batch work grows back without an objective", func() bool { return narrow.CompareWidth(s.quotaOf(job)) < 0 })
	if metrics.have("tenon_objective_verdict{") {
		t.Error("there is a verdict without an objective")
	}
	d.stop()
	s.restore()
}

// metricsShown is the address at which tenond shows its metrics.
type metricsShown string

// listenFor makes tenond show its metrics at a free port, and returns the address.
func (s *site) listenFor(t *testing.T) string {
	t.Helper()
	address := freeAddress(t)
	s.args = append(s.args, "--metrics", address)
	return address
}

// have reports whether a line of the metrics has all these parts.
func (m metricsShown) have(parts ...string) bool {
	answer, err := http.Get("http://" + string(m) + "/metrics")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// await waits until the objective of the service has a verdict, with one of the causes.
func (m metricsShown) await(t *testing.T, verdict string, causes ...string) {
	t.Helper()
	begun := time.Now()
	for {
		for _, cause := range causes {
			if m.have("tenon_objective_verdict{", `cause="`+cause+`"`, `verdict="`+verdict+`"`, "services/web") {
				t.Logf("%s %s after %v", verdict, cause, time.Since(begun).Round(time.Second))
				return
			}
		}
		if time.Since(begun) > 3*time.Minute {
			t.Fatalf("the objective is not %s %s after %v", verdict, causes, time.Since(begun))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (s *site) quotaOf(group string) node.CPUMax {
	s.t.Helper()
	v, err := s.tree.ReadCPUMax(string(s.path(group)))
	if err != nil {
		s.t.Fatal(err)
	}
	return node.CPUMax(v)
}

func (s *site) bounded(group string) bool { return s.quotaOf(group).Quota != node.NoQuota }

// addressVar has the address of a server in a cgroup of the site, see [answers], and
// askedVar the address that a client there asks, see [asks].
const addressVar, askedVar = "TENON_TEST_ADDRESS", "TENON_TEST_ASKED"

// answers serves requests, each with 5 ms of CPU time.
func answers(address string) {
	err := http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var begin, now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &begin)
		for now.Nano() < begin.Nano()+int64(5*time.Millisecond) {
			_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		}
		fmt.Fprint(w, "done")
	}))
	fmt.Fprintln(os.Stderr, err)
}

// asks sends requests on two connections, each 20 ms after the last answer.
func asks(address string) {
	for range 2 {
		go func() {
			for ; ; time.Sleep(20 * time.Millisecond) {
				if answer, err := http.Get("http://" + address); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body) // so that the connection stays
					_ = answer.Body.Close()
				}
			}
		}()
	}
	select {}
}

// TestSlowAnswersAtTheSocketBoundTheBatchWorkToBlame runs a service that knows
// nothing of its objective. The kernel measures its answers. Batch work that makes it
// wait must be named and bounded alone, and the bound must go when that work ends.
//
// The service has a tenth of the weight of batch work, so that each answer takes some
// eleven times as long while batch work uses all CPUs. The site has a large weight, so
// that other work of the machine hardly changes that. tenond and the client are in a
// cgroup of the site, too: they need CPU beside the batch work.
func TestSlowAnswersAtTheSocketBoundTheBatchWorkToBlame(t *testing.T) {
	inTurn(t)
	if os.Getenv("TENON_TEST_NO_BPF") == "1" {
		t.Skip("needs BPF")
	}
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := plantSite(t, strings.Replace(requestsConfig, "OBJECTIVE", "objective: {p99: 30ms, source: socket, port: "+port+"}", 1))
	if err := syscall.Kill(s.tasks[1], syscall.SIGSTOP); err != nil { // the job, which begins later
		t.Fatal(err)
	}
	const beside, quiet = "beside", "batch/quiet"
	s.run(beside, "env", askedVar+"="+address, self)
	s.weigh(map[string]unit.Weight{s.root: unit.WeightOf(1600), string(s.path(beside)): unit.WeightOf(10000), string(s.path("services")): unit.WeightOf(100), string(s.path(batch)): unit.WeightOf(1000)})
	s.before = s.dump(t)
	metrics := metricsShown(s.listenFor(t))
	s.run(service, "env", addressVar+"="+address, self)
	s.run(quiet, "sleep", "600")
	d := s.tenond("sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(s.dir(beside), "cgroup.procs"))
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	const limit = 4 * time.Minute
	eventuallyIn(t, limit, "the answers are measured", func() bool {
		return metrics.have("tenon_request_latency_seconds{", `percentile="p99"`, "services/web") &&
			metrics.have("tenon_requests_total{", `time="known"`, "services/web")
	})
	t.Log("before the batch work: " + s.answered())
	for _, group := range []string{batch, job, quiet} {
		if s.bounded(group) {
			t.Fatalf("%s has a bound although no batch work runs", group)
		}
	}

	others := len(s.tasks)
	s.crowd(job)
	begun := time.Now()
	eventuallyIn(t, limit, "the objective is missed, and the batch work to blame is named", func() bool {
		j := s.verdict()
		culprit, _ := j.Culprit()
		return j.Verdict == slo.Missed && j.Cause == slo.ForBE && strings.HasSuffix(string(culprit), job)
	})
	eventuallyIn(t, limit, "the batch work to blame is bounded", func() bool { return s.bounded(job) })
	t.Logf("bounded %v after the batch work began: %s", time.Since(begun).Round(time.Second), s.answered())
	if s.bounded(quiet) || s.bounded(batch) {
		t.Error("other batch work is bounded, too")
	}

	for _, pid := range s.tasks[others:] {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	s.tasks = s.tasks[:others]
	begun = time.Now()
	eventuallyIn(t, limit, "no bound is left after the batch work", func() bool { return !s.bounded(job) && !s.bounded(quiet) && !s.bounded(batch) })
	t.Logf("the bound went %v after the batch work", time.Since(begun).Round(time.Second))

	s.configure(strings.Replace(requestsConfig, ", OBJECTIVE", "", 1))
	d.signal(syscall.SIGHUP)
	eventuallyIn(t, limit, "there is no verdict without an objective", func() bool { return !metrics.have("tenon_objective_verdict{") })
	d.stop()
	s.restore()
}

// weigh gives cgroups their CPU weight.
func (s *site) weigh(weights map[string]unit.Weight) {
	s.t.Helper()
	for path, w := range weights {
		if err := s.tree.WriteCPUWeight(path, cgroup.CPUWeight{Weight: w}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// verdict returns what tenond says about the objective of the service.
func (s *site) verdict() slo.Judgement {
	s.t.Helper()
	for _, w := range s.status().Workloads {
		if w.Verdict != nil && strings.HasSuffix(string(w.ID), service) {
			return w.Verdict.Judgement
		}
	}
	return slo.Judgement{Verdict: slo.Undecided}
}

// answered says what was measured of the requests of the service in the last window.
func (s *site) answered() string {
	s.t.Helper()
	j := s.verdict()
	r := j.Requests
	return fmt.Sprintf("%s %s: %d requests, %d or more over the target, %d not known", j.Verdict, j.Cause, r.Total, r.OverLeast, r.Unknown)
}
