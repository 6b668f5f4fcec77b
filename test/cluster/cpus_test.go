package cluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/model/unit"
)

// TestReservedCPUsAreNotBestEffortWorks runs two nodes. The kubelet of the
// first node binds CPUs itself and keeps pods off CPU 0. On that node Tenon
// must write no cpuset, and the watermark of CPU suppress must count only the
// CPUs of pods. The kubelet of the second node binds no CPUs. On that node the
// annotation reservedCPUs must keep existing and new best-effort work off CPU 0
// until Tenon is removed. The programs of the cluster itself run on CPU 0, but
// not their containers.
func TestReservedCPUsAreNotBestEffortWorks(t *testing.T) {
	inTurn(t)
	runParallel(t)
	needsCluster(t)
	left := runtime.NumCPU() - 1
	if left < 1 {
		t.Skip("one CPU cannot be shared between the node and its pods")
	}
	c, err := Up(t.Context(), Options{Name: "cpus", SystemCPUs: unit.CPUSetOf(0), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	binding, err := c.AddNode(t.Context(), 0, NodeOptions{Kubelet: "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\nreservedSystemCPUs: \"0\"\ncpuManagerReconcilePeriod: 2s"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := c.AddNode(t.Context(), 1, NodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, rest := fmt.Sprintf("0-%d", left), fmt.Sprintf("1-%d", left)
	if left == 1 {
		rest = "1"
	}
	a := newAgent(t, c, binding)
	a.args = []string{"--nri", ""}

	t.Run("the kubelet binds", func(t *testing.T) {
		a.t = t
		offer(t, c, binding, 4000, "4Gi")
		job := a.pod(batchPod, "bound", "besteffort")
		id := kubectl(t, c, "get", "pod", "bound", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
		container := filepath.Join(job, strings.TrimPrefix(id, "containerd://")) // the CPUs of the sandbox are not bound
		a.awaitCPUs("the kubelet keeps a container off CPU 0", container, rest)
		a.runsOn(container, rest)
		systemRunsOn(t, c, "0")
		before := a.values()
		a.start()
		a.suppressedOver(left)
		time.Sleep(5 * time.Second) // the kubelet writes the sets of its containers each 2 s
		a.awaitCPUs("Tenon leaves the sets of CPUs alone", container, rest)
		a.awaitCPUs("Tenon leaves the class's set alone", "besteffort", all)
		if journal := a.journal(); strings.Contains(journal, "cpuset") {
			t.Errorf("the journal has sets of CPUs:\n%s", journal)
		}
		if r := a.report(); !holds(r.Status.Conditions, "KnobsWritten", "True", "") || r.Status.CPUs == nil || r.Status.CPUs.Manager != "static" {
			t.Errorf("%+v, CPUs %+v", r.Status.Conditions, r.Status.CPUs)
		}
		a.stop()
		a.restore(before)
	})

	t.Run("by annotation", func(t *testing.T) {
		a.t, a.n, a.state = t, plain, filepath.Join(t.TempDir(), "state")
		a.args = append(a.args, "--kubelet", "https://10.88.1.1:10250")
		offer(t, c, plain, 4000, "4Gi")
		kubectl(t, c, "annotate", "node", plain.Name, `node.koordinator.sh/reservation={"reservedCPUs":"0"}`)
		pod := strings.Replace(batchPod, "node-0", plain.Name, 1)
		old := a.pod(pod, "old", "besteffort")
		a.runsOn(filepath.Join(old, "*"), all)
		before := a.values()
		a.start()
		a.awaitCPUs("best-effort work leaves CPU 0", "besteffort", rest)
		young := a.pod(pod, "young", "besteffort")
		for _, job := range []string{old, young} {
			a.awaitCPUs("so do its pods", job, rest)
			a.awaitCPUs("and their containers", filepath.Join(job, "*"), rest)
		}
		a.suppressedOver(left)
		kubectl(t, c, "annotate", "node", plain.Name, "node.koordinator.sh/reservation-")
		a.awaitCPUs("without the annotation it may have all CPUs", "besteffort", all)
		a.stop()
		a.restore(before)
	})
}

// holds reports whether there is a condition of this kind and status, with a
// message that contains the text.
func holds(all []metav1.Condition, kind, status, text string) bool {
	return slices.ContainsFunc(all, func(c metav1.Condition) bool {
		return c.Type == kind && string(c.Status) == status && strings.Contains(c.Message, text)
	})
}

// suppressedOver waits until tenond reports that its watermark counts the given
// number of CPUs. Best-effort work must then have no more CPU than these.
func (a *agent) suppressedOver(cpus int) {
	a.t.Helper()
	requireSoon(a.t, time.Minute, "the watermark is that of the CPUs of pods", func() error {
		r := a.report()
		if !holds(r.Status.Conditions, "Suppressing", "True", fmt.Sprintf("65%% of %d000m", cpus)) {
			return fmt.Errorf("%+v", r.Status.Conditions)
		}
		return nil
	})
	if q := a.read("cpu", "besteffort", "cpu.cfs_quota_us"); q <= 0 || q > cpus*65000 {
		a.t.Errorf("best-effort work may use %d µs of %d", q, cpus*100000)
	}
}

// awaitCPUs waits until all cgroups below kubepods that match the pattern have
// the wanted CPU set. At least one cgroup must match.
func (a *agent) awaitCPUs(claim, pattern, want string) {
	a.t.Helper()
	requireSoon(a.t, 30*time.Second, claim, func() error {
		files, err := filepath.Glob(filepath.Join(a.n.Cgroup("cpuset", "kubepods"), pattern, "cpuset.cpus"))
		if err != nil || len(files) == 0 {
			return errors.Join(fmt.Errorf("%s: there are no such files", pattern), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if got := strings.TrimSpace(string(text)); got != want {
				return fmt.Errorf("%s is %s, not %s", f, got, want)
			}
		}
		return nil
	})
}

// runsOn checks on which CPUs the processes of the matching cgroups below
// kubepods may run.
func (a *agent) runsOn(pattern, want string) {
	a.t.Helper()
	files, err := filepath.Glob(filepath.Join(a.n.Cgroup("cpuset", "kubepods"), pattern, "cgroup.procs"))
	if err != nil {
		a.t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		pids, _ := os.ReadFile(f)
		for _, pid := range strings.Fields(string(pids)) {
			if name, got := allowed(pid); got != "" {
				seen++
				if got != want {
					a.t.Errorf("%s in %s may use CPUs %s, want %s", name, f, got, want)
				}
			}
		}
	}
	if seen == 0 {
		a.t.Errorf("%s: no process", pattern)
	}
}

// systemRunsOn checks on which CPUs the programs of the cluster itself may run.
// They are the processes in the cluster's PID namespace: containers have
// namespaces of their own.
func systemRunsOn(t *testing.T, c *Cluster, want string) {
	t.Helper()
	namespace := func(pid string) string {
		target, _ := os.Readlink("/proc/" + pid + "/ns/pid")
		return target
	}
	cluster, seen := namespace(strconv.Itoa(c.Init)), map[string]bool{}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		pid := filepath.Base(p)
		if namespace(pid) != cluster {
			continue
		}
		name, got := allowed(pid)
		seen[name] = true
		if got != want && got != "" {
			t.Errorf("%s, process %s, may use CPUs %s, want %s", name, pid, got, want)
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kubelet", "containerd", "containerd-shim"} {
		if !seen[name] {
			t.Errorf("no %s among %v", name, slices.Sorted(maps.Keys(seen)))
		}
	}
}

// allowed returns the name of a process, and the CPUs on which it may run. The
// name is empty if the process has ended.
func allowed(pid string) (name, cpus string) {
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(status)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); key {
		case "Name":
			name = value
		case "Cpus_allowed_list":
			cpus = value
		}
	}
	return name, cpus
}

// journal returns the content of the journal.
func (a *agent) journal() string {
	a.t.Helper()
	files, err := filepath.Glob(filepath.Join(a.state, "journal-*.jsonl"))
	if err != nil || len(files) == 0 {
		a.t.Fatalf("%d journals, %v", len(files), err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			a.t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
