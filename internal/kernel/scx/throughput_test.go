package scx

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/test/kerneltest"
)

// TestHookLeavesThroughput runs nginx on one CPU and wrk on the other. It runs
// them in pairs, with and without the hook, in random order, and computes the
// ratio of the two throughputs of each pair. TENON_TEST_PAIRS is the number of
// pairs. A few show that the test works, and about fifty can show a difference
// of one per cent. TENON_TEST_RAW keeps the raw data.
func TestHookLeavesThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("runs nginx: not with -short")
	}
	for _, program := range []string{"nginx", "wrk", "taskset"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: %v", program, err)
		}
	}
	if len(topology(t)) < 2 {
		t.Skip("needs two CPUs: one for nginx, one for its client")
	}
	s := hookOnly(t)
	st := stage{Stage: kerneltest.NewStage(t, "hook", skipLacking)}
	ls, id := st.Group("ls")
	st.classify(s, Group{Cgroup: id, Class: LSX})
	url := startNginx(t, st.Tree, ls)

	type half struct {
		Pair     int     `json:"pair"`
		Hook     bool    `json:"hook"`
		Requests float64 `json:"requests_per_second"`
	}
	pairs, length := 3, time.Second
	if n, err := strconv.Atoi(os.Getenv("TENON_TEST_PAIRS")); err == nil && n > 1 {
		pairs, length = n, 2*time.Second
	}
	order := rand.New(rand.NewPCG(1, 2))
	var raw []half
	var logs []float64
	wrk(t, url, length) // warm-up
	for pair := range pairs {
		var rate [2]float64
		first := order.IntN(2)
		for _, on := range []int{first, 1 - first} {
			if on == 1 {
				detach := attachHook(t, s)
				rate[on] = wrk(t, url, length)
				detach()
			} else {
				rate[on] = wrk(t, url, length)
			}
			raw = append(raw, half{pair, on == 1, rate[on]})
		}
		logs = append(logs, math.Log(rate[1]/rate[0]))
	}
	var mean, square float64
	for _, l := range logs {
		mean += l / float64(pairs)
	}
	for _, l := range logs {
		square += (l - mean) * (l - mean)
	}
	// From about thirty pairs on, the 95 % interval of the mean is two standard
	// errors wide on each side.
	doubt := 2 * math.Sqrt(square/float64(pairs-1)/float64(pairs))
	t.Logf("throughput with the hook is %.4f of that without (%.4f to %.4f), %d pairs", math.Exp(mean), math.Exp(mean-doubt), math.Exp(mean+doubt), pairs)
	if math.Exp(mean+doubt) < 0.9 { // a broken program; the experiment measures the real cost
		t.Error("the hook takes a tenth of the throughput")
	}
	if file := os.Getenv("TENON_TEST_RAW"); file != "" {
		data, err := json.Marshal(raw)
		if err == nil {
			err = os.WriteFile(file, append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// startNginx starts nginx in a group on CPU 0. nginx serves a small answer.
func startNginx(t *testing.T, tree *cgroup.Tree, group string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; master_process off; pid %s/pid; error_log stderr;\nevents {}\n"+
		"http { access_log off; server { listen %s; location / { return 200 \"hello\\n\"; } } }\n", dir, address)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("taskset", "-c", "0", "nginx", "-p", dir, "-c", conf)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := tree.Attach(group, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return "http://" + address + "/"
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("nginx does not answer")
	return ""
}

// wrk sends requests to the server from CPU 1 for a number of whole seconds. It
// returns the requests per second.
func wrk(t *testing.T, url string, length time.Duration) float64 {
	t.Helper()
	out, err := exec.Command("taskset", "-c", "1", "wrk", "-t1", "-c16", "-d"+length.String(), url).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "Requests/sec:"); ok {
			rate, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return rate
		}
	}
	t.Fatalf("no rate in %s", out)
	return 0
}
