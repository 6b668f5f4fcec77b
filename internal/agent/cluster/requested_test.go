package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// jobOf returns a pod that requests milli thousandths of a CPU as batch-cpu,
// and milli MiB of batch-memory.
func jobOf(name string, milli int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: name, UID: types.UID(name)}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		kube.BatchCPU: *resource.NewQuantity(milli, resource.DecimalSI), kube.BatchMemory: *resource.NewQuantity(milli<<20, resource.BinarySI),
	}}}}
	return p
}

// TestAPodThatComesWhenNothingIsLeftDoesNotCount adds a pod that does not fit
// into the amount. If it counted, a queue of work would keep the published
// amount above the formula forever.
func TestAPodThatComesWhenNothingIsLeftDoesNotCount(t *testing.T) {
	a, b, c, d := jobOf("a", 1000), jobOf("b", 1000), jobOf("c", 1000), jobOf("d", 500)
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	amount := func(milli int64) node.Batch {
		return node.Batch{CPU: node.Amount[unit.MilliCPU]{Value: unit.MilliCPU(milli), Policy: "usage"}, Memory: node.Amount[unit.Bytes]{Value: unit.Bytes(milli << 20), Policy: "usage"}}
	}
	degraded, unmeasured := amount(0), amount(0)
	degraded.CPU.Degraded, degraded.Memory.Degraded = "not known", "not known"
	unmeasured.CPU.Degraded, unmeasured.Memory.Degraded = node.Unmeasured, node.Unmeasured
	var r requested
	for _, turn := range []struct {
		claim string
		at    time.Duration
		batch node.Batch
		pods  []*corev1.Pod
		want  unit.MilliCPU
	}{
		{"who starts believes what it finds", 0, amount(500), []*corev1.Pod{a, b}, 2000},
		{"a pod that was on its way when the amount fell counts", time.Minute, amount(3000), []*corev1.Pod{a, b}, 2000},
		{"it comes", time.Minute + 20*time.Second, amount(1500), []*corev1.Pod{a, b, c}, 3000},
		{"those that were there go on counting", 2 * time.Minute, amount(1500), []*corev1.Pod{a, b, c}, 3000},
		{"one ends and another comes in its place", 3 * time.Minute, amount(1500), []*corev1.Pod{b, c, d}, 2000},
		{"and another ends", 4 * time.Minute, amount(1500), []*corev1.Pod{c, d}, 1500},
		{"that was enough for all, so it goes on counting", 5 * time.Minute, amount(100), []*corev1.Pod{d}, 500},
		{"an amount that is degraded admits no pod", 6 * time.Minute, degraded, []*corev1.Pod{a, d}, 500},
		{"one that is not computed yet excludes no pod", 6*time.Minute + time.Second, unmeasured, []*corev1.Pod{a, d}, 1500},
		{"nor does none at all", 7 * time.Minute, node.Batch{}, []*corev1.Pod{a, b, d}, 2500},
		{"no pod is left", 8 * time.Minute, amount(100), nil, 0},
	} {
		cpu, memory := r.take(noon.Add(turn.at), turn.batch, turn.pods)
		if cpu != turn.want || memory != unit.Bytes(turn.want)<<20 {
			t.Errorf("%s: %v %v, want %v", turn.claim, cpu, memory, turn.want)
		}
	}
	var empty requested
	for i, turn := range []struct {
		pods []*corev1.Pod
		want unit.MilliCPU
	}{{nil, 0}, {[]*corev1.Pod{a, b}, 0}, {[]*corev1.Pod{d}, 500}} {
		if cpu, _ := empty.take(noon.Add(time.Duration(i)*time.Second), amount(500), turn.pods); cpu != turn.want {
			t.Errorf("tick %d of an agent that started on an empty node: %v, want %v", i, cpu, turn.want)
		}
	}
	if cpu, _ := new(requested).take(noon, amount(1), []*corev1.Pod{jobOf("x", 1<<62), jobOf("y", 1<<62)}); cpu != maxRequested {
		t.Errorf("a sum above the maximum: %v", cpu)
	}
}

// TestPodsThatAreLeftAloneKeepTheirRoom checks that the batch resources which such
// a pod requests count: the scheduler counts them, too.
func TestPodsThatAreLeftAloneKeepTheirRoom(t *testing.T) {
	pod := func(name, alone string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{kube.LabelIgnore: alone}}, Status: corev1.PodStatus{Phase: phase}}
	}
	c := &Follower{last: savedState{Pods: []corev1.Pod{
		pod("alone", "true", corev1.PodRunning), pod("managed", "false", corev1.PodRunning), pod("ended", "true", corev1.PodSucceeded), pod("new", "true", corev1.PodPending),
	}}}
	var l kube.Layout
	exists := func(p node.CgroupPath) bool { return p != l.Pod(&c.last.Pods[3]) }
	if got := c.ignored(l, exists); len(got) != 1 || got[0].Name != "alone" {
		t.Errorf("%d pods that are left alone hold room: %v; want the running one", len(got), got)
	}
}
