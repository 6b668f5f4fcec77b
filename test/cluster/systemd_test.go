package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/kernel/task"
)

// restartingPod is a batch pod whose container starts again when it was ended.
const restartingPod = `{apiVersion: v1, kind: Pod, metadata: {name: restarting, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, hostNetwork: true, terminationGracePeriodSeconds: 0,
containers: [{name: c, image: "busybox:1", command: [sleep, "100000"],
resources: {requests: {kubernetes.io/batch-cpu: 100, kubernetes.io/batch-memory: 32Mi}, limits: {kubernetes.io/batch-cpu: 100, kubernetes.io/batch-memory: 32Mi}}}]}}
`

func TestNamesOfTheDriverSystemd(t *testing.T) {
	const level = "kubepods.slice/kubepods-besteffort.slice"
	for group, want := range map[string]string{
		"": "", "agent": "agent", "kubepods": "kubepods.slice", "kubepods/besteffort": level,
		"kubepods/besteffort/poda-b":    level + "/kubepods-besteffort-poda_b.slice",
		"kubepods/besteffort/poda-b/12": level + "/kubepods-besteffort-poda_b.slice/cri-containerd-12.scope",
		"kubepods/poda":                 "kubepods.slice/kubepods-poda.slice",
		"kubepods/besteffort/pod*/*":    level + "/kubepods-besteffort-pod*.slice/cri-containerd-*.scope",
	} {
		if got := unitPath(group); got != want {
			t.Errorf("%q is %q, want %q", group, got, want)
		}
	}
}

// keptBySystemd checks that Tenon sets its values again after systemd has written
// cgroups. systemd has no settings for what Tenon writes into a slice. When it applies
// the settings of a slice, it writes its own values into all files of a controller.
func (u *unifiedNode) keptBySystemd() {
	u.t.Helper()
	u.keptAfter("systemctl daemon-reload", "daemon-reload")
	// The kubelet sets the weights of its levels in this way each minute.
	level := filepath.Base(u.n.Cgroup("", "kubepods/besteffort"))
	u.keptAfter("a weight is set by systemd", "set-property", "--runtime", level, "CPUWeight=1")
	pod, _ := u.group("first-words")
	u.keptAfter("the weight of a pod is set by systemd", "set-property", "--runtime", filepath.Base(u.n.Cgroup("", "kubepods/"+pod)), "CPUWeight=1")
	u.comesBack()
}

func (u *unifiedNode) systemctl(args ...string) {
	u.t.Helper()
	if out, err := exec.CommandContext(u.t.Context(), "systemctl", args...).CombinedOutput(); err != nil {
		u.t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// keptAfter runs systemctl, logs which values have changed then, and waits until
// they are as before.
func (u *unifiedNode) keptAfter(claim string, args ...string) {
	u.t.Helper()
	before, quota := u.values(), u.n.Cgroup("", "kubepods/besteffort")+"/cpu.max"
	changed := func() error {
		now, errs := u.values(), []error(nil)
		for file, was := range before {
			if v, there := now[file]; there && v != was && !u.moves(file) && !u.followsMemory(file, v) {
				errs = append(errs, fmt.Errorf("%s is %q, and was %q", file, v, was))
			}
		}
		if strings.HasPrefix(now[quota], "max ") {
			errs = append(errs, fmt.Errorf("%s is %q, and was %q", quota, now[quota], before[quota]))
		}
		return errors.Join(errs...)
	}
	u.systemctl(args...)
	begun := time.Now()
	u.t.Logf("%s: changed, and not yet set again: %v", claim, changed())
	if err := retry(u.t.Context(), 30*time.Second, changed); err != nil {
		u.t.Errorf("not so: after %s, Tenon sets its values again: %v", claim, err)
	}
	u.t.Logf("%s: all values are as before after %.1f s", claim, time.Since(begun).Seconds())
}

// staysBounded waits until some minutes have passed since best-effort work was bounded. Its
// quota must then still be the bound, and tenond must have no trouble. systemd resets the
// quota each minute, when a pod starts, and in keptBySystemd: three resets once made Tenon
// give it up.
func (u *unifiedNode) staysBounded(a *agent, since time.Time) {
	u.t.Helper()
	boundFor := pickLength(2*time.Minute, 4*time.Minute)
	var lost []time.Duration
	var from time.Time // when the quota was found reset; zero: it is not
	looked := time.Now()
	for ; time.Since(since) < boundFor; time.Sleep(20 * time.Millisecond) {
		switch reset := strings.HasPrefix(u.read("besteffort", "cpu.max"), "max "); {
		case reset && from.IsZero():
			from = time.Now()
		case !reset && !from.IsZero():
			lost, from = append(lost, time.Since(from)), time.Time{}
		}
	}
	u.t.Logf("in %.0f s of looking, the quota was seen reset %d times, for %v", time.Since(looked).Seconds(), len(lost), lost)
	resets := 0
	for line := range strings.Lines(a.said()) {
		if strings.Contains(line, "msg="+loop.LogWritten+" ") && strings.Contains(line, unitPath("kubepods/besteffort")+" file=cpu.max ") && strings.Contains(line, `from="max `) {
			resets++
		}
	}
	resets-- // Tenon's first write
	if resets < 4 {
		u.t.Errorf("the quota was reset %d times: this shows too little", resets)
	}
	u.checkSuppressed()
	if set := u.read("besteffort", "cpuset.cpus"); set != "" {
		u.t.Errorf("best-effort work is bounded by the CPUs %s", set)
	}
	if trouble := u.trouble(); len(trouble) > 0 {
		u.t.Errorf("tenond has trouble: %q", trouble)
	}
	u.t.Logf("best-effort work is bounded by its quota for %.0f s, which was reset %d times, and tenond has no trouble", time.Since(since).Seconds(), resets)
}

// trouble returns the metrics of the kinds of trouble that tenond has.
func (u *unifiedNode) trouble() (all []string) {
	u.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: u.c.Dial}}
	defer client.CloseIdleConnections()
	text, err := get(u.t.Context(), &client, "http://"+unifiedMetrics+"/metrics")
	if err != nil {
		u.t.Fatal(err)
	}
	kinds := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "tenon_trouble{") {
			kinds++
			if !strings.HasSuffix(line, " 0") {
				all = append(all, line)
			}
		}
	}
	if kinds == 0 {
		u.t.Error("tenond has no metric of its trouble")
	}
	return all
}

// followsMemory reports whether a value is the protection of all pods, which follows
// the memory in use. None at all is not such a value.
func (u *unifiedNode) followsMemory(file, value string) bool {
	return filepath.Dir(file) == u.n.Cgroup("", "kubepods") && strings.HasPrefix(filepath.Base(file), "memory.") && value != "0"
}

// comesBack stops the slice of a pod. Its processes end and its cgroup vanishes, and
// the kubelet makes both again. The new ones must have the values of the pod.
func (u *unifiedNode) comesBack() {
	u.t.Helper()
	u.apply(restartingPod)
	u.running("restarting")
	pod, first := u.group("restarting")
	u.awaitValue("the pod is bounded", pod, "cpu.max", "10000 100000")
	u.systemctl("stop", filepath.Base(u.n.Cgroup("", "kubepods/"+pod)))
	var second string
	requireSoon(u.t, 2*time.Minute, "the container runs again", func() error {
		p := u.pod("restarting")
		if p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		if _, second = u.group("restarting"); second == first {
			return errors.New("its container is the old one")
		}
		return nil
	})
	for _, group := range []string{pod, second} {
		u.awaitValue("a slice that came back is bounded", group, "cpu.max", "10000 100000")
		u.awaitValue("and its memory", group, "memory.max", strconv.Itoa(32<<20))
	}
	u.awaitValue("and it is idle", pod, "cpu.idle", "1")
	requireSoon(u.t, 20*time.Second, "and asks for long slices", func() error { return haveSlices(u.n.Cgroup("", "kubepods/"+pod), task.SliceLong) })
}
