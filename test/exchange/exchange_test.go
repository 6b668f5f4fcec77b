// Package exchange tests the state of connections, bpf/exchange.h, outside the
// kernel. The simulator (sim) gives it random requests whose times are known. It is
// a C program, because the header is C, and the test compiles it.
package exchange

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
)

// build compiles the simulator. This process copies the files, because the test
// cache tracks only files that the test opens.
func build(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatalf("TENON_TEST_STRICT is set, and there is no C compiler: %v", err)
		}
		t.Skipf("needs a C compiler: %v", err)
	}
	root := t.TempDir()
	for _, name := range []string{"bpf/exchange.h", "test/exchange/sim/sim.c"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "sim")
	if out, err := exec.Command(cc, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join(root, "test/exchange/sim/sim.c")).CombinedOutput(); err != nil {
		t.Fatalf("build the simulator: %v\n%s", err, out)
	}
	return program
}

// A window is what the simulator says of one: its kind, the requests and how many
// were longer than the target, and the same of what was measured.
type window struct {
	kind                                string
	requests, over, total, long, unsure uint64
}

// margin is what slo allows beside one request in a hundred.
const margin = 2

// judge returns the verdict of the agent about a window.
func judge(x window) slo.Verdict {
	const target = 5 * time.Millisecond
	w := node.Workload{ID: "shop/web", Class: node.LS, Pod: true}
	w.Objective.Requests = node.RequestObjective{Source: node.SourceSocket, Port: 80}
	w.Objective.Requests.Within[4] = target
	s := node.Snapshot{At: time.Unix(1e9, 0), Workloads: []node.Workload{w}}
	requests := &s.Workloads[0].Usage.Requests
	*requests = node.Requests{At: s.At, Bounds: []time.Duration{target}, Counts: []uint64{0, 0}}
	all := slo.Tracker{}.Observe(s)
	s.At = s.At.Add(20 * time.Second)
	*requests = node.Requests{At: s.At, Bounds: []time.Duration{target}, Counts: []uint64{x.total - x.long, x.long}, Unsure: x.unsure}
	return all.Observe(s).Judgements(s)[w.ID].Requests.Verdict
}

// TestVerdictsDoNotContradictTheTruth judges random windows. A protocol that answers
// one request of a connection at a time must be decided, and never wrongly. Where
// requests overlap, at most one verdict in 500 windows may be wrong. Where the
// kernel skips runs of the programs, no verdict is wrong, and if it skips one of 500,
// most windows are still decided: one run that is skipped costs one or two exchanges,
// and not the connection.
func TestVerdictsDoNotContradictTheTruth(t *testing.T) {
	const windows = 10_000
	text, err := exec.Command(build(t), strconv.Itoa(windows), "44").Output()
	if err != nil {
		t.Fatal(err)
	}
	verdicts, wrong, seen := map[string]map[slo.Verdict]int{}, map[string]int{}, 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); seen++ {
		var x window
		if _, err := fmt.Sscan(lines.Text(), &x.kind, &x.requests, &x.over, &x.total, &x.long, &x.unsure); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		v := judge(x)
		if verdicts[x.kind] == nil {
			verdicts[x.kind] = map[slo.Verdict]int{}
		}
		verdicts[x.kind][v]++
		missed := 1000*x.over > 10*x.requests+1000*margin
		if v == slo.Kept && missed || v == slo.Missed && !missed {
			if wrong[x.kind]++; wrong[x.kind] <= 5 {
				t.Logf("%s: %+v", v, x)
			}
		}
	}
	if seen != windows {
		t.Errorf("%d windows, want %d", seen, windows)
	}
	all, overlap := 0, 0
	for kind, v := range verdicts {
		t.Logf("%s: %v, %d wrong", kind, v, wrong[kind])
		switch kind {
		case "streams", "controlled", "in-loop", "pipelined":
			all += v[slo.Kept] + v[slo.Missed] + v[slo.Undecided]
			overlap += wrong[kind]
		default:
			if wrong[kind] > 0 {
				t.Errorf("%s: %d verdicts of %v are wrong, want none", kind, wrong[kind], v)
			}
		}
	}
	if 500*overlap > all {
		t.Errorf("of %d windows with requests that overlap, %d verdicts are wrong, want at most one in 500", all, overlap)
	}
	if v := verdicts["skipped"]; v[slo.Kept]+v[slo.Missed] < windows/8/2 {
		t.Errorf("of the windows in which the kernel skips runs, want half decided: %v", v)
	}
	for _, v := range []slo.Verdict{slo.Kept, slo.Missed} {
		if n := verdicts["one-at-a-time"][v]; n < windows/50 {
			t.Errorf("%d windows of one request at a time are %s: want more", n, v)
		}
	}
}
