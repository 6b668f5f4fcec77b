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
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/place"
)

// on makes the flow report its failures to a subtest.
func (f *flow) on(t *testing.T) {
	before := f.t
	f.t = t
	t.Cleanup(func() { f.t = before })
}

// killed kills the scheduler at random times while pods come and go. No CPU may
// have two owners at any time, and no pod may wait while there is room for it.
// The ledger of a scheduler must be equal to that of a new scheduler.
func (f *flow) killed(t *testing.T) {
	f.on(t)
	rnd := rand.New(rand.NewPCG(17, uint64(time.Now().UnixNano())))
	kills := long(10, 200)
	pods := f.run(rnd, "killed", kills, func(int) {
		f.kill()
		f.start()
	})
	f.rests()
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

// ledgers compares two ledgers: that of the scheduler, as its metrics show it,
// and one that learns the objects of the API server.
func (f *flow) ledgers() {
	f.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: f.c.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	eventually(f.t, time.Minute, "the ledger of the scheduler is that of the API server", func() error {
		answer, err := client.Get("https://127.0.0.1:" + metricsPort + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		is := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(name, "tenon_scheduler_cpus{") || strings.HasPrefix(name, "tenon_scheduler_stranded_cpus{") {
				is[name] = value
			}
		}
		if want := f.rebuilt(); !maps.Equal(is, want) {
			return fmt.Errorf("it has %v, and a rebuilt one %v", is, want)
		}
		return nil
	})
}

// rebuilt returns what the metrics of a scheduler must show.
func (f *flow) rebuilt() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := place.New()
	for _, at := range f.nodes {
		l.Learn(at, f.said[at])
	}
	for _, p := range f.pods {
		if d, asks, _ := kube.DemandOf(p); asks && p.Spec.NodeName != "" {
			c, _, _ := kube.ContractOf(p)
			l.Bound(place.Pod{UID: place.UID(p.UID), Demand: d}, p.Spec.NodeName, c)
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

// frozen runs two schedulers with a lease. In one case, the leader stops in the
// middle of its work and goes on when the other one leads, so that for a moment
// both work. In the other case, the leader is killed. Then two pods may get the
// same CPU until the next report of the node.
func (f *flow) frozen(t *testing.T) {
	f.on(t)
	f.kill()
	path := f.c.file("scheduler.yaml")
	text, err := os.ReadFile(path)
	must(t, err)
	const election = `leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms, resourceName: tenon-scheduler, resourceNamespace: kube-system}`
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), "leaderElection: {leaderElect: false}", election, 1)), 0o644))
	before := ""
	leads := func() {
		t.Helper()
		eventually(t, time.Minute, "another scheduler leads", func() error {
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
	signal := func(d *daemon, name string) {
		t.Helper()
		pid, err := d.pid()
		must(t, err)
		out, err := f.c.Command(t.Context(), "kill", "-"+name, strconv.Itoa(pid)).CombinedOutput()
		if err != nil {
			t.Fatalf("kill -%s: %v %s", name, err, out)
		}
	}
	rnd := rand.New(rand.NewPCG(18, uint64(time.Now().UnixNano())))
	leader := start()
	leads()
	standby := start()
	changes := long(2, 20)
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
			eventually(t, time.Minute, "a scheduler that lost its lease ends", func() error {
				if leader.running() == nil {
					return errors.New("it runs")
				}
				return nil
			})
		}
		leader, standby = standby, start()
	})
	f.rests()
	signal(standby, "KILL")
	signal(leader, "KILL")
	must(t, os.WriteFile(path, text, 0o644))
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%d changes of the leader; CPUs with two owners until a report: %v", changes, f.ever)
}
