package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/node"
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

// addressVar has the address of a server in a cgroup of the site: see [answers].
const addressVar = "TENON_TEST_ADDRESS"

// answers serves requests, each with a millisecond of CPU time.
func answers(address string) {
	err := http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var begin, now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &begin)
		for now.Nano() < begin.Nano()+int64(time.Millisecond) {
			_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		}
		fmt.Fprint(w, "done")
	}))
	fmt.Fprintln(os.Stderr, err)
}

// TestAnswersAreMeasuredAtTheSocket runs a service that knows nothing of its
// objective, and asks it. The kernel measures the answers until the objective goes
// away. How fast they are depends on the machine.
func TestAnswersAreMeasuredAtTheSocket(t *testing.T) {
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
	s := plantSite(t, strings.Replace(requestsConfig, "OBJECTIVE", "objective: {p99: 5ms, source: socket, port: "+port+"}", 1))
	metrics := metricsShown(s.listenFor(t))
	s.run(service, "env", addressVar+"="+address, self)
	s.run("batch/quiet", "sleep", "600")
	d := s.tenond()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				if answer, err := http.Get("http://" + address); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body) // so that the connection stays
					_ = answer.Body.Close()
				}
			}
		}
	}()
	judged := func() bool {
		return metrics.have("tenon_request_latency_seconds{", `percentile="p99"`, "services/web") &&
			!metrics.have("tenon_objective_verdict{", `verdict="undecided"`, "services/web")
	}
	begun := time.Now()
	for !judged() {
		if time.Since(begun) > 3*time.Minute {
			t.Fatalf("the answers are not judged after %v", time.Since(begun))
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.configure(strings.Replace(requestsConfig, ", OBJECTIVE", "", 1))
	d.signal(syscall.SIGHUP)
	eventually(t, "there is no verdict without an objective", func() bool { return !metrics.have("tenon_objective_verdict{") })
	d.stop()
	s.restore()
}
