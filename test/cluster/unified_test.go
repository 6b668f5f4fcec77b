package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/kernel/task"
)

// unifiedStrategies is a ConfigMap with all settings that only cgroup v2
// supports.
const unifiedStrategies = `{apiVersion: v1, kind: ConfigMap, metadata: {name: slo-controller-config, namespace: koordinator-system}, data: {
colocation-config: '{"enable": true}',
resource-threshold-config: '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65, "cpuSuppressMinPercent": 10}}',
resource-qos-config: '{"clusterStrategy": {"policies": {"cpuIsolation": "cpu.idle"},
  "lsClass": {"cpuQOS": {"enable": true}, "memoryQOS": {"enable": true, "minLimitPercent": 10, "lowLimitPercent": 50, "throttlingPercent": 80}},
  "beClass": {"cpuQOS": {"enable": true}}}}'}}
`

// firstWords is a batch pod that first prints the values of its own cgroup. On
// cgroup v2 a container sees its cgroup as the root.
const firstWords = `{apiVersion: v1, kind: Pod, metadata: {name: first-words, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, hostNetwork: true, restartPolicy: Never, terminationGracePeriodSeconds: 0,
containers: [{name: c, image: "busybox:1", command: [sh, -c, "cd /sys/fs/cgroup; echo $(cat cpu.max) $(cat memory.max) $(cat cpu.weight) >/dev/termination-log; exec sleep 100000"],
resources: {requests: {kubernetes.io/batch-cpu: 500, kubernetes.io/batch-memory: 64Mi}, limits: {kubernetes.io/batch-cpu: 500, kubernetes.io/batch-memory: 64Mi}}}]}}
`

// roomyPod is a service whose memory limit is higher than its request.
const roomyPod = `{apiVersion: v1, kind: Pod, metadata: {name: roomy, labels: {koordinator.sh/qosClass: LS}}, spec: {nodeName: node-0, hostNetwork: true, terminationGracePeriodSeconds: 0,
containers: [{name: c, image: "busybox:1", command: [sleep, "100000"], resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}}]}}
`

// TestSeedsOnCgroupV2 runs the published manifests beside tenond, on a kubelet
// with cgroup v2. The containers of batch work must have their values when they
// start, and best-effort work must be idle and bounded. The memory of services
// must be protected up to the node's root. A kubelet that restarts clears some
// values, and tenond must set these again. After everything is deleted, the
// node must be unchanged. tenond starts in its own cgroup namespace, as in a
// container.
//
// All parts share one cluster, because the test runs in emulation (test/vm),
// where a kubectl command takes seconds.
func TestSeedsOnCgroupV2(t *testing.T) {
	needsCluster(t)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("this machine has cgroup v1: TestKubeletOnCgroupV2 and TestClusterWithSystemd of test/vm run it")
	}
	c, n := startGuestCluster(t, Options{Name: "unified", NoScheduler: true}, NodeOptions{})
	u := &unifiedNode{t: t, c: c, n: n}
	contained := u.container(programs(t))
	empty := u.values()
	offer(t, c, n, 3200, "5Gi")
	u.apply("", "../../deploy/crds/tenon.sh_nodereports.yaml", "testdata/tenond.yaml")
	u.apply(unifiedStrategies+"---\n"+roomyPod, serviceAndBatch+"ls-nginx.yaml")
	u.running("nginx", "roomy")
	a := &agent{t: t, c: c, n: n, bin: contained, state: filepath.Join(t.TempDir(), "state")}
	a.args = []string{"--metrics", unifiedMetrics}
	t.Cleanup(a.kill)
	a.start()
	u.checkNamespace(a)
	u.apply(firstWords)
	u.running("first-words")
	u.startedWithItsValues()
	u.checkProtection()
	// The work of the transcoding slows down a guest. With systemd, a commit does not
	// run it, because some commits run it with the driver cgroupfs.
	whole := !c.Systemd || pickLength(false, true)
	if whole {
		u.apply("", serviceAndBatch+"be-ffmpeg.yaml", serviceAndBatch+"besteffort-ffmpeg.yaml")
		u.running("be-ffmpeg", "besteffort-ffmpeg")
		u.checkYielding()
	}
	u.checkSuppressed()
	bounded := time.Now()
	if whole {
		u.checkPressure()
	}
	if c.Systemd {
		u.keptBySystemd()
		u.staysBounded(a, bounded)
	}
	if whole {
		u.keptBy(func() { restart(t, n) })
	}
	if pickLength(false, true) && !c.Systemd { // it tests the kubelet only, and some commits run the same tests on cgroup v1
		u.idleLevel()
	}

	kubectl(t, c, "delete", "pod", "--all", "--grace-period=1", "--wait=false")
	u.noPodIsLeft()
	a.stop()
	a.restore(nil)
	u.unchangedSince(empty)
}

// noPodIsLeft waits until no pod has a cgroup.
func (u *unifiedNode) noPodIsLeft() {
	u.t.Helper()
	requireSoon(u.t, time.Minute, "no pod's group is left", func() error {
		groups, err := groupsBelow(u.n.Cgroup("", "kubepods"))
		for _, dir := range groups {
			if u.ofPod(dir) {
				err = errors.Join(err, errors.New(dir+" is left"))
			}
		}
		return err
	})
}

// unchangedSince checks that each file has the value that it had before Tenon came.
func (u *unifiedNode) unchangedSince(before map[string]string) {
	u.t.Helper()
	left := u.values()
	for file, v := range left {
		if was := before[file]; was != v && !isWeightOfBurstable(file) {
			u.t.Errorf("%s is %q, and was %q before Tenon and the pods came", file, v, was)
		}
	}
	u.t.Logf("all is deleted and put back: %d files were compared with what they held before", len(left))
}

// ofPod reports whether a file or a directory is that of the cgroup of a pod, or is
// below it.
func (u *unifiedNode) ofPod(name string) bool {
	below, is := strings.CutPrefix(name, u.n.Cgroup("", "kubepods"))
	return is && (strings.Contains(below, "/pod") || strings.Contains(below, "-pod"))
}

// inGuest reports whether this machine is a guest of test/vm. It has images, but
// not the programs from which they are made.
func inGuest() bool { return os.Getenv("TENON_TEST_IMAGES") != "" }

// guestHasSystemd reports whether this machine is a guest whose first process is
// systemd. Its clusters have the cgroup driver systemd, and its kernel has bridges
// and overlay file systems.
func guestHasSystemd() bool { return os.Getenv("TENON_TEST_CGROUP_DRIVER") == "systemd" }

// startGuestCluster starts a cluster of one node in a guest. It sets the options that
// are the same in all clusters of the guest. The kernel of a guest without systemd
// has no bridges and no overlay file systems.
func startGuestCluster(t *testing.T, o Options, of NodeOptions) (*Cluster, *Node) {
	t.Helper()
	o.Images, o.NoMetrics, o.Log, o.Systemd = os.Getenv("TENON_TEST_IMAGES"), true, t.Logf, guestHasSystemd()
	if o.Controllers == nil { // a pod needs at least these
		o.Controllers = []string{"--controllers=serviceaccount-controller,root-ca-certificate-publisher-controller,node-lifecycle-controller"}
	}
	c, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubelet:\n%s", grep(filepath.Join(c.Dir, "node-0", "kubelet.log"), "E1", "E0"))
		}
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	of.Bare = !guestHasSystemd()
	n, err := c.AddNode(t.Context(), 0, of)
	if err != nil {
		t.Fatal(err)
	}
	return c, n
}

// unifiedMetrics is the address of tenond's metrics, in the cluster's network.
const unifiedMetrics = "127.0.0.1:9909"

// A unifiedNode is a node with cgroup v2.
type unifiedNode struct {
	t *testing.T
	c *Cluster
	n *Node
}

// unifiedFiles are the files that Tenon may write on cgroup v2.
var unifiedFiles = []string{"cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "cpuset.cpus", "memory.min", "memory.low", "memory.high", "memory.max"}

// container makes a directory of programs. The program tenond in it starts in a
// new cgroup and a new cgroup namespace, as in a container.
func (u *unifiedNode) container(bin string) (dir string) {
	u.t.Helper()
	unshare, err := exec.LookPath("unshare") // busybox has another unshare, which its shell would prefer
	if err != nil {
		u.t.Fatal(err)
	}
	dir = u.t.TempDir()
	group := u.n.Cgroup("", "agent")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s --cgroup %s/tenond \"$@\"\n", group, unshare, bin)
	if err := errors.Join(
		os.Mkdir(group, 0o755),
		os.WriteFile(filepath.Join(dir, "tenond"), []byte(script), 0o755),
		os.Symlink(filepath.Join(bin, "tenon"), filepath.Join(dir, "tenon")),
	); err != nil {
		u.t.Fatal(err)
	}
	return dir
}

// checkNamespace checks that tenond has joined the cgroup namespace of the
// node. In that namespace, the paths in /proc/PID/cgroup are those of the
// mounted tree.
func (u *unifiedNode) checkNamespace(a *agent) {
	u.t.Helper()
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/cgroup", a.pid))
	ours, err2 := os.Readlink("/proc/self/ns/cgroup")
	own, err3 := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", a.pid))
	if err := errors.Join(err, err2, err3); err != nil {
		u.t.Fatal(err)
	}
	if theirs != ours {
		u.t.Errorf("tenond is in the cgroup namespace %s, want the node's, %s:\n%s", theirs, ours, a.said())
	}
	u.t.Logf("tenond was started in a cgroup namespace of its own, is in the node's and in the group %s", strings.TrimSpace(string(own)))
}

// values returns the values of the node's root and of its other cgroups, but
// not those of pods.
func (u *unifiedNode) values() map[string]string {
	u.t.Helper()
	groups, err := groupsBelow(u.n.Cgroup("", ""))
	if err != nil {
		u.t.Fatal(err)
	}
	all := map[string]string{}
	for _, dir := range groups {
		for _, file := range unifiedFiles {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				u.t.Fatal(err)
			}
			all[filepath.Join(dir, file)] = strings.TrimSpace(string(text))
		}
	}
	return all
}

func (u *unifiedNode) read(group, file string) string {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.n.Cgroup("", filepath.Join("kubepods", group)), file))
	if err != nil {
		u.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// awaitValue waits until a file of a cgroup below kubepods has a value, and
// logs it.
func (u *unifiedNode) awaitValue(claim, group, file, want string) {
	u.t.Helper()
	if err := retry(u.t.Context(), 20*time.Second, func() error {
		if got := u.read(group, file); got != want {
			return fmt.Errorf("%s/%s is %q, not %q", group, file, got, want)
		}
		return nil
	}); err != nil {
		u.t.Errorf("not so: %s: %v", claim, err)
		return
	}
	u.t.Logf("%s: kubepods/%s/%s = %s", claim, group, file, want)
}

// apply runs kubectl apply for files and a text. It skips the validation, for
// which the API server would have to compute the schemas of all its types.
func (u *unifiedNode) apply(text string, files ...string) {
	u.t.Helper()
	args := []string{"apply", "--validate=false"}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	if text != "" {
		args = append(args, "-f", "-")
	}
	if _, err := u.c.KubectlApply(u.t.Context(), text, args...); err != nil {
		u.t.Fatal(err)
	}
}

func (u *unifiedNode) pod(name string) corev1.Pod {
	u.t.Helper()
	p, err := podNamed(u.t.Context(), u.c, name)
	if err != nil {
		u.t.Fatal(err)
	}
	return p
}

// podNamed gets a pod from the API server directly, because kubectl takes
// seconds on a slow machine.
func podNamed(ctx context.Context, c *Cluster, name string) (p corev1.Pod, err error) {
	text, err := c.Get(ctx, "/api/v1/namespaces/default/pods/"+name)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

func (u *unifiedNode) running(names ...string) {
	u.t.Helper()
	for _, name := range names {
		begun := time.Now()
		requireSoon(u.t, 2*time.Minute, name+" runs", func() error {
			p := u.pod(name)
			if p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("it is %s: %s %s %+v", p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses)
			}
			return nil
		})
		u.t.Logf("%s runs %.0f s later", name, time.Since(begun).Seconds())
	}
}

// group returns two cgroups below kubepods: that of the pod, and that of its
// first container.
func (u *unifiedNode) group(name string) (pod, container string) {
	u.t.Helper()
	p := u.pod(name)
	level := map[corev1.PodQOSClass]string{corev1.PodQOSBestEffort: "besteffort", corev1.PodQOSBurstable: "burstable"}[p.Status.QOSClass]
	pod = filepath.Join(level, "pod"+string(p.UID))
	if len(p.Status.ContainerStatuses) != 1 {
		u.t.Fatalf("containers of %s: %+v", name, p.Status.ContainerStatuses)
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return pod, filepath.Join(pod, id)
}

// startedWithItsValues checks that a container of batch work had its values
// before its first instruction. The pod of the container must get these values,
// too.
func (u *unifiedNode) startedWithItsValues() {
	u.t.Helper()
	pod, container := u.group("first-words")
	requireSoon(u.t, time.Minute, "the first instructions have run", func() error {
		text, err := os.ReadFile(u.terminationLog("first-words"))
		if err == nil && len(text) == 0 {
			err = errors.New("nothing was said")
		}
		return err
	})
	said, _ := os.ReadFile(u.terminationLog("first-words"))
	u.t.Logf("the container's first words (cpu.max memory.max cpu.weight): %s", said)
	// The runtime sets the weight to 1. Tenon gives the runtime no other
	// weight, because the kubelet would count such a weight as a request. The
	// start of the container waits for a tick, which sets the weight of half a
	// CPU. On a slow machine, the tick may take longer than the start waits.
	f := strings.Fields(string(said))
	if len(f) != 4 || f[0] != "50000" || f[1] != "100000" || f[2] != strconv.Itoa(64<<20) || f[3] != "1" && f[3] != "50" {
		u.t.Errorf("the container began with cpu.max, memory.max and cpu.weight %q, want 50000 100000 %d, and 1 or 50", f, 64<<20)
	}
	for _, g := range []string{container, pod} {
		u.awaitValue("batch work is bounded", g, "cpu.max", "50000 100000")
		u.awaitValue("its memory too", g, "memory.max", strconv.Itoa(64<<20))
	}
}

// checkYielding checks that the transcoding pods have the limits of their
// batch resources, and that batch work is idle and services are not.
func (u *unifiedNode) checkYielding() {
	u.t.Helper()
	for _, name := range []string{"first-words", "be-ffmpeg", "besteffort-ffmpeg"} {
		pod, _ := u.group(name)
		u.awaitValue(name+" is idle", pod, "cpu.idle", "1")
		requireSoon(u.t, 20*time.Second, name+" asks for long slices", func() error { return haveSlices(u.n.Cgroup("", "kubepods/"+pod), task.SliceLong) })
	}
	for _, name := range []string{"be-ffmpeg", "besteffort-ffmpeg"} {
		pod, container := u.group(name)
		for _, g := range []string{container, pod} {
			u.awaitValue(name+" is bounded", g, "cpu.max", "130000 100000")
			u.awaitValue(name+" is bounded", g, "memory.max", strconv.Itoa(2<<30))
		}
	}
	for _, name := range []string{"nginx", "roomy"} {
		pod, _ := u.group(name)
		u.awaitValue(name+" is not idle", pod, "cpu.idle", "0")
	}
}

// terminationLog returns the file of the host that a pod's container sees as
// /dev/termination-log.
func (u *unifiedNode) terminationLog(name string) string {
	files, _ := filepath.Glob(filepath.Join(u.n.Dir, "kubelet", "pods", string(u.pod(name).UID), "containers", "c", "*"))
	slices.Sort(files)
	if len(files) == 0 {
		return filepath.Join(u.n.Dir, "none")
	}
	return files[0]
}

// checkProtection checks that the kernel protects a tenth of a service's request
// (memory.min), and reclaims half of the request last (memory.low). A cgroup above
// has the sum of the cgroups below it. But the guest mounts cgroup v2 with
// memory_recursiveprot, so a cgroup that also holds unprotected work has only
// what the services use, and some room.
func (u *unifiedNode) checkProtection() {
	u.t.Helper()
	page := func(n int) string { return strconv.Itoa(n / 4096 * 4096) }
	nginx, _ := u.group("nginx")
	busy, container := u.group("roomy")
	u.awaitValue("a tenth of its request is protected", nginx, "memory.min", page((1<<30)/10))
	u.awaitValue("half of its request is reclaimed last", nginx, "memory.low", page((1<<30)/2))
	u.awaitValue("a tenth of its request is protected", busy, "memory.min", page((32<<20)/10))
	u.awaitValue("half of its request is reclaimed last", busy, "memory.low", page((32<<20)/2))
	u.awaitValue("it is throttled at four fifths of what it may use beyond its request", container, "memory.high", page(32<<20+(32<<20)*80/100))
	u.awaitValue("what is above keeps as much", "burstable", "memory.low", page((32<<20)/2))
	const leastRoom, settings = 128 << 20, (1<<30)/2 + (32<<20)/2
	above := map[string]string{"kubepods": u.n.Cgroup("", "kubepods"), "the node's root": u.n.Cgroup("", "")}
	if u.c.Systemd { // the node's root is that of the machine, which has no memory.low
		delete(above, "the node's root")
	}
	for name, dir := range above {
		requireSoon(u.t, 3*time.Minute, name+" follows the memory of its services", func() error {
			text, err := os.ReadFile(filepath.Join(dir, "memory.low"))
			low, parsed := strconv.Atoi(strings.TrimSpace(string(text)))
			if err := errors.Join(err, parsed); err != nil {
				return err
			}
			if low < leastRoom || low >= settings {
				return fmt.Errorf("memory.low is %d, want at least %d and less than %d", low, leastRoom, settings)
			}
			return nil
		})
	}
}

// checkSuppressed checks that the best-effort class may use only the CPU that
// the node leaves. One idle service and two transcoding pods run.
func (u *unifiedNode) checkSuppressed() {
	u.t.Helper()
	requireSoon(u.t, time.Minute, "the best-effort class has a quota", func() error {
		if v := u.read("besteffort", "cpu.max"); strings.HasPrefix(v, "max") {
			return fmt.Errorf("cpu.max is %q", v)
		}
		return nil
	})
	u.t.Logf("suppressed: kubepods/besteffort/cpu.max = %s", u.read("besteffort", "cpu.max"))
}

// checkPressure checks that tenond reads the pressure of each cgroup, a file
// that cgroup v1 does not have.
func (u *unifiedNode) checkPressure() {
	u.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: u.c.Dial}}
	defer client.CloseIdleConnections()
	var said []string
	requireSoon(u.t, time.Minute, "tenond knows the pressure of the transcoding", func() error {
		text, err := get(u.t.Context(), &client, "http://"+unifiedMetrics+"/metrics")
		if err != nil {
			return err
		}
		said = nil
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "tenon_workload_pressure_seconds_total{") && strings.Contains(line, "besteffort-ffmpeg") {
				said = append(said, strings.TrimSpace(line))
			}
		}
		waited := func(line string) bool {
			return strings.Contains(line, `resource="cpu"`) && !strings.HasSuffix(line, " 0")
		}
		if len(said) < 2 || !slices.ContainsFunc(said, waited) {
			return fmt.Errorf("it says %q, want memory, and that it waited for a CPU", said)
		}
		return nil
	})
	u.t.Logf("tenond says: %s", strings.Join(said, "\n"))
	pod, _ := u.group("besteffort-ffmpeg")
	for _, file := range []string{"cpu.pressure", "memory.pressure"} {
		u.t.Logf("%s: %s", file, strings.Join(strings.Fields(u.read(pod, file)), " "))
	}
}

// keptBy checks that a restarted kubelet does not change pods and their
// containers. In the cgroups above pods, the kubelet clears memory protection
// that it did not set itself (kubernetes/kubernetes#138903), and Tenon must set
// it again.
func (u *unifiedNode) keptBy(restart func()) {
	u.t.Helper()
	before := u.values()
	restart()
	if err := u.n.AwaitReady(u.t.Context()); err != nil {
		u.t.Fatal(err)
	}
	// others returns an error with the changed values. If ofPods is set, it
	// compares the cgroups of pods, and otherwise the cgroups above pods.
	others := func(ofPods bool) error {
		var errs []error
		for file, v := range u.values() {
			if was := before[file]; was != v && u.ofPod(file) == ofPods && !u.moves(file) {
				errs = append(errs, fmt.Errorf("%s is %q, and was %q", file, v, was))
			}
		}
		return errors.Join(errs...)
	}
	if err := others(true); err != nil {
		u.t.Errorf("the kubelet's restart: %v", err)
	}
	begun := time.Now()
	u.t.Logf("what the kubelet cleared and Tenon has not put back yet: %v", others(false))
	if err := retry(u.t.Context(), 20*time.Second, func() error { return others(false) }); err != nil {
		u.t.Errorf("not so: Tenon puts back what the kubelet clears: %v", err)
	}
	if !u.c.Systemd && findLine(u.n, "cpu.weight", "invalid argument") == nil {
		u.t.Errorf("the kubelet complains:\n%s", grep(filepath.Join(u.n.Dir, "kubelet.log"), "E"))
	}
	u.t.Logf("the kubelet has started again with idle pods, and %.1f s after it is ready all values are as before", time.Since(begun).Seconds())
}

// moves reports whether a value of a QoS level depends on the node's use or on
// its pods.
func (u *unifiedNode) moves(file string) bool {
	return file == u.n.Cgroup("", "kubepods/besteffort")+"/cpu.max" || isWeightOfBurstable(file)
}

// idleLevel shows why Tenon makes pods idle and not the cgroup of the
// best-effort level above them, on cgroup v2. As on v1, a kubelet cannot start
// if the level is idle.
func (u *unifiedNode) idleLevel() {
	u.t.Helper()
	level := u.n.Cgroup("", "kubepods/besteffort")
	setIdle(u.t, level, "1")
	restart(u.t, u.n)
	requireSoon(u.t, 30*time.Second, "a kubelet over an idle level ends", func() error {
		if u.n.daemon("kubelet").checkRunning() == nil {
			return errors.New("it runs")
		}
		return nil
	})
	if err := findLine(u.n, "Failed to start ContainerManager", "kubepods/besteffort/cpu.weight: invalid argument"); err != nil {
		u.t.Error(err)
	}
	u.t.Logf("with cpu.idle on kubepods/besteffort the kubelet ends: %s", tail(filepath.Join(u.n.Dir, "kubelet.log")))
	setIdle(u.t, level, "0")
	if err := u.n.StartKubelet(u.t.Context()); err != nil {
		u.t.Fatal(err)
	}
	if err := u.n.AwaitReady(u.t.Context()); err != nil {
		u.t.Error(err)
	}
}
