package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/stat"
)

// stated is the number of services with an objective.
const stated = 20

// wakesUp is the main function of a service that does a little every 10 ms, so that its
// thread waits for a CPU a hundred times in a second.
func wakesUp() {
	for ; ; time.Sleep(10 * time.Millisecond) {
		for begun := time.Now(); time.Since(begun) < 50*time.Microsecond; {
		}
	}
}

// costConfig is the configuration for 100 workloads of rules.
const costConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
rules:
- {name: stated, class: LS, cgroups: ["ROOT/stated/*"], requests: {cpu: 10m, memory: 1Mi}OBJECTIVE}
- {name: services, class: LS, cgroups: ["ROOT/ls/*"], requests: {cpu: 10m, memory: 1Mi}}
- {name: jobs, class: BE, cgroups: ["ROOT/be/*"]}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 65}
resource-qos-config: {policies: {cpuIsolation: strongest}, beClass: {cpuQOS: {enable: true}}}
`

// plantWorkloads makes a site with 25 services and 75 jobs. state gives the services that
// wake up an objective, or takes it from them.
func plantWorkloads(t *testing.T) (s *site, state func(on bool)) {
	s = newSite(t, "cost")
	t.Cleanup(s.disarm)
	for i := range 100 {
		switch {
		case i < stated:
			s.run(fmt.Sprintf("stated/job-%d", i), "env", "TENON_TEST_ROLE=waker", os.Args[0])
		case i < 25:
			s.run(fmt.Sprintf("ls/job-%d", i), "sleep", "100000")
		default:
			s.run(fmt.Sprintf("be/job-%d", i), "sleep", "100000")
		}
	}
	return s, func(on bool) {
		objective := ""
		if on {
			objective = ", objective: {runQueueDelay: 2ms}"
		}
		s.configure(strings.Replace(costConfig, "OBJECTIVE", objective, 1))
	}
}

// plantPods makes a node of a cluster with 34 services and 66 jobs, as plantWorkloads.
func plantPods(t *testing.T) (s *site, state func(on bool)) {
	s, k := plantHundredPods(t, stated)
	return s, func(on bool) {
		k.change(func(p *corev1.Pod) {
			if strings.HasPrefix(p.Name, wakingPod) {
				p.Annotations = nil
				if on {
					p.Annotations = map[string]string{kube.AnnotationObjective: `{"runQueueDelay": "2ms"}`}
				}
			}
		})
	}
}

// TestTheCostOfObjectives measures what share of a CPU tenond uses with and without
// objectives of 20 services, at 100 workloads of rules and beside 100 pods. It takes four
// minutes for each block of two agents:
//
//	TENON_TEST_BLOCKS=40 TENON_TEST_AGENTS="before=DIR after=DIR" TENON_TEST_RAW=DIR go test ./test/e2e -run TestTheCostOfObjectives -v -timeout 4h
//
// TENON_TEST_AGENTS names folders with a tenon and a tenond each. Without it, those of this
// tree are measured alone. In a block, each agent runs once with and once without
// objectives, in random order. TENON_TEST_RAW is the folder for a file of each place with a
// line for each run. The intervals are those of 90 %.
func TestTheCostOfObjectives(t *testing.T) {
	blocks, err := strconv.Atoi(os.Getenv("TENON_TEST_BLOCKS"))
	if err != nil || blocks < 1 {
		t.Skip("four minutes for each block: TENON_TEST_BLOCKS=12 runs it")
	}
	needRoot(t)
	t.Run("workloads", func(t *testing.T) { measureCosts(t, blocks, 0.5, plantWorkloads) })
	t.Run("pods", func(t *testing.T) { measureCosts(t, blocks, 0.9, plantPods) })
}

// A costCell is what is measured once in each block.
type costCell struct {
	agent      string
	objectives int
}

// measureCosts measures all cells at one place. With objectives, tenond may use at most this
// percentage of a CPU.
func measureCosts(t *testing.T, blocks int, most float64, plant func(*testing.T) (*site, func(on bool))) {
	s, state := plant(t)
	s.before = s.dump(t)
	names, dirs := costAgents(t)
	var cells []costCell
	for _, name := range names {
		cells = append(cells, costCell{name, 0}, costCell{name, stated})
	}
	taken := map[costCell]stat.Sample{}
	for _, c := range cells {
		taken[c] = stat.Sample{}
	}
	raw := "block,agent,objectives,percent,ticks_per_s\n"
	order, rng := slices.Clone(cells), rand.New(rand.NewPCG(44, 44))
	for block := range blocks {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, c := range order {
			state(c.objectives > 0)
			percent, ticks := s.cost(dirs[c.agent], c.objectives)
			taken[c][block] = percent
			raw += fmt.Sprintf("%d,%s,%d,%.4f,%.3f\n", block, c.agent, c.objectives, percent, ticks)
		}
		if dir := os.Getenv("TENON_TEST_RAW"); dir != "" {
			_, place, _ := strings.Cut(t.Name(), "/")
			if err := os.WriteFile(filepath.Join(dir, place+".csv"), []byte(raw), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("\n%s", raw)
	rule := paired.Blocks().Planned(blocks)
	rule.Rare = 0 // no state of the machine changes a CPU time by a large factor
	for _, c := range cells {
		e := stat.Mean(taken[c], rule)
		t.Logf("%s, %d objectives: %.3f %% of a CPU (%.3f to %.3f)", c.agent, c.objectives, e.Value, e.Lower, e.Upper)
	}
	first, last := names[0], names[len(names)-1]
	judge := func(what string, e stat.Estimate, limit float64) {
		verdict := stat.AtMost(e, limit)
		t.Logf("%s: %.3f (%.3f to %.3f), at most %v: %s", what, e.Value, e.Lower, e.Upper, limit, verdict)
		if verdict == stat.NotMet {
			t.Errorf("%s: %.3f, at most %v", what, e.Value, limit)
		}
	}
	judge(fmt.Sprintf("%s, %d objectives, %% of a CPU", last, stated), stat.Mean(taken[costCell{last, stated}], rule), most)
	with := stat.Ratio(taken[costCell{last, stated}], taken[costCell{last, 0}], rule)
	t.Logf("%s, %d objectives to none: %.3f (%.3f to %.3f)", last, stated, with.Value, with.Lower, with.Upper)
	if first != last {
		judge(fmt.Sprintf("%s to %s, no objective", last, first), stat.Ratio(taken[costCell{last, 0}], taken[costCell{first, 0}], rule), 1.03)
	}
}

// costAgents returns the names of the agents to compare, in their order, and the folder of
// each.
func costAgents(t *testing.T) (names []string, dirs map[string]string) {
	t.Helper()
	dirs = map[string]string{}
	for _, agent := range strings.Fields(os.Getenv("TENON_TEST_AGENTS")) {
		name, dir, _ := strings.Cut(agent, "=")
		names, dirs[name] = append(names, name), dir
	}
	if len(names) == 0 {
		names, dirs["this"] = []string{"this"}, programs(t)
	}
	return names, dirs
}

// cost runs the tenond in a folder with a state of its own. It returns the percentage of a
// CPU that it uses, and its ticks in a second.
func (s *site) cost(dir string, objectives int) (percent, ticks float64) {
	s.t.Helper()
	address := freeAddress(s.t)
	s.bin, s.state = dir, filepath.Join(s.t.TempDir(), "run")
	args := s.args
	s.args = append(slices.Clone(args), "--metrics", address)
	d := s.tenond()
	s.args = args
	time.Sleep(5 * time.Second) // until the first ticks are over
	const counter = `tenon_tick_duration_seconds_count{part="sense"}`
	before, used := scrape(s.t, address)[counter], cpuTime(s.t, d.Process.Pid)
	time.Sleep(costSpan)
	percent = 100 * (cpuTime(s.t, d.Process.Pid) - used).Seconds() / costSpan.Seconds()
	after := scrape(s.t, address)
	judged := 0
	for name := range after {
		if strings.HasPrefix(name, "tenon_objective_missed{") { // absent without a verdict
			judged++
		}
	}
	if judged != objectives {
		s.t.Errorf("%s has a verdict about %d services, want %d", dir, judged, objectives)
	}
	d.stop()
	s.restore()
	return percent, (after[counter] - before) / costSpan.Seconds()
}
