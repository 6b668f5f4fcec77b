package policy

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/unit"
)

var update = flag.Bool("update", false, "rewrite the scenarios with what the policies do now")

// TestScenarios plays every story in testdata. A story is text:
//
//	# comments say what the story shows
//	node cpus=4 [v=1] [idle=no] [qos] [job=700m] [target=65%] [min=10%] [policy=cpuset]
//	tick [every=1s] web=1500m be=2000m [system=100m] [web=?]
//	----
//	the steps that follow, one a line
//
// Every tick adds the given use to the counters, decides, and applies all
// steps. "web" is LS, "be" is BE; "?" removes a counter.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("the story changed (-told +seen):\n%s", diff)
			}
		})
	}
}

// play returns the story with what the policies do in it.
func play(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var n scene
	lines := bufio.NewScanner(strings.NewReader(text))
	skipping := false
	for lines.Scan() {
		line := lines.Text()
		verb, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
			skipping = false
		case skipping:
			continue
		case verb == "node":
			n = newScene(t, rest)
		case line == "----":
			skipping = true
			fmt.Fprintln(&out, line)
			steps := n.decide()
			if len(steps) == 0 {
				fmt.Fprintln(&out, "nothing")
			}
			for _, s := range steps {
				fmt.Fprintln(&out, s)
			}
			continue
		case verb == "tick":
			n.tick(t, rest)
		case verb == "off":
			n.config = Config{}
		case !strings.HasPrefix(line, "#"):
			t.Fatalf("scenario line %q: want node, tick, off, ---- or a comment", line)
		}
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

type scene struct {
	config Config
	state  State
	snap   node.Snapshot
	busy   map[unit.CPU]time.Duration
	used   map[string]time.Duration
}

func newScene(t *testing.T, words string) scene {
	n := scene{used: map[string]time.Duration{}, busy: map[unit.CPU]time.Duration{}}
	k := node.Kernel{CgroupVersion: 2, PageSize: 4096}
	n.snap.Can = node.Capabilities{node.MechCPUIdle: {Verdict: node.Yes}}
	cpus, limit := 0, node.Maybe[unit.MilliCPU]{}
	for _, w := range strings.Fields(words) {
		key, val, _ := strings.Cut(w, "=")
		var pct unit.Percent
		_, _ = fmt.Sscanf(val, "%d%%", &pct)
		switch key {
		case "cpus":
			_, _ = fmt.Sscanf(val, "%d", &cpus)
		case "v":
			_, _ = fmt.Sscanf(val, "%d", &k.CgroupVersion)
		case "idle":
			n.snap.Can = node.Capabilities{node.MechCPUIdle: {Verdict: node.No}}
		case "qos":
			n.config.CPUQOS = true
		case "job": // what the job's owner asked for
			m, err := unit.ParseMilliCPU(val)
			if err != nil {
				t.Fatal(err)
			}
			limit = node.Some(m)
		case "target":
			n.config.Suppress.Enable, n.config.Suppress.ThresholdPercent = true, pct
		case "min":
			n.config.Suppress.MinPercent = pct
		case "policy":
			n.config.Suppress.Policy = SuppressPolicy(val)
		default:
			t.Fatalf("node %q: unknown word", w)
		}
	}
	for c := range cpus {
		n.snap.Topology.CPUs = append(n.snap.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 8)})
		n.busy[unit.CPU(c)] = 0
	}
	n.snap.At = time.Unix(0, 0)
	n.snap.Workloads = []node.Workload{
		{ID: "web", Class: node.LS, Cgroup: "ls/web", Meet: "ls"},
		{ID: "be", Class: node.BE, Cgroup: "be/job", Meet: "be", CPULimit: limit},
	}
	n.snap.Knobs = node.Knobs{Kernel: k, Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}
	for _, p := range []node.CgroupPath{"ls", "ls/web", "be", "be/job"} {
		n.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUWeight}] = node.CPUWeight{Weight: unit.WeightOf(100)}
		n.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUMax}] = node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
		n.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileMemory}] = node.NoMemoryLimit
		n.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUs}] = node.CPUs{Set: n.snap.Topology.All()}
	}
	return n
}

func (n *scene) tick(t *testing.T, words string) {
	every := time.Second
	missing := map[string]bool{}
	spent := time.Duration(0)
	add := map[string]unit.MilliCPU{}
	for _, w := range strings.Fields(words) {
		key, val, _ := strings.Cut(w, "=")
		var err error
		switch {
		case key == "every":
			every, err = time.ParseDuration(val)
		case val == "?":
			missing[key] = true
		default:
			add[key], err = unit.ParseMilliCPU(val)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for key, m := range add {
		n.used[key] += time.Duration(float64(every) * m.Cores())
		spent += time.Duration(float64(every) * m.Cores())
	}
	n.snap.At = n.snap.At.Add(every)
	busy := map[unit.CPU]time.Duration{}
	for c, b := range n.busy {
		busy[c] = b + spent/time.Duration(len(n.busy))
	}
	n.busy, n.snap.Busy = busy, busy
	for i, w := range n.snap.Workloads {
		n.snap.Workloads[i].Usage.CPU = node.Maybe[time.Duration]{}
		if !missing[string(w.ID)] {
			n.snap.Workloads[i].Usage.CPU = node.Some(n.used[string(w.ID)])
		}
	}
}

func (n *scene) decide() []plan.Step {
	var wants []plan.Want
	n.state, wants = Decide(n.config, n.state, n.snap)
	steps := plan.Diff(n.snap.Knobs, wants)
	for _, s := range steps {
		if _, touched := n.snap.Knobs.Before[s.Knob]; !touched {
			n.snap.Knobs.Before[s.Knob] = s.From
		}
		if s.Release {
			delete(n.snap.Knobs.Before, s.Knob)
		}
		n.snap.Knobs.Now[s.Knob] = s.To
	}
	return steps
}
