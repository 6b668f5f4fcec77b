package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s.args = append(s.args, "--metrics", metrics)
	s.run("batch/quiet", "sleep", "600")
	d := s.tenond()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	shown := func(parts ...string) bool {
		answer, err := http.Get("http://" + metrics + "/metrics")
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
	verdict := func(verdict, cause string) {
		t.Helper()
		begun := time.Now()
		for !shown("tenon_objective_verdict{", `cause="`+cause+`"`, `verdict="`+verdict+`"`, "services/web") {
			if time.Since(begun) > 3*time.Minute {
				t.Fatalf("the objective is not %s %s after %v", verdict, cause, time.Since(begun))
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Logf("%s %s after %v", verdict, cause, time.Since(begun).Round(time.Second))
	}
	quota := func(group string) node.CPUMax {
		t.Helper()
		v, err := s.tree.ReadCPUMax(string(s.path(group)))
		if err != nil {
			t.Fatal(err)
		}
		return node.CPUMax(v)
	}
	bounded := func(group string) bool { return quota(group).Quota != node.NoQuota }
	verdict("kept", "")
	if !shown("tenon_request_target_seconds{", `percentile="p99"`, "} 0.005") || !shown("tenon_request_latency_seconds{", "} 0.005") {
		t.Error("the metrics lack the target or what was measured")
	}

	took.Store(int64(20 * time.Millisecond)) // a lie: the service sleeps
	verdict("missed", "not-waiting")
	time.Sleep(2 * time.Second)
	if bounded(job) || bounded(batch) || bounded("batch/quiet") {
		t.Fatal("batch work has a bound because of what the service says alone")
	}

	s.crowd(job)
	s.crowd(service)
	verdict("missed", "best-effort")
	eventually(t, "the batch work to blame is bounded", func() bool { return bounded(job) })
	if bounded("batch/quiet") || bounded(batch) {
		t.Error("other batch work is bounded, too")
	}

	s.configure(strings.Replace(requestsConfig, ", OBJECTIVE", "", 1))
	d.signal(syscall.SIGHUP)
	narrow := quota(job)
	eventually(t, "the batch work grows back without an objective", func() bool { return narrow.CompareWidth(quota(job)) < 0 })
	if shown("tenon_objective_verdict{") {
		t.Error("there is a verdict without an objective")
	}
	d.stop()
	s.restore()
}
