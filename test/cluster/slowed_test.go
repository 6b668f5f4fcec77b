package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/rollout"
)

// tickingService runs on each node. Five times a second it wakes six of its processes at
// once, which work for a moment. So they also wait for each other, and the service waits
// for a millisecond even on a machine with no other work. Without that, the harm would be
// hundreds of times what is usual there, and spend the margin before a report has come.
const tickingService = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web, namespace: shop}, spec: {selector: {matchLabels: {app: web}},
template: {metadata: {labels: {app: web, koordinator.sh/qosClass: LS}}, spec: {terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", resources: {requests: {cpu: 100m, memory: 32Mi}},
command: [sh, -c, "TICK"]}]}}}}`

// ticks is the command of tickingService.
const ticks = `work() { while read tick; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; done; }; ` +
	`for n in 3 4 5 6 7 8; do mkfifo /tick$n; work </tick$n & eval "exec $n>/tick$n"; done; ` +
	`while :; do usleep 200000; for n in 3 4 5 6 7 8; do echo >&$n; done; done`

// spinningBatch wants a CPU of each node on which batch work is on. It has no CPU limit:
// on cgroup v1 the quota of a pod must not exceed that of its node (oversold).
const spinningBatch = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: spin, namespace: batch}, spec: {selector: {matchLabels: {app: spin}},
template: {metadata: {labels: {app: spin, koordinator.sh/qosClass: BE}}, spec: {terminationGracePeriodSeconds: 1,
containers: [{name: spin, image: "busybox:1", command: [sh, -c, "while :; do :; done"],
resources: {requests: {kubernetes.io/batch-memory: 64Mi}, limits: {kubernetes.io/batch-memory: 64Mi}}}]}}}}`

// margin is by how much longer the owner lets the services of slowedCluster wait, in percent.
const margin = 3

// A slowedCluster is a cluster of four nodes with a service, and a rollout.
type slowedCluster struct {
	*chart
	nodes  []*Node
	plugin string // kubectl-tenon

	mu      sync.Mutex
	samples []waitSample
}

// A waitSample is what the service has waited on one node by the counters of the kernel,
// and not by Tenon's.
type waitSample struct {
	at     time.Time
	node   int
	on     bool
	lasted time.Duration // since the last sample of the node
	waited time.Duration // in it
	waits  int64
}

// TestARolloutThatHarmsGoesBack has a rollout on four nodes. Batch work comes to the first
// one, and at first it does no harm. Then each node gets a limit of its CPU time that Tenon
// does not see, as a virtual machine has on an oversold host. Batch work spends this time,
// so that services wait where it is on. By the counters of the kernel, they must wait less
// than the margin allows until batch work is off on all nodes, and the verdict must follow
// from the numbers that kubectl tenon rollout prints.
func TestARolloutThatHarmsGoesBack(t *testing.T) {
	needsCluster(t)
	switch {
	case inGuest():
		t.Skip("the guest has no place for four nodes")
	case isUnified():
		t.Skip("gives nodes their limit and weight by files of cgroup v1, which a machine with cgroup v2 alone lacks")
	case pickLength(true, false):
		t.Skip("takes 17 minutes, of which the manager reads for nine what is usual: set TENON_TEST_LONG=1")
	}
	s := newSlowedCluster(t)
	begun := time.Now()
	requireSoon(t, 5*time.Minute, "the rollout begins", func() error { return s.phase(rollout.Compares) })
	var on []int
	requireSoon(t, 15*time.Minute, "batch work runs on a node", func() error {
		state, err := s.state()
		if err != nil {
			return err
		}
		if on, err = s.on(); err != nil {
			return err
		}
		if len(on) != 1 || state.Drawn != 1 {
			return fmt.Errorf("in block %d, on are %v", state.Drawn, on)
		}
		return s.batchRuns()
	})
	since := time.Now()
	t.Logf("batch work runs on %s, %v after the rollout began", s.nodes[on[0]].Name, since.Sub(begun).Round(time.Second))

	time.Sleep(2 * time.Minute)
	if state, err := s.state(); err != nil || state.Phase != rollout.Compares || len(state.Verdicts) != 1 {
		t.Fatalf("it does no harm, and the verdicts are %+v: %v", state.Verdicts, err)
	}
	limited := time.Now()
	s.oversell(100*time.Millisecond, 500*time.Millisecond)
	requireSoon(t, 30*time.Minute, "the rollout goes back", func() error { return s.phase(rollout.Back) })
	back := time.Now()
	t.Logf("the rollout went back %v after the limit", back.Sub(limited).Round(time.Second))
	requireSoon(t, 2*time.Minute, "batch work is off on all nodes", s.allOff)
	off := time.Now()
	t.Logf("batch work is off on all nodes %v later", off.Sub(back).Round(time.Second))
	time.Sleep(time.Minute)
	s.judgeSamples(since, limited, off)
	s.judgeVerdict()
	s.oversell(-1, 500*time.Millisecond) // agents end sooner
	s.run("uninstall", release, "--namespace", home)
}

func newSlowedCluster(t *testing.T) *slowedCluster {
	t.Helper()
	c, n := startCluster(t, "slowed")
	s := &slowedCluster{nodes: []*Node{n}, plugin: filepath.Join(t.TempDir(), "kubectl-tenon")}
	for i := 1; i < 4; i++ {
		n, err := c.AddNode(t.Context(), i, NodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, n)
	}
	// Other work of the machine must not take the CPUs of the nodes.
	for _, n := range s.nodes {
		must(t, os.WriteFile(filepath.Join(n.Cgroup("cpu", ""), "cpu.shares"), []byte("16384"), 0o644))
	}
	s.chart = newChart(t, c, n)
	s.build(".", "go", "build", "-o", s.plugin, "tenon.sh/tenon/cmd/kubectl-tenon")
	for _, space := range []string{home, "shop", "batch"} {
		s.kubectl("create", "namespace", space)
	}
	s.apply(strings.Replace(tickingService, `"TICK"`, strconv.Quote(ticks), 1))
	requireSoon(t, 2*time.Minute, "the service runs on all nodes", func() error {
		_, err := s.c.Kubectl(t.Context(), "rollout", "status", "-n", "shop", "daemonset/web", "--timeout=1s")
		return err
	})
	s.run(append([]string{"install", release, s.from, "--set", "manager.replicas=1", "--set", "manager.podDisruptionBudget.enabled=false",
		"--set-json", fmt.Sprintf(`strategies.rollout-config={"enable": true, "marginPercent": %d, "epochMinutes": 18}`, margin),
		// The longest objective: no service misses it, so that nothing but the rollout acts.
		"--set-json", `strategies.objective-config={"objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "1s"}}]}`}, s.args...)...)
	requireSoon(t, 3*time.Minute, "all of Tenon is ready", s.ready)
	s.apply(spinningBatch)
	s.watch()
	return s
}

func (s *slowedCluster) apply(text string) {
	s.t.Helper()
	if _, err := s.c.KubectlApply(s.t.Context(), text, "apply", "-f", "-"); err != nil {
		s.t.Fatal(err)
	}
}

// page returns what kubectl tenon rollout prints.
func (s *slowedCluster) page(args ...string) (string, error) {
	out, err := s.c.Command(s.t.Context(), s.plugin, append([]string{"rollout"}, args...)...).Output()
	return string(out), err
}

func (s *slowedCluster) state() (state rollout.State, err error) {
	text, err := s.page("-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &state)
	}
	return state, err
}

func (s *slowedCluster) phase(want rollout.Phase) error {
	state, err := s.state()
	if err == nil && state.Phase != want {
		err = fmt.Errorf("it is in the phase %q", state.Phase)
	}
	return err
}

// on returns the indices of the nodes on which batch work is on by their labels.
func (s *slowedCluster) on() (on []int, err error) {
	text, err := s.c.Kubectl(s.t.Context(), "get", "nodes", "-l", config.LabelRollout+"="+config.RolloutOn, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return nil, err
	}
	for i, n := range s.nodes {
		if slices.Contains(strings.Fields(text), n.Name) {
			on = append(on, i)
		}
	}
	return on, nil
}

// batchRuns returns nil if one pod of batch work runs, and the others have no node.
func (s *slowedCluster) batchRuns() error {
	text, err := s.c.Kubectl(s.t.Context(), "get", "pods", "-n", "batch", "-o", "jsonpath={.items[*].status.phase}")
	if err == nil && (strings.Count(text, "Running") != 1 || strings.Count(text, "Pending") != len(s.nodes)-1) {
		err = fmt.Errorf("the pods are %s", text)
	}
	return err
}

// allOff returns nil if all nodes are off by their labels, and batch work has a hundredth
// of a CPU where there is some.
func (s *slowedCluster) allOff() error {
	text, err := s.c.Kubectl(s.t.Context(), "get", "nodes", "-l", config.LabelRollout+"="+config.RolloutOff, "-o", "name")
	if got := len(strings.Fields(text)); err == nil && got != len(s.nodes) {
		err = fmt.Errorf("%d nodes are off", got)
	}
	for _, n := range s.nodes {
		pods, wrong := filepath.Glob(n.Cgroup("cpu", "kubepods/besteffort/pod*"))
		if err = errors.Join(err, wrong); len(pods) == 0 {
			continue
		}
		var of [2]int
		for i, file := range []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"} {
			value, wrong := n.setting("cpu", "kubepods/besteffort", file)
			if wrong == nil {
				of[i], wrong = strconv.Atoi(value)
			}
			err = errors.Join(err, wrong)
		}
		if of[0] < 0 || of[0]*90 > of[1] {
			err = errors.Join(err, fmt.Errorf("batch work of %s has a quota of %d of %d µs", n.Name, of[0], of[1]))
		}
	}
	return err
}

// oversell gives each node a limit of its CPU time: so much in a period, for all of its
// pods together. It is above the cgroups that Tenon reads.
func (s *slowedCluster) oversell(quota, period time.Duration) {
	s.t.Helper()
	for _, n := range s.nodes {
		dir := n.Cgroup("cpu", "")
		must(s.t, os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), []byte(fmt.Sprint(period.Microseconds())), 0o644))
		value := int64(-1)
		if quota > 0 {
			value = quota.Microseconds()
		}
		must(s.t, os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(fmt.Sprint(value)), 0o644))
	}
}

// watch takes a sample of each node each 5 s, until the test ends. If it is not known which
// nodes are on, the next sample has that time, too.
func (s *slowedCluster) watch() {
	groups := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		uid := s.kubectl("get", "pods", "-n", "shop", "--field-selector", "spec.nodeName="+n.Name, "-o", "jsonpath={.items[0].metadata.uid}")
		groups[i] = n.Cgroup("cpu", "kubepods/burstable/pod"+uid)
	}
	var done sync.WaitGroup
	end := make(chan struct{})
	s.t.Cleanup(func() { close(end); done.Wait() })
	done.Go(func() {
		last, at := make([]map[int]waits, len(groups)), make([]time.Time, len(groups))
		for {
			on, err := s.on()
			for i, group := range groups {
				if err != nil {
					break
				}
				now, read := time.Now(), waitsOf(group)
				sample := waitSample{at: now, node: i, on: slices.Contains(on, i), lasted: now.Sub(at[i])}
				for pid, w := range read {
					if was, had := last[i][pid]; had {
						sample.waited += w.waited - was.waited
						sample.waits += w.times - was.times
					}
				}
				if last[i] != nil {
					s.mu.Lock()
					s.samples = append(s.samples, sample)
					s.mu.Unlock()
				}
				last[i], at[i] = read, now
			}
			select {
			case <-end:
				return
			case <-time.After(5 * time.Second):
			}
		}
	})
}

// waits are how long a process has waited for a CPU, and how often it got one
// (/proc/PID/schedstat).
type waits struct {
	waited time.Duration
	times  int64
}

// waitsOf returns the waits of the processes in a cgroup and below it.
func waitsOf(group string) map[int]waits {
	all := map[int]waits{}
	groups, _ := groupsBelow(group)
	for _, dir := range groups {
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(procs)) {
			text, _ := os.ReadFile(filepath.Join("/proc", pid, "schedstat"))
			var ran, waited, times int64
			if _, err := fmt.Sscan(string(text), &ran, &waited, &times); err != nil {
				continue // it has ended, as each usleep does
			}
			n, _ := strconv.Atoi(pid)
			all[n] = waits{time.Duration(waited), times}
		}
	}
	return all
}

// always counts all samples.
func always(waitSample) bool { return true }

// rate returns how long the service waited on a node in a second of a time, and how long
// each wait took, by the samples that count.
func (s *slowedCluster) rate(node int, from, to time.Time, counts func(waitSample) bool) (perSecond, mean time.Duration) {
	var lasted, waited time.Duration
	var times int64
	for _, w := range s.samples {
		if w.node == node && w.at.After(from) && !w.at.After(to) && counts(w) {
			lasted, waited, times = lasted+w.lasted, waited+w.waited, times+w.waits
		}
	}
	return time.Duration(float64(waited) / max(lasted.Seconds(), 1)), waited / time.Duration(max(times, 1))
}

// judgeSamples compares what the service waited longer with what the margin allows it on
// all nodes in a day. since is when batch work came, limited when the nodes got their
// limit, and off when batch work was off again.
func (s *slowedCluster) judgeSamples(since, limited, off time.Time) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	load, _ := os.ReadFile("/proc/loadavg")
	var table strings.Builder
	fmt.Fprintln(&table, "node ever_on usual_us_per_s usual_mean_us batch_us_per_s batch_mean_us limited_us_per_s limited_mean_us after_us_per_s after_mean_us")
	var allowed, more time.Duration
	var delayed, spared, after []time.Duration
	isOn := func(w waitSample) bool { return w.on }
	for i := range s.nodes {
		onThen := func(w waitSample) bool { return w.node == i && w.on && w.at.After(limited) && !w.at.After(off) }
		harmed, counts := slices.ContainsFunc(s.samples, onThen), always
		if harmed { // it is off again before all nodes are, after an epoch or the verdict
			counts = isOn
		}
		ever := slices.ContainsFunc(s.samples, func(w waitSample) bool { return w.node == i && w.on })
		usual, usualMean := s.rate(i, time.Time{}, since, always)
		early, earlyMean := s.rate(i, since, limited, always)
		late, lateMean := s.rate(i, limited, off, counts)
		then, thenMean := s.rate(i, off, time.Now(), always)
		fmt.Fprintf(&table, "%s %t %d %d %d %d %d %d %d %d\n", s.nodes[i].Name, ever, usual.Microseconds(), usualMean.Microseconds(),
			early.Microseconds(), earlyMean.Microseconds(), late.Microseconds(), lateMean.Microseconds(), then.Microseconds(), thenMean.Microseconds())
		allowed += time.Duration(float64(usual) * 24 * 3600 * margin / 100)
		if !ever {
			spared = append(spared, lateMean)
			continue
		}
		if harmed {
			delayed, after = append(delayed, lateMean), append(after, thenMean)
		}
		for _, w := range s.samples {
			if w.node == i && w.at.After(since) {
				more += w.waited - time.Duration(float64(usual)*w.lasted.Seconds())
			}
		}
	}
	s.t.Logf("load at the end: %s%sby the kernel the service waited %v longer, and the margin of %d %% allows %v: %.2f of it",
		load, table.String(), more.Round(time.Millisecond), margin, allowed.Round(time.Millisecond), float64(more)/float64(allowed))
	if more > allowed || more < allowed/10 {
		s.t.Errorf("the service waited longer by %v, and may by %v: want at most that, and that the harm is seen", more, allowed)
	}
	switch {
	case len(delayed) == 0 || len(spared) == 0:
		s.t.Errorf("%d nodes were on under the limit, and %d never: want some of both", len(delayed), len(spared))
	case slices.Min(delayed) < 3*slices.Max(spared) || slices.Min(delayed) < 3*slices.Max(after):
		s.t.Errorf("a wait took %v with batch work, %v without it, and %v after it", delayed, spared, after)
	}
	var raw strings.Builder
	for _, w := range s.samples {
		fmt.Fprintf(&raw, "%d %d %t %d %d %d\n", w.at.UnixMilli(), w.node, w.on, w.lasted.Microseconds(), w.waited.Microseconds(), w.waits)
	}
	writeRaw(s.t, "rollout-samples.txt", "unix_ms node on lasted_us waited_us waits\n"+raw.String())
	writeRaw(s.t, "rollout-nodes.txt", table.String())
}

// judgeVerdict computes the verdict again by the numbers that kubectl tenon rollout prints.
func (s *slowedCluster) judgeVerdict() {
	s.t.Helper()
	text, err := s.page()
	must(s.t, err)
	numbers, err := s.page("-o", "json")
	must(s.t, err)
	s.t.Logf("kubectl tenon rollout prints:\n%s\n%s", text, numbers)
	writeRaw(s.t, "rollout.txt", text)
	writeRaw(s.t, "rollout.json", numbers)
	var printed struct {
		Verdicts []struct {
			Code, Service string
			Spent         float64
		}
		Services map[string]struct {
			Off   struct{ NS float64 }
			More  float64 `json:"more_ns"`
			For   float64 `json:"off_for_ns"`
			Nodes float64
		}
	}
	must(s.t, json.Unmarshal([]byte(numbers), &printed))
	last := printed.Verdicts[len(printed.Verdicts)-1]
	l := printed.Services["shop/web"]
	again := l.More / (l.Off.NS / l.For * l.Nodes * float64(24*time.Hour) * margin / 100)
	if last.Code != "price" || last.Service != "shop/web" || last.Spent < 0.4 || last.Spent >= 1 || again < 0.99*last.Spent || again > 1.01*last.Spent {
		s.t.Errorf("the verdict is %+v, and by its numbers %.3f of the margin is spent", last, again)
	}
	first, _, _ := strings.Cut(text, "\n")
	if want := fmt.Sprintf("service shop/web has waited longer by %.0f %% of what the margin of %d%% allows it in a day.", last.Spent*100, margin); !strings.Contains(first, want) {
		s.t.Errorf("the page begins with %q, want %q in it", first, want)
	}
	events := s.kubectl("get", "events", "-n", home, "-o", "jsonpath={range .items[*]}{.reason} {.type}{\"\\n\"}{end}")
	if !strings.Contains(events, "RolloutGoesBack Warning") {
		s.t.Errorf("no event says that it goes back:\n%s", events)
	}
}
