package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/unit"
)

// saidByPi are the published lines with the right digits, and one of our own.
var saidByPi = regexp.MustCompile(`^computing Pi with 3000 Threads\.\.\.computed the first 20000 digets of pi in \d+ ms!
the first digets are: 3\.14159265
writing to pi\.txt\.\.\.
finished!
(\d+) threads on CPUs ([\d,-]+), 20000 of 20000 digits right$`)

// TestCalPiRunsAsPublished runs the published manifest of cal-pi word for word.
// The pod demands four CPUs of its own, and one CPU of a node stays shared. In
// the guest of TestCalPiOnFiveCPUs (test/vm), the kubelet has cgroup v2.
func TestCalPiRunsAsPublished(t *testing.T) {
	runParallel(t)
	needsCluster(t)
	if runtime.NumCPU() < 5 {
		t.Skipf("cal-pi demands 4 CPUs, and one stays shared; this machine has %d: TestCalPiOnFiveCPUs of test/vm runs it", runtime.NumCPU())
	}
	var c *Cluster
	var n *Node
	if inGuest() {
		c, n = startGuestCluster(t, Options{Name: "pi"}, NodeOptions{})
	} else {
		c, n = startCluster(t, "pi")
	}
	serveThePublishedImages(t, c)
	a := newAgentWithoutConfig(t, c, n)
	a.start()
	t.Log("tenond is ready")
	calPi(t, a, 4, "cal-pi")
}

// thePublishedPrograms runs the programs of cal-pi and go-demo by the published
// manifests. The node has two CPUs, so that the amounts of CPU are smaller.
// Nothing else is changed.
func thePublishedPrograms(t *testing.T, a *agent) {
	serveThePublishedImages(t, a.c)
	requireSoon(t, time.Minute, "no pod of an earlier test holds CPUs", func() error {
		if pods := a.report().Status.CPUs.Pods; len(pods) > 0 {
			return fmt.Errorf("the pods have %+v", pods)
		}
		return nil
	})
	calPi(t, a, 1, "two-cpus/cal-pi")
	kubectl(t, a.c, "delete", "pod", "cal-pi")

	create(t, a.c, "two-cpus/go-demo")
	requireSoon(t, time.Minute, "go-demo answers", func() error {
		answer, err := a.c.Kubectl(t.Context(), "exec", "deployment/go-demo", "--", "/go-demo", "http://127.0.0.1:8080/")
		if err == nil && strings.TrimSpace(answer) != "200 OK 1024" {
			err = fmt.Errorf("it answers %q", answer)
		}
		return err
	})
	kubectl(t, a.c, "delete", "deployment", "go-demo", "--cascade=foreground")
}

// calPi runs cal-pi to its end. It checks the digits, that the program had all
// its threads, and that from its start it ran on as many CPUs as it demands,
// which were its own.
func calPi(t *testing.T, a *agent, cpus int, manifest string) {
	t.Helper()
	create(t, a.c, manifest)
	awaitEnd(t, a.c, "cal-pi")
	said := kubectl(t, a.c, "logs", "cal-pi")
	t.Logf("cal-pi says\n%s", said)
	found := saidByPi.FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("cal-pi says %q", said)
	}
	if threads, err := strconv.Atoi(found[1]); err != nil || threads < 3000 {
		t.Errorf("cal-pi had %s threads (%v), want 3000 at least", found[1], err)
	}
	if set, err := unit.ParseCPUSet(found[2]); err != nil || set.Len() != cpus {
		t.Errorf("cal-pi ran on CPUs %s (%v), want %d of its own", found[2], err, cpus)
	}
	written := regexp.MustCompile(fmt.Sprintf(`(?m)^.*msg=written cgroup=\S*/pod%s\S* file=cpuset\.cpus .*\bto=%s .*has %d CPUs? of its own.*$`,
		uid(t, a.c, "cal-pi"), found[2], cpus)).FindString(a.said())
	if written == "" {
		t.Errorf("tenond has not written that cal-pi has CPUs %s of its own", found[2])
	}
	t.Logf("tenond says\n%s", written)
}

// awaitEnd waits until a pod has succeeded. It logs each state of the pod, and
// the last one again each 15 s, which take minutes in a guest of test/vm.
func awaitEnd(t *testing.T, c *Cluster, name string) {
	t.Helper()
	begun, last, logged := time.Now(), "", time.Time{}
	requireSoon(t, 2*time.Minute, name+" has succeeded", func() error {
		p, err := podNamed(t.Context(), c, name)
		if err == nil && p.Status.Phase == corev1.PodSucceeded {
			return nil
		}
		if err == nil {
			err = errors.New(describePod(p))
			if p.Status.Phase == corev1.PodFailed {
				err = fmt.Errorf("%w: %w", errFinal, err)
			}
		}
		if err.Error() != last || time.Since(logged) > 15*time.Second {
			last, logged = err.Error(), time.Now()
			t.Logf("after %.1f s: %s", time.Since(begun).Seconds(), last)
		}
		return err
	})
	t.Logf("%s has succeeded %.1f s after its creation", name, time.Since(begun).Seconds())
}

// describePod returns the phase of a pod, and what the scheduler and the kubelet
// say about it while it does not run.
func describePod(p corev1.Pod) string {
	text := fmt.Sprintf("%s is %s %s %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			text += fmt.Sprintf("; not %s: %s", c.Type, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += fmt.Sprintf("; %s waits: %s %s", c.Name, w.Reason, w.Message)
		}
	}
	return text
}

// The folders of the examples. A test of test/published checks that those for two
// CPUs differ from the published ones only in amounts.
const (
	ownCPUs         = "../../examples/scheduling/"
	serviceAndBatch = "../../examples/colocation/two-cpus/"
)

// create creates the objects of an example of own CPUs.
func create(t *testing.T, c *Cluster, name string) {
	t.Helper()
	kubectl(t, c, "create", "-f", ownCPUs+name+".yaml")
}

// serveThePublishedImages adds images of our own to the registry of the
// cluster, under the names of the published ones.
func serveThePublishedImages(t *testing.T, c *Cluster) {
	t.Helper()
	must(t, c.Images().AddPublished(filepath.Join(programs(t), "seeds")))
}
