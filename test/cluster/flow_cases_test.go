package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
)

// inSubtest makes the flow report its failures to a subtest.
func (f *flow) inSubtest(t *testing.T) {
	before := f.t
	f.t = t
	t.Cleanup(func() { f.t = before })
}

// grouped creates a PodGroup of four pods, while three nodes have room for one
// pod each. No pod of the group may be bound, their CPUs must be free for
// others, and the scheduler must not try the group again and again. When there
// is room, all four must be bound.
func (f *flow) grouped(t *testing.T) {
	f.inSubtest(t)
	f.kill()
	f.scheduler = f.startAs("tenon-scheduler", gateOfGroups)
	f.create("wall", 8, 8, 8) // 7 of the 16 CPUs of a node are left to own
	bound := func(n int) func() error {
		return func() error {
			if all := f.list(isBound); len(all) != n {
				return fmt.Errorf("%d pods", len(all))
			}
			return nil
		}
	}
	requireSoon(t, time.Minute, "the first pods are bound", bound(3))
	name := "gang"
	f.apply(fmt.Sprintf(`{"apiVersion":%q,"kind":"PodGroup","metadata":{"name":%q,"namespace":"default"},"spec":{"schedulingPolicy":{"gang":{"minCount":4}}}}`, apiOfGroups, name))
	f.createIn(&corev1.PodSchedulingGroup{PodGroupName: &name}, name, 4, 4, 4, 4)
	reasons := []string{"minCount (4) cannot be satisfied: 3 scheduled, 0 remaining", "0/3 nodes are available: 3 no room for own CPUs: the last open ones stay open"}
	wait := func() error {
		said := map[string]int{}
		for _, p := range f.list(isWaiting) {
			for _, c := range p.Status.Conditions {
				for _, reason := range reasons {
					if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, reason) {
						said[reason]++
					}
				}
			}
		}
		if said[reasons[0]] != 3 || said[reasons[1]] != 1 {
			return fmt.Errorf("they say %v", said)
		}
		return bound(3)()
	}
	requireSoon(t, time.Minute, "the pods of the group wait and say why", wait)
	requireSoon(t, time.Minute, "the group says why", func() error {
		if said := kubectl(t, f.c, "get", "podgroup", name, "-o", "jsonpath={.status.conditions}"); !strings.Contains(said, reasons[0]) {
			return errors.New(said)
		}
		return nil
	})
	f.ledgers()
	attempts := func() (n int) {
		t.Helper()
		counts, err := f.readMetrics("tenon_scheduler_refused_attempts_total{")
		must(t, err)
		for _, count := range counts {
			k, err := strconv.Atoi(count)
			must(t, err)
			n += k
		}
		return n
	}
	const window = 10 * time.Second // kube-scheduler waits for 1, 2, 4, 8 and then 10 seconds before it tries a pod again
	before := attempts()
	for begun := time.Now(); time.Since(begun) < window; time.Sleep(100 * time.Millisecond) {
		must(t, bound(3)())
	}
	tried := attempts() - before
	t.Logf("%d attempts within %v", tried, window)
	if tried > 30 { // preemption tries the group again, so one attempt counts several times
		t.Errorf("%d attempts within %v to schedule a group for which no node got room", tried, window)
	}

	f.create("single", 4)
	requireSoon(t, time.Minute, "a pod gets CPUs that the group had for a trial", bound(4))
	begun := time.Now()
	f.remove(f.list(func(p *corev1.Pod) bool { return p.Name == "single-0" || p.Name == "wall-0" }))
	requireSoon(t, time.Minute, "all pods of the group are bound when there is room", bound(6))
	t.Logf("bound %v after the deletion of other pods was asked for", time.Since(begun).Round(time.Millisecond))
	f.awaitRest()
	f.ledgers()
	f.mu.Lock()
	if len(f.ever) > 0 {
		t.Errorf("with one scheduler: %v", f.ever)
	}
	f.mu.Unlock()
	f.remove(f.list(func(*corev1.Pod) bool { return true }))
	kubectl(t, f.c, "delete", "podgroup", name, "--wait=false")
	f.kill()
	f.start()
}

// killScheduler kills the scheduler at random times while pods come and go. No
// CPU may have two owners at any time, and no pod may wait while there is room
// for it. The ledger of a scheduler must be equal to that of a new scheduler.
func (f *flow) killScheduler(t *testing.T) {
	f.inSubtest(t)
	rnd := rand.New(rand.NewPCG(17, uint64(time.Now().UnixNano())))
	kills := pickLength(10, 200)
	pods := f.run(rnd, "killed", kills, func(int) {
		f.kill()
		f.start()
	})
	f.awaitRest()
	f.ledgers()
	f.kill()
	f.start()
	f.ledgers()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ever) > 0 {
		t.Errorf("with one scheduler at a time: %v", f.ever)
	}
	t.Logf("%d pods, and %d kills", pods, kills)
}

// ledgers compares the ledger of the scheduler, as its metrics show it, with a
// ledger that learns the objects of the API server.
func (f *flow) ledgers() {
	f.t.Helper()
	requireSoon(f.t, time.Minute, "the ledger of the scheduler is that of the API server", func() error {
		is, err := f.readMetrics("tenon_scheduler_cpus{", "tenon_scheduler_stranded_cpus{")
		if err != nil {
			return err
		}
		if want := f.expectedMetrics(); !maps.Equal(is, want) {
			return fmt.Errorf("it has %v, and a rebuilt one %v", is, want)
		}
		return nil
	})
}

// readMetrics returns the metrics of the scheduler with one of the prefixes.
func (f *flow) readMetrics(prefixes ...string) (map[string]string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: f.c.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := client.Get("https://127.0.0.1:" + metricsPort + "/metrics")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	is := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ') // a label may have spaces
		if at < 0 {
			continue
		}
		name, value := line[:at], line[at+1:]
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			is[name] = value
		}
	}
	return is, nil
}

// expectedMetrics returns what the metrics of a scheduler must show.
func (f *flow) expectedMetrics() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := place.New()
	for _, at := range f.nodes {
		l.Learn(at, f.said[at])
	}
	for _, p := range f.pods {
		if d, asks, _ := kube.DemandOf(p); asks && p.Spec.NodeName != "" {
			c, _, _ := kube.ChoiceOf(p)
			l.Confirm(place.Pod{UID: place.UID(p.UID), Request: d}, p.Spec.NodeName, c)
		}
	}
	sums := map[string]int{}
	for _, at := range f.nodes {
		v := l.View(at)
		sums[`tenon_scheduler_cpus{state="open"}`] += v.Open().Len()
		sums[`tenon_scheduler_cpus{state="own"}`] += v.Map().Len() - v.Open().Len()
		sums[`tenon_scheduler_cpus{state="reserved"}`] += v.Reserved().Len()
		for _, n := range []int{2, 4, 8, 16} {
			sums[fmt.Sprintf(`tenon_scheduler_stranded_cpus{size="%d"}`, n)] += v.Stranded(n)
		}
	}
	all := map[string]string{}
	for name, n := range sums {
		all[name] = strconv.Itoa(n)
	}
	return all
}

// freezeLeader runs two schedulers with a lease. In one case, the leader stops
// in the middle of its work. It goes on when the other scheduler leads, so that
// both work for a moment. In the other case, the leader is killed. Then two
// pods may get the same CPU until the next report of the node.
func (f *flow) freezeLeader(t *testing.T) {
	f.inSubtest(t)
	f.kill()
	path := f.c.file("scheduler.yaml")
	text, err := os.ReadFile(path)
	must(t, err)
	const election = `leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms, resourceName: tenon-scheduler, resourceNamespace: kube-system}`
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), "leaderElection: {leaderElect: false}", election, 1)), 0o644))
	before := ""
	leads := func() {
		t.Helper()
		requireSoon(t, time.Minute, "another scheduler leads", func() error {
			lease, err := f.client.CoordinationV1().Leases("kube-system").Get(t.Context(), "tenon-scheduler", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now := lease.Spec.HolderIdentity; now == nil || *now == "" || *now == before {
				return fmt.Errorf("%q has the lease", before)
			}
			before = *lease.Spec.HolderIdentity
			return nil
		})
	}
	starts := 0
	start := func() *daemon {
		starts++
		return f.startAs(fmt.Sprint("tenon-scheduler-", starts), "--secure-port=0")
	}
	// On a loaded machine, a leader may fail to renew its lease. Then it has ended
	// by itself, and the other scheduler leads.
	signal := func(d *daemon, name string) {
		t.Helper()
		pid, err := d.pid()
		must(t, err)
		out, err := f.c.Command(t.Context(), "sh", "-c", fmt.Sprintf("kill -%s %d", name, pid)).CombinedOutput()
		if err != nil && d.checkRunning() == nil {
			t.Fatalf("kill -%s: %v %s", name, err, out)
		}
	}
	rnd := rand.New(rand.NewPCG(18, uint64(time.Now().UnixNano())))
	leader := start()
	leads()
	standby := start()
	changes := pickLength(2, 20)
	f.run(rnd, "frozen", changes, func(round int) {
		freeze := round%2 == 0
		if freeze {
			signal(leader, "STOP")
		} else {
			signal(leader, "KILL")
		}
		f.create(fmt.Sprint("meanwhile", round), 1, 2, 3)
		leads()
		if freeze {
			signal(leader, "CONT")
			requireSoon(t, time.Minute, "a scheduler that lost its lease ends", func() error {
				if leader.checkRunning() == nil {
					return errors.New("it runs")
				}
				return nil
			})
		}
		leader, standby = standby, start()
	})
	f.awaitRest()
	signal(standby, "KILL")
	signal(leader, "KILL")
	must(t, os.WriteFile(path, text, 0o644))
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%d changes of the leader; CPUs with two owners until a report: %v", changes, f.ever)
}
