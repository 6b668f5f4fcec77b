package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A load requests the page of nginx in a loop.
type load struct {
	end    chan struct{}
	done   sync.WaitGroup
	mu     sync.Mutex // guards the fields below
	took   []time.Duration
	failed []error
}

// newLoad sends requests over the given number of connections until the test
// ends.
func newLoad(t *testing.T, c *Cluster, sides int) *load {
	l := &load{end: make(chan struct{})}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: c.Dial, MaxIdleConnsPerHost: sides}}
	for range sides {
		l.done.Go(func() {
			for {
				begun := time.Now()
				_, err := get(t.Context(), client, "http://127.0.0.1:8000/")
				l.mu.Lock()
				if l.took = append(l.took, time.Since(begun)); err != nil {
					l.failed = append(l.failed, err)
				}
				l.mu.Unlock()
				select {
				case <-l.end:
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	close(l.end)
	l.done.Wait()
}

// take returns the results of the requests since the last call of take.
func (l *load) take() (n int, p99 time.Duration, failed []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.took)
	if n = len(l.took); n > 0 {
		p99 = l.took[n*99/100]
	}
	failed = l.failed
	l.took, l.failed = nil, nil
	return n, p99, failed
}

// TestKubeletAndContainerdAreKilledAtFullLoad kills the kubelet and containerd
// while nginx serves requests and ffmpeg uses the remaining CPU with cpu.idle.
// No container may end, no request may fail, and no value may change at any
// time. No two components may overwrite each other's values. A new pod must
// again have its values before its first instruction. TENON_TEST_LONG=1 repeats
// this more often.
func TestKubeletAndContainerdAreKilledAtFullLoad(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "full-load")
	offer(t, c, n, 6000, "6Gi")
	a := newAgent(t, c, n)
	// With this setting, best-effort work uses all remaining CPU.
	a.apply(strings.Replace(strings.Replace(strategies, "THRESHOLD", "", 1), `ThresholdPercent": 65`, `ThresholdPercent": 100`, 1))
	kubectl(t, c, "apply", "-f", serviceAndBatch+"ls-nginx.yaml", "-f", serviceAndBatch+"besteffort-ffmpeg.yaml")
	spins := a.pod(batchPod, "spins", "besteffort")
	pods := []string{"nginx", "besteffort-ffmpeg", "spins"}
	for _, p := range pods {
		requireSoon(t, time.Minute, p+" runs", func() error { return phase(t, c, p, "Running") })
	}
	be := []string{"besteffort/pod" + uid(t, c, "besteffort-ffmpeg"), spins}
	a.start()
	for _, group := range be {
		a.awaitValue(20*time.Second, "a best-effort pod is idle", "cpu", group, "cpu.idle", 1)
	}
	a.awaitValue(20*time.Second, "and bounded", "memory", be[0], "memory.limit_in_bytes", 2<<30)
	a.await("NRI: connected")
	requireSoon(t, 20*time.Second, "the class is bounded", func() error {
		if q := a.read("cpu", "besteffort", "cpu.cfs_quota_us"); q <= 0 {
			return fmt.Errorf("its quota is %d", q)
		}
		return nil
	})
	l := newLoad(t, c, 4)
	time.Sleep(3 * time.Second)
	ids := map[string]string{}
	for _, p := range pods {
		ids[p] = containers(t, c, p)
	}
	before, writes := a.awaitSettled(), witnessWrites(t, n)
	rawLog(t, "tenond.log", a.log)
	rawLog(t, "kubelet.log", filepath.Join(n.Dir, "kubelet.log"))
	rawLog(t, "containerd.log", filepath.Join(n.Dir, "containerd.log"))
	var table, all strings.Builder
	fmt.Fprintln(&table, "round killed seconds_to_ready requests failed p99_ms looks writes_tenond writes_tenond_bounds writes_kubelet writes_runtime be_cpus load1")
	l.take()
	kinds := []string{"both", "containerd", "kubelet"}
	for round := range pickLength(3, 15) {
		kind := kinds[round%len(kinds)]
		begun := time.Now()
		used := a.read("cpuacct", "besteffort", "cpuacct.usage")
		connected := strings.Count(a.said(), "NRI: connected")
		if kind != "containerd" {
			must(t, n.StopKubelet(t.Context()))
		}
		if kind != "kubelet" {
			must(t, n.StopContainerd(t.Context()))
		}
		looks := 0
		look := func() {
			looks++
			for _, group := range be {
				if got := a.read("cpu", group, "cpu.idle"); got != 1 {
					t.Errorf("round %d, %s: cpu.idle of %s is %d", round, kind, group, got)
				}
			}
			if q := a.read("cpu", "besteffort", "cpu.cfs_quota_us"); q <= 0 {
				t.Errorf("round %d, %s: the best-effort class has no bound: %d", round, kind, q)
			}
		}
		for range 20 {
			look()
			time.Sleep(100 * time.Millisecond)
		}
		if kind != "kubelet" {
			must(t, n.StartContainerd(t.Context()))
		}
		if kind != "containerd" {
			must(t, n.StartKubelet(t.Context()))
		}
		must(t, n.AwaitReady(t.Context()))
		ready := time.Since(begun)
		if kind != "kubelet" {
			requireSoon(t, 40*time.Second, "tenond is the runtime's plugin again", func() error {
				if strings.Count(a.said(), "NRI: connected") <= connected {
					return errors.New("it is not")
				}
				return nil
			})
		}
		look()
		for file, v := range a.values() {
			if !bound(file) && !strings.HasSuffix(file, "/burstable/cpu.shares") && before[file] != v {
				t.Errorf("round %d, %s: %s became %q of %q", round, kind, file, v, before[file])
			}
		}
		requests, p99, failed := l.take()
		if len(failed) > 0 {
			t.Errorf("round %d, %s: %d of %d requests failed: %v", round, kind, len(failed), requests, failed[0])
		}
		var own, bounds, kubelet, runtime int
		for _, w := range writes.writesSince(begun) {
			switch {
			case strings.HasPrefix(w.by, "tenon") && bound(w.file):
				bounds++
			case strings.HasPrefix(w.by, "tenon"):
				own++
			case w.by == "kubelet":
				kubelet++
			default:
				runtime++
			}
			fmt.Fprintf(&all, "%d %s %.3f %s %s\n", round, kind, w.at.Sub(begun).Seconds(), w.by, w.file)
		}
		cpus := float64(a.read("cpuacct", "besteffort", "cpuacct.usage")-used) / float64(time.Since(begun))
		average, _ := os.ReadFile("/proc/loadavg")
		fmt.Fprintf(&table, "%d %s %.1f %d %d %.1f %d %d %d %d %d %.2f %.4s\n", round, kind, ready.Seconds(), requests, len(failed), float64(p99.Microseconds())/1000, looks, own, bounds, kubelet, runtime, cpus, average)
		// Tenon compares values before it writes them. So it must not write a
		// value that is still correct after the restart.
		if own > 4*len(before) {
			t.Errorf("round %d, %s: tenond wrote %d times", round, kind, own)
		}
	}
	quiet := time.Now()
	time.Sleep(3 * time.Second)
	if w := dropExpected(writes.writesSince(quiet)); len(w) > 0 {
		t.Errorf("when all is over it still writes: %v", w)
	}
	for _, p := range pods {
		if got := containers(t, c, p); got != ids[p] {
			t.Errorf("the containers of %s are %q and were %q", p, got, ids[p])
		}
		if err := phase(t, c, p, "Running"); err != nil {
			t.Error(err)
		}
	}
	a.pod(strings.ReplaceAll(firstLines, "SAY", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes"), "first", "besteffort")
	for container, want := range map[string]string{"init": "67108864", "main": "134217728"} {
		requireSoon(t, 20*time.Second, "container "+container+" begins with its memory limit", func() error {
			if got := kubectl(t, c, "logs", "first", "-c", container); got != want {
				return fmt.Errorf("it printed %q, want %q", got, want)
			}
			return nil
		})
	}
	requireSoon(t, 20*time.Second, "the witness sees what tenond writes of it", func() error {
		if !slices.ContainsFunc(writes.writesSince(quiet), func(w cgroupWrite) bool { return w.by == "tenond" && filepath.Base(w.file) == "cpu.idle" }) {
			return errors.New("no write was seen")
		}
		return nil
	})
	r := a.report().Status
	for _, condition := range r.Conditions {
		if strings.Contains(condition.Message+condition.Reason, "ontested") {
			t.Errorf("the report speaks of a fight: %+v", condition)
		}
	}
	t.Logf("\n%s", table.String())
	writeRaw(t, "rounds.txt", table.String())
	writeRaw(t, "writes.txt", "round killed seconds by file\n"+all.String())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAKubeletThatRestartsEndsWhatBatchResourcesDoNotCover shows why the
// manager publishes at least the requests of running pods. A kubelet that
// restarts admits all pods of its node again, including running ones, and ends
// those whose requests exceed the node's resources. The formula can give less
// than running pods request. If the manager published that, a restart of the
// kubelet would end such pods.
func TestAKubeletThatRestartsEndsWhatBatchResourcesDoNotCover(t *testing.T) {
	needTurn(t)
	t.Parallel() // in parallel with other tests that have a kubelet and no agent
	c, n := startCluster(t, "below")
	offer(t, c, n, 4000, "4Gi")
	for _, name := range []string{"first", "second"} {
		if _, err := c.KubectlApply(t.Context(), strings.ReplaceAll(batchPod, "NAME", name), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		requireSoon(t, time.Minute, name+" runs", func() error { return phase(t, c, name, "Running") })
		// The kubelet admits pods in the order of their creation times, which
		// have a resolution of one second.
		time.Sleep(time.Second)
	}
	offer(t, c, n, 1500, "4Gi") // the pods request 1000 each
	if err := phase(t, c, "second", "Running"); err != nil {
		t.Errorf("without a restart: %v", err)
	}
	restart(t, n)
	must(t, n.AwaitReady(t.Context()))
	requireSoon(t, time.Minute, "the kubelet ends the second pod", func() error {
		events, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "involvedObject.name=second", "-o", "jsonpath={.items[*].reason}")
		if err == nil && (!strings.Contains(events, "OutOfkubernetes.io/batch-cpu") || !strings.Contains(events, "Killing")) {
			err = fmt.Errorf("its events are %s", events)
		}
		return err
	})
	if err := phase(t, c, "first", "Running"); err != nil {
		t.Error(err)
	}
	writeRaw(t, "readmission.txt", kubectl(t, c, "get", "events", "--sort-by=.metadata.creationTimestamp", "-o",
		"jsonpath={range .items[*]}{.metadata.creationTimestamp} {.involvedObject.kind}/{.involvedObject.name} {.reason}: {.message}{\"\\n\"}{end}")+"\n")
}
