package query

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/model/node"
)

// startPrometheus starts a Prometheus server that reads targets every second. The
// targets are an entry of scrape_configs. It returns the URL of the server.
func startPrometheus(t *testing.T, targets string) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1s}\nscrape_configs: ["+targets+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--storage.tsdb.retention.time=1h")
	p.Stdout, p.Stderr = log, log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s %v", text, errors.Join(err, log.Close()))
		}
	})
	return "http://" + address
}

// TestARealPrometheusAnswers asks a Prometheus server for the requests of a pod while
// it reads that pod and one of another namespace, and after the pod has gone.
func TestARealPrometheusAnswers(t *testing.T) {
	var requests atomic.Int64
	requests.Store(5)
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Load()
		fmt.Fprintf(w, "# TYPE rtt_seconds histogram\n")
		fmt.Fprint(w, "mixed_seconds_bucket{a=\"1\",le=\"1\"} 1\nmixed_seconds_bucket{a=\"1\",le=\"+Inf\"} 1\nmixed_seconds_bucket{a=\"2\",le=\"2\"} 2\nmixed_seconds_bucket{a=\"2\",le=\"+Inf\"} 2\n")
		for _, code := range []string{"200", "500"} {
			fmt.Fprintf(w, "rtt_seconds_bucket{code=%q,le=\"0.005\"} %d\nrtt_seconds_bucket{code=%q,le=\"+Inf\"} %d\nrtt_seconds_sum{code=%q} 1\nrtt_seconds_count{code=%q} %d\n", code, n, code, 2*n, code, code, 2*n)
		}
	}))
	defer pod.Close()
	entry := func(namespace, name string) string {
		return fmt.Sprintf("{targets: [%q], labels: {namespace: %s, pod: %s}}", strings.TrimPrefix(pod.URL, "http://"), namespace, name)
	}
	s := promapi.Server{URL: startPrometheus(t, "{job_name: pods, static_configs: ["+strings.Join([]string{entry("shop", "web-0"), entry("shop", "web-1"), entry("bank", "web-0"), entry("bank", "vault-0")}, ", ")+"]}")}
	c, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// until asks until the answer about the first pod is as wanted.
	until := func(what string, q Question, is func(v1alpha1.QueriedService) bool) []v1alpha1.QueriedService {
		t.Helper()
		var all []v1alpha1.QueriedService
		var err error
		for range 150 {
			if all, err = Ask(t.Context(), c, q); len(all) == len(q.Pods) && is(all[0]) {
				return all
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Fatalf("%s: the last answer is %+v, %v", what, all, err)
		return nil
	}
	counts := func(wanted ...int64) func(v1alpha1.QueriedService) bool {
		return func(s v1alpha1.QueriedService) bool { return slices.Equal(s.Counts, wanted) }
	}
	trouble := func(why node.SourceTrouble) func(v1alpha1.QueriedService) bool {
		return func(s v1alpha1.QueriedService) bool { return s.Trouble == string(why) }
	}
	both := Question{"shop", v1alpha1.RequestSeries{Family: "rtt_seconds"}, []string{"web-0", "web-1"}}
	all := until("both codes are added up", both, counts(10, 20))
	first := all[0]
	if age := time.Since(first.At.Time); age < -time.Second || age > 10*time.Second || !slices.Equal(first.Ends, []string{"0.005", "+Inf"}) {
		t.Errorf("%+v is %v old", first, age)
	}
	requests.Store(50)
	next := until("more requests", both, counts(100, 200))[0]
	if !next.At.After(first.At.Time) {
		t.Errorf("the reading of %v is followed by that of %v", first.At, next.At)
	}
	one := Question{"shop", v1alpha1.RequestSeries{Family: "rtt_seconds", Labels: map[string]string{"code": "200"}}, []string{"web-0"}}
	until("one code", one, counts(50, 100))
	other := Question{"shop", v1alpha1.RequestSeries{Family: "mixed_seconds"}, []string{"web-0"}}
	until("series with other buckets", other, trouble(node.TroubleDamaged))
	for what, q := range map[string]Question{
		"another namespace by a label": {"shop", v1alpha1.RequestSeries{Family: "rtt_seconds", Labels: map[string]string{"namespace": "bank"}}, []string{"web-0"}},
		"a pod of another namespace":   {"shop", both.Series, []string{"vault-0"}},
		"all pods":                     {"shop", both.Series, []string{"web-.*"}},
		"a namespace that ends":        {`shop"} or rtt_seconds_bucket{le!="`, both.Series, []string{"web-0"}},
		"a label that ends":            {"shop", v1alpha1.RequestSeries{Family: "rtt_seconds", Labels: map[string]string{"code": `x"} or rtt_seconds_bucket{le!="`}}, []string{"web-0"}},
		"all characters":               {"shop", v1alpha1.RequestSeries{Family: "rtt_seconds", Labels: map[string]string{"code": "\x00\a\b\f\n\r\t\v\\\"'`\u00e9\u2028\U0001f600\x7f"}}, []string{"web-0"}},
		"another histogram":            {"shop", v1alpha1.RequestSeries{Family: "other_seconds"}, []string{"web-0"}},
	} {
		if got, err := Ask(t.Context(), c, q); err != nil || !trouble(node.TroubleAbsent)(got[0]) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	pod.Close() // Prometheus marks its series as stale at once
	until("the pod has gone", both, trouble(node.TroubleAbsent))
}
