package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// refusedMessage is the kubelet's message if it cannot write the cpu.shares of a
// level.
const refusedMessage = "kubepods/besteffort/cpu.shares: invalid argument"

// TestKubeletCannotRestartOverAnIdleLevel shows why Tenon makes pods idle and
// not the cgroup of the best-effort level above them. The kubelet writes the
// level's cpu.shares at its start and every minute, and the kernel refuses
// shares for an idle cgroup. A running kubelet only logs an error, but a
// starting one exits.
func TestKubeletCannotRestartOverAnIdleLevel(t *testing.T) {
	needTurn(t)
	t.Parallel() // it waits for the kubelet's minute
	c, n := startCluster(t, "idle-level")
	level := n.Cgroup("cpu", "kubepods/besteffort")
	setIdle(t, level, "1")
	runs(t, c, "one")
	requireSoon(t, 90*time.Second, "the kubelet complains", func() error { return findLine(n, "Failed to update QoS cgroup configuration", refusedMessage) })

	restart(t, n)
	requireSoon(t, 30*time.Second, "it ends", func() error {
		if n.daemon("kubelet").checkRunning() == nil {
			return errors.New("it runs")
		}
		return nil
	})
	if err := findLine(n, "Failed to start ContainerManager", refusedMessage); err != nil {
		t.Error(err)
	}

	setIdle(t, level, "0")
	if err := n.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	runs(t, c, "two")
}

// TestKubeletSurvivesIdlePods checks that the kubelet accepts idle pods and
// containers. It must log no error, and exec and delete must work. A restart of
// the kubelet must not change idle pods.
func TestKubeletSurvivesIdlePods(t *testing.T) {
	needTurn(t)
	t.Parallel() // as above
	c, n := startCluster(t, "idle-pods")
	runs(t, c, "one")
	pod := n.Cgroup("cpu", "kubepods/besteffort/pod"+uid(t, c, "one"))
	groups, err := groupsBelow(pod)
	if err != nil || len(groups) != 3 {
		t.Fatalf("groups of a pod: %v, %v: want the pod, its sandbox and its container", groups, err)
	}
	for _, dir := range groups {
		setIdle(t, dir, "1")
	}
	restart(t, n)
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs(t, c, "two")
	if out := kubectl(t, c, "exec", "one", "--", "echo", "entered"); out != "entered" {
		t.Errorf("exec printed %q", out)
	}
	for _, dir := range groups {
		if text, err := os.ReadFile(filepath.Join(dir, "cpu.idle")); err != nil || string(text) != "1\n" {
			t.Errorf("%s: cpu.idle is %q, %v", dir, text, err)
		}
	}
	if findLine(n, "cpu.shares") == nil || findLine(n, "cpu.idle") == nil {
		t.Errorf("the kubelet complains:\n%s", grep(filepath.Join(n.Dir, "kubelet.log"), "E"))
	}
	kubectl(t, c, "delete", "pod", "one")
	requireSoon(t, 30*time.Second, "the pod's group goes with it", func() error {
		if _, err := os.Stat(pod); err == nil {
			return errors.New(pod + " is there")
		}
		return nil
	})
}

// setIdle writes cpu.idle, or skips the test if the kernel has none (before
// 5.15).
func setIdle(t *testing.T, group, value string) {
	t.Helper()
	file := filepath.Join(group, "cpu.idle")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel has no cpu.idle")
	}
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runs creates a best-effort pod and waits until it runs.
func runs(t *testing.T, c *Cluster, name string) {
	t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 0,
		containers: [{name: c, image: "busybox:1", command: [sleep, "1000"]}]}}`, name)
	if _, err := c.KubectlApply(t.Context(), text, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	requireSoon(t, time.Minute, "pod "+name+" runs", func() error { return phase(t, c, name, "Running") })
}

func restart(t *testing.T, n *Node) {
	t.Helper()
	if err := n.StopKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireSoon(t, 10*time.Second, "a killed kubelet ends", func() error {
		if n.daemon("kubelet").checkRunning() == nil {
			return errors.New("it runs")
		}
		return nil
	})
	if err := n.StartKubelet(t.Context()); err != nil && !errors.Is(err, errFinal) {
		t.Fatal(err)
	}
}

// findLine returns nil if some line of the kubelet's log contains all words.
func findLine(n *Node, words ...string) error {
	text, err := os.ReadFile(filepath.Join(n.Dir, "kubelet.log"))
	if err != nil {
		return err
	}
lines:
	for line := range strings.Lines(string(text)) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		return nil
	}
	return fmt.Errorf("no line of the kubelet's log has %q", words)
}
