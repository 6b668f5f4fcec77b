package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// injections returns the number of faults of each kind that a measurement injects:
// TENON_TEST_INJECTIONS, or else a few.
func injections(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("TENON_TEST_INJECTIONS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("TENON_TEST_INJECTIONS is %q, want a number of faults", text)
	}
	return n
}

// busyPod is batch work that uses a twentieth of a CPU all the time, in short
// pieces, and all CPUs while the file /busy exists.
const busyPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: spin, image: "busybox:1", command: [sh, -c, "little() { while :; do i=0; while [ $i -lt 200 ]; do i=$((i+1)); done; usleep 10000; done; }; spin() { while :; do if [ -e /busy ]; then i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; else usleep 100000; fi; done; }; little & spin & spin & spin & spin & wait"]}]}}`

// otherPod is a service without an objective. It uses all CPUs while the file
// /busy exists.
var otherPod = strings.Replace(hogPod, "qosClass: BE", "qosClass: LS", 1)

// loadPod is a service whose load grows while the file /busy exists: then it has
// more threads to run than CPUs. While /slow exists, it waits longer for its back
// end.
const loadPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: NAME, koordinator.sh/qosClass: LS}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [sh, -c, "work() { while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; if [ -e /slow ]; then usleep 30000; else usleep 3000; fi; done; }; more() { while :; do if [ -e /busy ]; then i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; else usleep 100000; fi; done; }; work & work & more & more & more & more & more & more & more & more & wait"]}]}}`

// A blame is a node with a service and batch pods of which any may become a hog.
type blame struct {
	t      *testing.T
	a      *agent
	names  []string // of the batch pods
	groups map[string]string
	roots  map[string]string // the root directory of each pod's processes

	objective string // of the service
}

// newBlame starts a cluster with a service that runs front, and batch pods. The
// first half of them is busy all the time. The objective is one that the service keeps beside
// them, and misses beside a hog: it depends on the machine.
func newBlame(t *testing.T, name, front string, pods int) *blame {
	t.Helper()
	c, n := startCluster(t, name)
	b := &blame{t: t, a: newAgent(t, c, n), groups: map[string]string{}, roots: map[string]string{}}
	b.a.start()
	rawLog(t, name+"-tenond.log", b.a.log)
	b.a.apply(chartConfig(t, nil))
	// Other work of the machine must not take the CPUs for which the pods compete.
	must(t, os.WriteFile(filepath.Join(n.Cgroup("cpu", ""), "cpu.shares"), []byte("16384"), 0o644))
	texts := map[string]string{"front": front}
	for i := range pods {
		b.names = append(b.names, fmt.Sprint("job", i))
		if texts[b.names[i]] = busyPod; i >= pods/2 {
			texts[b.names[i]] = hogPod
		}
	}
	var all []string // so that they start side by side
	for name, text := range texts {
		all = append(all, strings.ReplaceAll(text, "NAME", name))
	}
	b.a.apply(strings.Join(all, "\n---\n"))
	for name, text := range texts {
		b.pod(text, name, "besteffort")
	}
	b.objective = `{"runQueueDelay": "1s"}` // which nothing misses
	b.setObjective(b.objective)
	b.awaitState("front", v1alpha1.ObjectiveKept)
	quiet := b.measured(40)
	hog := b.names[len(b.names)-1]
	b.set(hog, "busy")
	harmed := b.measured(20)
	b.unset(hog, "busy")
	calm, beside := quiet[len(quiet)/2], harmed[len(harmed)/2]
	t.Logf("P99 of the waits beside the pods that work: %v to %v; beside a hog, too: %v to %v", quiet[0], quiet[len(quiet)-1], harmed[0], harmed[len(harmed)-1])
	// Both are the upper ends of buckets by powers of two, so beside a hog the P99 is longer
	// than half of that. Three times the calm P99 is what tenon explain suggests.
	if calm > beside/2 {
		t.Fatalf("a hog raises the P99 from %v to %v: no objective tells the two apart", calm, beside)
	}
	b.objective = fmt.Sprintf(`{"runQueueDelay": "%v"}`, min(3*calm, beside/2))
	t.Logf("objective %s", b.objective)
	b.setObjective(b.objective)
	return b
}

// measured returns the P99 of the waits of the service in the reports of so many seconds,
// in order. The first ones may still count what was before.
func (b *blame) measured(seconds int) (all []time.Duration) {
	b.t.Helper()
	for i := range seconds {
		time.Sleep(time.Second)
		if m := b.state("front").Measured; m != nil && i >= seconds/4 {
			all = append(all, m.Duration)
		}
	}
	if len(all) < seconds/4 {
		b.t.Fatalf("only %d of %d reports have a P99", len(all), seconds)
	}
	slices.Sort(all)
	return all
}

// setObjective states an objective for the service; {} removes it.
func (b *blame) setObjective(text string) {
	b.t.Helper()
	kubectl(b.t, b.a.c, "annotate", "--overwrite", "pod", "front", "tenon.sh/objective="+text)
}

func (b *blame) pod(text, name, level string) {
	b.t.Helper()
	b.groups[name] = b.a.pod(text, name, level)
	requireSoon(b.t, 20*time.Second, "a process of "+name+" runs", func() error {
		procs, err := filepath.Glob(filepath.Join(b.a.n.Cgroup("cpu", filepath.Join("kubepods", b.groups[name])), "*", "cgroup.procs"))
		for _, p := range procs {
			text, _ := os.ReadFile(p) // a container that ends has no file
			for _, pid := range strings.Fields(string(text)) {
				// The first process of the container, and not that of the sandbox.
				inside, _ := os.ReadFile(filepath.Join("/proc", pid, "status")) // it may have ended
				runs, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
				if strings.Contains(string(inside), "\t1\nNSpgid") && strings.Contains(string(runs), "while :;") {
					b.roots[name] = filepath.Join("/proc", pid, "root")
					return nil
				}
			}
		}
		return errors.Join(err, errors.New("none found"))
	})
}

// set makes a pod behave differently: it makes a file in its root directory.
// unset removes it.
func (b *blame) set(pod, file string) {
	b.t.Helper()
	must(b.t, os.WriteFile(filepath.Join(b.roots[pod], file), nil, 0o644))
}

func (b *blame) unset(pod, file string) {
	b.t.Helper()
	must(b.t, os.Remove(filepath.Join(b.roots[pod], file)))
}

// bounded lists the pods that have a bound of their own, or only "all" if all batch work
// gives way: then each pod has a quota, because a service is in their level, or the level
// has one. The policy bounds at most three pods alone for one service.
func (b *blame) bounded() (now []string) {
	b.t.Helper()
	for _, name := range b.names {
		if b.a.read("cpu", b.groups[name], "cpu.cfs_quota_us") >= 0 {
			now = append(now, name)
		}
	}
	if len(now) > 3 || b.a.read("cpu", "besteffort", "cpu.cfs_quota_us") >= 0 {
		return []string{"all"}
	}
	return now
}

// awaitFree waits until no bound is left, and returns the time that this took.
func (b *blame) awaitFree() time.Duration {
	b.t.Helper()
	begun := time.Now()
	requireSoon(b.t, 3*time.Minute, "no bound is left", func() error {
		if now := b.bounded(); len(now) > 0 {
			return fmt.Errorf("%v are bounded", now)
		}
		return nil
	})
	return time.Since(begun)
}

// state returns what the report says about a service.
func (b *blame) state(pod string) v1alpha1.ServiceObjective {
	b.t.Helper()
	if all := b.a.report().Status.Objectives; all != nil {
		for _, s := range all.Services {
			if s.Pod == pod {
				return s
			}
		}
	}
	return v1alpha1.ServiceObjective{}
}

// awaitState waits until the report has one of the states for a service.
func (b *blame) awaitState(pod string, states ...string) {
	b.t.Helper()
	requireSoon(b.t, time.Minute, "the report has a verdict", func() error {
		if s := b.state(pod); !slices.Contains(states, s.State) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// awaitCalm waits until the service keeps its objective, so that no verdict is left of the
// fault before: it has a cause for a while after its end. It returns whether that was so
// within a minute.
func (b *blame) awaitCalm() bool {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if b.state("front").State == v1alpha1.ObjectiveKept {
			return true
		}
	}
	return false
}

// used returns the CPU time that the busy batch pods have used, without one pod.
func (b *blame) used(but string) (sum time.Duration) {
	b.t.Helper()
	for _, name := range b.names[:len(b.names)/2] {
		if name != but {
			sum += time.Duration(b.a.read("cpuacct", b.groups[name], "cpuacct.usage"))
		}
	}
	return sum
}

// A seen is what the bounds were while a fault lasted.
type seen struct {
	first []string      // the first that got a bound
	after time.Duration // the time until then
	ever  map[string]time.Duration
	used  time.Duration // CPU time of the innocent pods
}

// watch follows the bounds for a while. innocent leaves out the hog.
func (b *blame) watch(during time.Duration, hog string) seen {
	b.t.Helper()
	s := seen{ever: map[string]time.Duration{}}
	before, begun := b.used(hog), time.Now()
	last := begun
	for time.Since(begun) < during {
		time.Sleep(50 * time.Millisecond)
		names, now := b.bounded(), time.Now()
		if len(names) > 0 && s.first == nil {
			s.first, s.after = names, now.Sub(begun)
		}
		for _, name := range names {
			s.ever[name] += now.Sub(last)
		}
		last = now
	}
	s.used = b.used(hog) - before
	return s
}

// others returns how long the work that is not to blame had a bound.
func (s seen) others(hog string) (longest time.Duration) {
	for name, d := range s.ever {
		if name != hog {
			longest = max(longest, d)
		}
	}
	return longest
}

// TestABatchPodToBlameAmongTwenty makes one of 20 batch pods a hog, again and again,
// beside a service with an objective and ten batch pods that work. It writes a line
// for each time: when the hog got a bound, whether it alone, how much CPU the others
// lost against the same time without a bound, and when the bound was gone.
func TestABatchPodToBlameAmongTwenty(t *testing.T) {
	if pickLength(true, false) && os.Getenv("TENON_TEST_INJECTIONS") == "" {
		t.Skip("measures: TENON_TEST_LONG=1, or TENON_TEST_INJECTIONS")
	}
	const lasts = 8 * time.Second
	b := newBlame(t, "blame", frontPod, 20)
	times := injections(t, 3)
	var table strings.Builder
	table.WriteString("time,hog,calm,named_ms,first,alone,others_bounded_ms,cause,culprit,innocent_ms,innocent_unbounded_ms,lost_percent,gone_ms,took_ms\n")
	rnd := rand.New(rand.NewPCG(44, uint64(time.Now().UnixNano())))
	named, soon, wrong, all := 0, 0, 0, 0
	var bounded, unbounded time.Duration
	for i := range times {
		b.awaitFree()
		calm := b.awaitCalm()
		b.awaitFree()
		begun := time.Now()
		hog := b.names[rnd.IntN(len(b.names))]
		b.set(hog, "busy")
		s := b.watch(lasts, hog)
		verdict := b.state("front")
		b.unset(hog, "busy")
		gone := b.awaitFree()
		// The same again, and nothing is bounded.
		b.setObjective("{}")
		time.Sleep(3 * time.Second) // until tenond has read it
		b.awaitFree()
		b.set(hog, "busy")
		free := b.watch(lasts, hog)
		b.unset(hog, "busy")
		b.setObjective(b.objective)
		if len(free.ever) > 0 {
			t.Errorf("without an objective, %v had bounds", free.ever)
		}
		alone := len(s.ever) == 1 && s.ever[hog] > 0
		if slices.Equal(s.first, []string{hog}) {
			if named++; s.after <= 3*time.Second {
				soon++
			}
		}
		for name := range s.ever {
			switch name {
			case hog:
			case "all":
				all++
			default:
				wrong++
			}
		}
		bounded, unbounded = bounded+s.used, unbounded+free.used
		fmt.Fprintf(&table, "%d,%s,%v,%d,%s,%v,%d,%s,%s,%d,%d,%.1f,%d,%d\n", i, hog, calm, s.after.Milliseconds(), strings.Join(s.first, "+"), alone, s.others(hog).Milliseconds(), verdict.Cause, verdict.Culprit,
			s.used.Milliseconds(), free.used.Milliseconds(), 100*(1-float64(s.used)/float64(free.used)), gone.Milliseconds(), time.Since(begun).Milliseconds())
		writeRaw(t, "blame.csv", table.String())
	}
	t.Logf("\n%sof %d times, the hog was bounded first and alone %d times, %d of them within 3 s; %d bounds of others; all batch work gave way %d times; the innocent pods used %v, and %v without a bound",
		&table, times, named, soon, wrong, all, bounded.Round(time.Millisecond), unbounded.Round(time.Millisecond))
	// Where other tests run on this machine, the service may wait for them as well.
	if named < times*9/10 || wrong > times/20+1 {
		t.Errorf("the hog was bounded first %d times of %d, and others %d times", named, times, wrong)
	}
}

// A fault is one for which batch work is not to blame.
type fault struct {
	name  string
	begin func(b *blame)
	end   func(b *blame)
	pod   string // the service with the objective
	want  string // "kept", or the cause of a miss
}

// TestBatchWorkIsNotToBlame lets a service wait for other reasons than batch work,
// beside 20 batch pods of which ten work: its own CPU limit, a load that is too
// large, a slow back end, and the burst of another service. The verdict must say so,
// and no batch pod may have a bound for longer than 10 s. A slow back end
// makes no thread wait for a CPU, so the objective for such waits is kept.
func TestBatchWorkIsNotToBlame(t *testing.T) {
	if pickLength(true, false) && os.Getenv("TENON_TEST_INJECTIONS") == "" {
		t.Skip("measures: TENON_TEST_LONG=1, or TENON_TEST_INJECTIONS")
	}
	const lasts = 15 * time.Second // so that a report says what the last windows were
	b := newBlame(t, "fault", loadPod, 20)
	b.pod(otherPod, "other", "besteffort")
	b.pod(cappedPod, "capped", "burstable")
	set := func(pod, file string) func(*blame) { return func(b *blame) { b.set(pod, file) } }
	unset := func(pod, file string) func(*blame) { return func(b *blame) { b.unset(pod, file) } }
	faults := []fault{
		{"own limit", set("capped", "busy"), unset("capped", "busy"), "capped", "own-limit"},
		{"load", set("front", "busy"), unset("front", "busy"), "front", "own-threads"},
		{"slow back end", set("front", "slow"), unset("front", "slow"), "front", "kept"},
		{"another service", set("other", "busy"), unset("other", "busy"), "front", "other-service"},
	}
	times := injections(t, 1)
	var table strings.Builder
	table.WriteString("time,fault,calm,verdict,right,culprit,bounded_ms,bounded\n")
	right := map[string]int{}
	for i := range times {
		for _, f := range faults {
			b.awaitFree()
			calm := b.awaitCalm()
			f.begin(b)
			s := b.watch(lasts, "")
			state := b.state(f.pod)
			f.end(b)
			verdict := state.Cause
			if state.State == v1alpha1.ObjectiveKept {
				verdict = "kept"
			}
			is := verdict == f.want
			if is {
				right[f.name]++
			}
			bounded := s.others("")
			fmt.Fprintf(&table, "%d,%s,%v,%s,%v,%s,%d,%s\n", i, f.name, calm, verdict, is, state.Culprit, bounded.Milliseconds(), strings.Join(slices.Sorted(maps.Keys(s.ever)), "+"))
			writeRaw(t, "faults.csv", table.String())
			if bounded > 10*time.Second {
				t.Errorf("time %d, %s: batch work had a bound for %v: %+v", i, f.name, bounded, state)
			}
		}
	}
	t.Logf("\n%sright: %v of %d each", &table, right, times)
	for _, f := range faults {
		if right[f.name]*10 < times*9 {
			t.Errorf("%s: the verdict was right %d of %d times", f.name, right[f.name], times)
		}
	}
}
