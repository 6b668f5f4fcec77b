package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

func ignored(p *corev1.Pod) { p.Labels[LabelIgnore] = "true" }

// TestAPodThatIsLeftAloneIsNoWorkload looks at an ignored pod among others: it is
// no workload, gets no limits and no CPUs, and no cgroup that contains it acts for
// others.
func TestAPodThatIsLeftAloneIsNoWorkload(t *testing.T) {
	batch := container("c", "", "batch-cpu=2k batch-memory=4Gi")
	all := []corev1.Pod{pod("managed", be, batch), pod("alone", be, batch, ignored)}
	for beside, root := range map[bool]node.CgroupPath{false: "kubepods/besteffort", true: "kubepods/besteffort/poduid-managed"} {
		pods := all[:1]
		if beside {
			pods = all
		}
		got, remarks := Workloads(pods, Layout{}, everywhere)
		if len(got) != 1 || got[0].ID != "shop/managed" || got[0].ContentionRoot != root || len(remarks) > 0 {
			t.Errorf("beside an ignored pod %v: %+v, %q; want one workload with the contention root %s", beside, got, remarks, root)
		}
	}
	if _, _, ours := Starting(&all[1], "c", true); ours {
		t.Error("the runtime gets limits for a pod that is left alone")
	}
	pending := slices.Clone(all)
	for i := range pending {
		pending[i].Status.Phase = corev1.PodPending
	}
	nowhere := func(node.CgroupPath) bool { return false }
	if got := Arriving(pending, Layout{}, nowhere); len(got) != 1 || got[0].ID != "shop/managed" {
		t.Errorf("arriving: %+v", got)
	}
	own := pod("db", label(LabelQOSClass, "LSR"), annotation(AnnotationObjective, `{"runQueueDelay": "2ms"}`), container("c", "cpu=2", "cpu=2"))
	for _, alone := range []bool{false, true} {
		if alone {
			ignored(&own)
		}
		_, demands, _ := DemandOf(&own)
		_, states, _ := ObjectiveOf(&own, node.LSR)
		if demands == alone || states == alone {
			t.Errorf("left alone %v: demands CPUs %v, states an objective %v", alone, demands, states)
		}
	}
	wrong := pod("typo", label(LabelIgnore, "True"))
	if faults := Faults(&wrong); len(faults) != 1 || faults[0].Key != LabelIgnore || IsIgnored(&wrong) {
		t.Errorf("the value True: %v, ignored %v; want a fault", faults, IsIgnored(&wrong))
	}
}
