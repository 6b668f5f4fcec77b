package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// batchPod is a pod that spins and requests one CPU of batch-cpu.
const batchPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: NAME, koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: spin, image: "busybox:1", command: [sh, -c, "while :; do :; done"],
resources: {requests: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 256Mi}, limits: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 256Mi}}}]}}`

// servicePod is a service that has a CPU limit. It sleeps until the test makes
// it work.
const servicePod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: LS}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: web, image: "busybox:1", command: [sh, -c, "while :; do sleep 0.2; [ -e /busy ] && timeout 30 sh -c 'while :; do :; done'; done"],
resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: LIMIT, memory: 64Mi}}}]}}`

// strategies is the ConfigMap of the cluster. The test replaces THRESHOLD.
const strategies = `{apiVersion: v1, kind: ConfigMap, metadata: {name: slo-controller-config, namespace: koordinator-system}, data: {
colocation-config: '{"enable": true}',
resource-threshold-config: '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65, "cpuSuppressMinPercent": 10THRESHOLD}}',
cpu-burst-config: '{"clusterStrategy": {"policy": "cpuBurstOnly"}}',
resource-qos-config: '{"clusterStrategy": {"policies": {"cpuIsolation": "strongest"}, "lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}}}}'}}`

// An agent is a tenond on a node of the cluster.
type agent struct {
	t     *testing.T
	c     *Cluster
	n     *Node
	bin   string // the directory of the programs
	state string
	pid   int // on this machine; 0: it does not run
	cmd   *exec.Cmd
	log   string
	args  []string // additional arguments
}

// newAgent prepares a node for tenond, and does not start it.
func newAgent(t *testing.T, c *Cluster, n *Node) *agent {
	t.Helper()
	a := newAgentWithoutConfig(t, c, n)
	a.configure("")
	return a
}

// newAgentWithoutConfig prepares a node for tenond. The cluster has no
// ConfigMap for it.
func newAgentWithoutConfig(t *testing.T, c *Cluster, n *Node) *agent {
	t.Helper()
	a := &agent{t: t, c: c, n: n, bin: programs(t), state: filepath.Join(t.TempDir(), "state")}
	// In a guest, the API server takes long to compute the schemas of these
	// types.
	validate := fmt.Sprintf("--validate=%v", !inGuest())
	kubectl(t, c, "apply", validate, "-f", "../../deploy/crds/tenon.sh_nodereports.yaml", "-f", "testdata/tenond.yaml")
	t.Cleanup(func() {
		a.kill()
		_ = exec.Command(filepath.Join(a.bin, "tenon"), "--state-dir", a.state, "restore").Run()
	})
	return a
}

// programs builds Tenon's programs and that of the published images. If
// TENON_TEST_BIN is set, it takes them from that folder, for test machines
// without a compiler.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TENON_TEST_BIN"); dir != "" {
		return dir
	}
	dir, err := builtPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// builtPrograms returns the directory of the programs that programs has built.
// TestMain removes this directory.
var builtPrograms = sync.OnceValues(func() (dir string, err error) {
	if builtIn, err = os.MkdirTemp("", "tenon-test-bin-"); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", builtIn+"/",
		"tenon.sh/tenon/cmd/tenon", "tenon.sh/tenon/cmd/tenond", "tenon.sh/tenon/cmd/tenon-manager", "tenon.sh/tenon/test/cluster/seeds", "tenon.sh/tenon/test/cluster/timed")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return builtIn, nil
})

var builtIn string // empty: nothing was built

// configure writes the ConfigMap with this threshold.
func (a *agent) configure(threshold string) {
	a.t.Helper()
	a.apply(strings.Replace(strategies, "THRESHOLD", threshold, 1))
}

func (a *agent) apply(text string) {
	a.t.Helper()
	if _, err := a.c.KubectlApply(a.t.Context(), text, "apply", "-f", "-"); err != nil {
		a.t.Fatal(err)
	}
}

// start starts tenond with its service account, and waits for its first tick.
func (a *agent) start() {
	a.t.Helper()
	as, err := a.c.User("system:serviceaccount:tenon-system:tenond", "system:serviceaccounts", "system:serviceaccounts:tenon-system")
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := os.CreateTemp(a.t.TempDir(), "tenond-")
	if err != nil {
		a.t.Fatal(err)
	}
	defer out.Close()
	a.log = out.Name()
	args := append([]string{"--kubernetes", "--config-map", "koordinator-system/slo-controller-config", "--node-name", a.n.Name, "--kubeconfig", as,
		"--kubelet", "https://10.88.0.1:10250", "--kubelet-ca", filepath.Join(a.c.Dir, "pki", "ca.crt"),
		"--config", filepath.Join(a.bin, "none.yaml"), "--state-dir", a.state, "--metrics", "", "--log-level", "debug"}, a.args...)
	a.cmd = a.n.Command(a.t.Context(), filepath.Join(a.bin, "tenond"), args...)
	a.cmd.Stdout, a.cmd.Stderr = out, out
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	if a.pid, err = PID(a.cmd); err != nil {
		a.t.Fatalf("%v\n%s", err, a.said())
	}
	a.t.Cleanup(func() {
		if a.t.Failed() {
			a.t.Logf("tenond said:\n%.20000s", a.said())
		}
	})
	a.await("msg=ready")
}

func (a *agent) said() string {
	text, _ := os.ReadFile(a.log)
	return string(text)
}

// await waits until tenond has logged the text.
func (a *agent) await(text string) {
	a.t.Helper()
	requireSoon(a.t, 30*time.Second, "tenond says "+text, func() error {
		if !strings.Contains(a.said(), text) {
			return errors.New("it does not")
		}
		return nil
	})
}

func (a *agent) signal(sig syscall.Signal) {
	a.t.Helper()
	if a.pid == 0 {
		return
	}
	if err := syscall.Kill(a.pid, sig); err != nil {
		a.t.Error(err)
	}
	_ = a.cmd.Wait()
	a.pid = 0
}

func (a *agent) kill() { a.signal(syscall.SIGKILL) }
func (a *agent) stop() { a.signal(syscall.SIGTERM) }

// countIntents returns the number of writes that tenond has begun, by the journal.
func (a *agent) countIntents() int { return len(a.intents()) }

// intents returns the lines of the journal that begin a write.
func (a *agent) intents() (lines []string) {
	a.t.Helper()
	files, _ := filepath.Glob(filepath.Join(a.state, "journal-*.jsonl"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			a.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, `"op":"intend"`) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// lastOf returns the last n elements of a list, or all if there are fewer.
func lastOf(list []string, n int) []string { return list[max(0, len(list)-n):] }

// restore runs tenon restore, and requires that the node is then as it was
// before.
func (a *agent) restore(before map[string]string) {
	a.t.Helper()
	restore := exec.Command(filepath.Join(a.bin, "tenon"), "--state-dir", a.state, "restore", "-o", "json")
	said := new(strings.Builder)
	restore.Stderr = said
	out, err := restore.Output()
	// Other tests run beside this one. What their agents have changed is named, and
	// makes the restore fail if the agent was just stopped or killed.
	var report struct{ Elsewhere, Busy, Unread, Running []any }
	if wrong := json.Unmarshal(out, &report); wrong != nil || err != nil && (len(report.Elsewhere) == 0 || len(report.Busy)+len(report.Unread)+len(report.Running) > 0) {
		a.t.Fatalf("tenon restore: %v %v\n%s%s", err, wrong, out, said)
	}
	after := a.values()
	for file, v := range after {
		// The kubelet recomputes the weight of the level from its pods now and
		// then.
		if was, had := before[file]; had && was != v && !isWeightOfBurstable(file) {
			a.t.Errorf("%s is %q and was %q; tenon restore said:\n%s", file, v, was, out)
		}
	}
}

// values returns the content of all files of the node's pods that Tenon may
// write.
func (a *agent) values() map[string]string {
	a.t.Helper()
	all := map[string]string{}
	for controller, files := range filesOfPods() {
		groups, err := groupsBelow(a.n.Cgroup(controller, "kubepods"))
		if err != nil {
			a.t.Fatal(err)
		}
		for _, dir := range groups {
			for _, f := range files {
				text, err := os.ReadFile(filepath.Join(dir, f))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				all[filepath.Join(dir, f)] = strings.TrimSpace(string(text))
			}
		}
	}
	return all
}

// awaitSettled waits until only bounds change, and returns the values. Some
// values depend on the runtime. Those that depend on the kubelet come seconds
// later.
func (a *agent) awaitSettled() map[string]string {
	a.t.Helper()
	last, since := a.values(), time.Now()
	requireSoon(a.t, time.Minute, "for 3 s only bounds move", func() error {
		now := a.values()
		moves := func(file, _ string) bool { return bound(file) }
		fixed := maps.Clone(now)
		maps.DeleteFunc(fixed, moves)
		maps.DeleteFunc(last, moves)
		if !maps.Equal(fixed, last) {
			last, since = now, time.Now()
		}
		if d := time.Since(since); d < 3*time.Second {
			return fmt.Errorf("only for %v", d)
		}
		last = now
		return nil
	})
	return last
}

// read reads a number from a file of a cgroup of the node, below kubepods.
func (a *agent) read(controller, group, file string) int {
	a.t.Helper()
	text, err := a.n.setting(controller, filepath.Join("kubepods", group), file)
	if err != nil {
		a.t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

// awaitValue waits until a file of a cgroup has the wanted value.
func (a *agent) awaitValue(within time.Duration, claim, controller, group, file string, want int) {
	a.t.Helper()
	requireSoon(a.t, within, claim, func() error {
		if got := a.read(controller, group, file); got != want {
			return fmt.Errorf("%s/%s is %d, not %d", group, file, got, want)
		}
		return nil
	})
}

func (a *agent) report() v1alpha1.NodeReport {
	a.t.Helper()
	var text []byte
	// tenond writes the first report after its first tick.
	requireSoon(a.t, 30*time.Second, "there is a report", func() (err error) {
		text, err = a.c.Get(a.t.Context(), "/apis/tenon.sh/v1alpha1/nodereports/"+a.n.Name)
		return err
	})
	var r v1alpha1.NodeReport
	if err := json.Unmarshal(text, &r); err != nil {
		a.t.Fatal(err)
	}
	return r
}

// pod creates a pod, waits until it runs, and returns its cgroup below
// kubepods.
func (a *agent) pod(text, name, level string) string {
	a.t.Helper()
	a.apply(strings.ReplaceAll(text, "NAME", name))
	requireSoon(a.t, time.Minute, name+" runs", func() error { return phase(a.t, a.c, name, "Running") })
	return filepath.Join(level, "pod"+uid(a.t, a.c, name))
}

// TestTenondKeepsTheNodeOfACluster checks that a new pod gets the values of its
// batch resources and is idle, and that best-effort work gets less CPU while a
// service works. A tenond that was killed and restarted must begin no write. A
// restart of the kubelet must change no value, and tenon restore must restore
// the node.
func TestTenondKeepsTheNodeOfACluster(t *testing.T) {
	runParallel(t)
	c, n := startCluster(t, "tenond")
	offer(t, c, n, 4000, "4Gi")
	a := newAgent(t, c, n)
	web := a.pod(strings.Replace(servicePod, "LIMIT", `"2"`, 1), "web", "burstable")
	// This test covers only the loop, without NRI. Values that were set through
	// NRI are not restored by tenon restore, but when the DaemonSet ends.
	a.args = []string{"--nri", ""}
	old := a.pod(batchPod, "old", "besteffort")
	before := a.values()
	a.start()
	young := a.pod(batchPod, "young", "besteffort")
	for _, group := range []string{old, young} {
		a.awaitValue(10*time.Second, "a pod's memory is bounded by its batch-memory", "memory", group, "memory.limit_in_bytes", 256<<20)
		a.awaitValue(10*time.Second, "a best-effort pod is idle", "cpu", group, "cpu.idle", 1)
	}
	a.awaitValue(20*time.Second, "the class is bounded", "cpu", "besteffort", "cpu.cfs_period_us", 100000)
	if q := a.read("cpu", "besteffort", "cpu.cfs_quota_us"); q < 0 {
		t.Error("the best-effort class has no quota")
	}

	kubectl(t, c, "exec", "web", "--", "touch", "/busy")
	// The service and the two pods that spin now exceed the threshold, so
	// best-effort work has its minimum.
	requireSoon(t, 20*time.Second, "best-effort work gives way", func() error {
		if q := a.read("cpu", "besteffort", "cpu.cfs_quota_us"); q < 0 || q > 30000 {
			return fmt.Errorf("it may use %d µs of 100000", q)
		}
		return nil
	})
	requireSoon(t, 30*time.Second, "the report says so", func() error {
		r := a.report()
		for _, cond := range r.Status.Conditions {
			if cond.Type == "Suppressing" && cond.Status == "True" && r.Status.Pods["BE"] == 2 && r.Status.Pods["LS"] >= 1 && r.Status.Usage.CPU != nil && r.Status.Batch.CPU != nil {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status)
	})
	kubectl(t, c, "exec", "web", "--", "rm", "/busy")

	a.kill()
	begun, held := a.countIntents(), a.values()
	a.start()
	time.Sleep(5 * time.Second) // five ticks
	// Only the bound may follow the use of the node.
	moved := func(file string) bool {
		return strings.Contains(file, "cpu.cfs_quota_us") || filepath.Base(file) == "cpu.max"
	}
	for file, v := range a.values() {
		if !moved(file) && held[file] != v {
			t.Errorf("the restart made %s %q of %q", file, v, held[file])
		}
	}
	t.Logf("%d writes before the restart, %d after", begun, a.countIntents())

	if err := n.StopKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.await("cannot list the pods of this node")
	steady := a.values()
	time.Sleep(3 * time.Second)
	for file, v := range a.values() {
		if !moved(file) && steady[file] != v {
			t.Errorf("without the kubelet %s became %q of %q", file, v, steady[file])
		}
	}
	if err := n.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.await("the pods of this node are listed again")
	if a.read("cpu", web, "cpu.idle") != 0 {
		t.Error("a service was made idle")
	}
	a.stop()
	a.restore(before)
}

// TestARestartOfTenondWritesNothing kills or stops tenond and starts it again.
// The events of the kernel must show that neither tenond nor the runtime then
// writes to a control group. They must not even write an unchanged value.
func TestARestartOfTenondWritesNothing(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "restart")
	offer(t, c, n, 4000, "4Gi")
	a := newAgent(t, c, n)
	// CPU suppress must be off, because it would follow the use of this
	// machine.
	a.apply(strings.Replace(strings.Replace(strategies, "THRESHOLD", "", 1), `"enable": true, "cpuSuppressPolicy"`, `"enable": false, "cpuSuppressPolicy"`, 1))
	group := a.pod(batchPod, "job", "besteffort")
	writes := witnessWrites(t, n)
	a.start()
	a.awaitValue(10*time.Second, "the pod has the quota of its batch-cpu", "cpu", group, "cpu.cfs_quota_us", 100000)
	// After the plugin has connected, runc writes all values of a container again
	// (cpu.shares, for example), and Tenon may have written some of them by then.
	// Tenon notices that within 5 s (reread.Changed).
	time.Sleep(8 * time.Second)
	if !slices.ContainsFunc(writes.writesSince(time.Time{}), func(w cgroupWrite) bool { return w.by == "tenond" }) {
		t.Fatal("the witness has not seen that tenond wrote")
	}
	defer func() {
		if t.Failed() {
			for _, w := range writes.writesSince(time.Time{}) {
				t.Logf("%s %s wrote %s", w.at.Format("05.000"), w.by, w.file)
			}
		}
	}()
	for _, end := range []func(){a.kill, a.stop, a.kill} {
		seen := time.Now()
		end()
		begun, held := a.countIntents(), a.values()
		a.start()
		time.Sleep(4 * time.Second)
		if now := a.countIntents(); now != begun {
			t.Errorf("%d writes were begun after a restart; the last intents are\n%s", now-begun, strings.Join(lastOf(a.intents(), 3), ""))
		}
		for _, w := range writes.writesSince(seen) {
			if w.by != "kubelet" {
				t.Errorf("after a restart %s wrote %s", w.by, w.file)
			}
		}
		if now := a.values(); !maps.Equal(held, now) {
			t.Errorf("values changed: %v, before %v", now, held)
		}
	}
}

// TestAResizedPodGetsItsNewLimits resizes a pod. Tenon's values must follow the
// new limit, and must not make the kernel refuse the write of the kubelet. A
// release must restore the new limit and not the first one.
func TestAResizedPodGetsItsNewLimits(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "resize")
	a := newAgent(t, c, n)
	group := a.pod(strings.Replace(servicePod, "LIMIT", "500m", 1), "web", "burstable")
	if _, err := n.setting("cpu", "kubepods", "cpu.cfs_burst_us"); err != nil {
		t.Skip("this kernel has no cpu.max.burst")
	}
	a.start()
	a.awaitValue(10*time.Second, "a service may save up CPU time", "cpu", group, "cpu.cfs_burst_us", 50000)
	for _, size := range []struct {
		limit string
		quota int
	}{{"250m", 25000}, {"800m", 80000}} {
		kubectl(t, c, "patch", "pod", "web", "--subresource", "resize", "--patch",
			fmt.Sprintf(`{"spec":{"containers":[{"name":"web","resources":{"limits":{"cpu":%q}}}]}}`, size.limit))
		a.awaitValue(60*time.Second, "the pod has its new limit", "cpu", group, "cpu.cfs_quota_us", size.quota)
		a.awaitValue(30*time.Second, "and may save up as much", "cpu", group, "cpu.cfs_burst_us", size.quota)
		requireSoon(t, time.Minute, "the kubelet is content", func() error {
			got, err := c.Kubectl(t.Context(), "get", "pod", "web", "-o", "jsonpath={.status.containerStatuses[0].resources.limits.cpu}")
			if err == nil && got != size.limit {
				err = fmt.Errorf("the status says %s", got)
			}
			return err
		})
	}
	// This check gives the pods so much weight that an API server beside them is not ready within
	// a minute, and a manager loses its lease. So it runs alone: in a guest, and in the long form.
	if inGuest() || pickLength(false, true) {
		keepsObjectives(t, a)
	}
	a.stop()
	a.restore(nil)
	if q, b := a.read("cpu", group, "cpu.cfs_quota_us"), a.read("cpu", group, "cpu.cfs_burst_us"); q != 80000 || b != 0 {
		t.Errorf("released, the pod has quota %d and burst %d", q, b)
	}
}

// TestTenondEvictsByTheAPI checks that tenond evicts a pod and writes the
// reason into an event. It must not end a pod that a disruption budget
// protects.
func TestTenondEvictsByTheAPI(t *testing.T) {
	inTurn(t)
	runParallel(t)
	c, n := startCluster(t, "evict")
	offer(t, c, n, 4000, "4Gi")
	a := newAgent(t, c, n)
	a.pod(batchPod, "free", "besteffort")
	a.pod(batchPod, "guarded", "besteffort")
	a.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: guarded}, spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}}`)
	requireSoon(t, 30*time.Second, "the budget counts its pod", func() error {
		got, err := c.Kubectl(t.Context(), "get", "pdb", "guarded", "-o", "jsonpath={.status.currentHealthy}")
		if err == nil && got != "1" {
			err = fmt.Errorf("it counts %q", got)
		}
		return err
	})
	a.start()
	a.configure(`, "memoryEvictThresholdPercent": 2, "memoryEvictLowerPercent": 1`)
	a.await("a pod is not evicted")
	a.await("pod evicted")
	requireSoon(t, 30*time.Second, "the pod that nothing protects is gone", func() error {
		if out, err := c.Kubectl(t.Context(), "get", "pod", "free", "--ignore-not-found", "-o", "name"); err != nil || out != "" {
			return errors.Join(err, fmt.Errorf("there is %q", out))
		}
		return nil
	})
	if err := phase(t, c, "guarded", "Running"); err != nil {
		t.Error(err)
	}
	for pod, reason := range map[string]string{"free": "Evicted", "guarded": "EvictionRefused"} {
		requireSoon(t, 10*time.Second, "there is an event of "+pod, func() error {
			out, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "involvedObject.name="+pod+",reason="+reason, "-o", "jsonpath={.items[*].message}")
			if err == nil && !strings.Contains(out, "MiB are in use") {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
	if restarts := kubectl(t, c, "get", "pod", "guarded", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); restarts != "0" {
		t.Errorf("what the budget protects was restarted %s times", restarts)
	}
}

// TestTenondPutsBackWhatItChangedWhenItsDaemonSetGoes stops tenond. While its
// DaemonSet exists, tenond must change nothing. After the DaemonSet is deleted,
// tenond must restore everything, including the values that were set through
// NRI.
func TestTenondPutsBackWhatItChangedWhenItsDaemonSetGoes(t *testing.T) {
	runParallel(t)
	c, n := startCluster(t, "leave")
	offer(t, c, n, 4000, "4Gi")
	a := newAgent(t, c, n)
	// No scheduler binds pods of this DaemonSet, because the test itself runs
	// tenond.
	a.apply(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: tenond, namespace: tenon-system}, spec: {selector: {matchLabels: {app: tenond}},
template: {metadata: {labels: {app: tenond}}, spec: {schedulerName: none, containers: [{name: a, image: "busybox:1"}]}}}}`)
	a.args = []string{"--daemonset", "tenon-system/tenond"}
	old := a.pod(batchPod, "old", "besteffort")
	before := a.values()
	a.start()
	young := a.pod(batchPod, "young", "besteffort")
	for _, group := range []string{old, young} {
		a.awaitValue(10*time.Second, "a best-effort pod is idle", "cpu", group, "cpu.idle", 1)
	}
	a.stop()
	if a.read("cpu", old, "cpu.idle") != 1 {
		t.Error("a stop for an upgrade gave the pods back")
	}
	report := func() string {
		return kubectl(t, c, "get", "nodereport", n.Name, "-o", `jsonpath={.status.conditions[?(@.type=="AgentRuns")].status}/{.status.cpus.caches[*].cpus}`)
	}
	if got := report(); !strings.HasPrefix(got, "/") || got == "/" {
		t.Errorf("after a stop for an upgrade the report says %q", got)
	}
	a.start()
	kubectl(t, c, "delete", "daemonset", "tenond", "-n", "tenon-system")
	a.stop()
	if got := report(); got != "False/" {
		t.Errorf("after the end of the DaemonSet the report says %q", got)
	}
	after := a.values()
	for file, v := range after {
		if was, had := before[file]; had && was != v && !isWeightOfBurstable(file) {
			t.Errorf("%s is %q and was %q", file, v, was)
		}
		own := map[string]string{
			"cpu.shares": "2", "cpu.cfs_quota_us": "-1", "cpu.idle": "0", "memory.limit_in_bytes": "9223372036854771712",
			"cpu.weight": "1", "cpu.max": "max 100000", "memory.max": "max",
		}[filepath.Base(file)]
		if strings.Contains(file, filepath.Base(n.Cgroup("cpu", "kubepods/"+young))) && own != "" && v != own {
			t.Errorf("%s is %q", file, v)
		}
	}
	if t.Failed() {
		t.Log(a.said())
	}
}
