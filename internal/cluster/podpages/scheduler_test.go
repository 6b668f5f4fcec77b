package podpages

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// waiting returns a pod that waits for a scheduler.
func waiting(name, scheduler string, age time.Duration) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(ago(age))},
		Spec:       corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c"}}},
	}
}

func lease(holder string, age time.Duration) schedulers.Lease {
	return schedulers.Lease{Namespace: "tenon-system", Name: "tenon-scheduler", Holder: holder, Renewed: ago(age), Duration: 15 * time.Second}
}

// TestAPodThatNoSchedulerTakesSaysSo checks pods of three schedulers: one that
// runs, one that does not run, and one of which this is not known.
func TestAPodThatNoSchedulerTakesSaysSo(t *testing.T) {
	unheard := "No scheduler has looked at it since it was created 3m0s ago: it has no condition and no event of one.\n"
	event := corev1.Event{Reason: "FailedScheduling", Message: "0/4 nodes", LastTimestamp: metav1.NewTime(ago(time.Minute)), ReportingController: "mine"}
	for name, x := range map[string]struct {
		pod    corev1.Pod
		seen   schedulers.Seen
		want   []string
		absent string
	}{
		"no sign of it": {
			waiting("p", "koord-scheduler", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "koord-scheduler"}},
			[]string{"It waits for scheduler koord-scheduler, which is not seen to run: no Lease has its name, and no event comes from it.\n", unheard}, "has a leader",
		},
		"it gave its Lease up": {
			waiting("p", "tenon-scheduler", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "tenon-scheduler", Leases: []schedulers.Lease{lease("", 10*time.Minute)}}},
			[]string{"It waits for scheduler tenon-scheduler, which has no leader: Lease tenon-system/tenon-scheduler has no holder.\n", unheard}, "",
		},
		"it died": {
			waiting("p", "tenon-scheduler", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "tenon-scheduler", Leases: []schedulers.Lease{lease("a", 10*time.Minute)}}},
			[]string{"which has no leader: a renewed Lease tenon-system/tenon-scheduler 10m0s ago for the last time.\n", unheard}, "",
		},
		"it died after it had answered": {
			condition(waiting("p", "tenon-scheduler", 3*time.Minute), "Unschedulable", "0/4 nodes"), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "tenon-scheduler", Leases: []schedulers.Lease{lease("a", 10*time.Minute)}}},
			[]string{"Its scheduler says: 0/4 nodes\nIt waits for scheduler tenon-scheduler, which has no leader: "}, "No scheduler has looked",
		},
		"it runs and is busy": {
			waiting("p", "tenon-scheduler", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "tenon-scheduler", Leases: []schedulers.Lease{lease("b", 10*time.Minute), lease("a", 2*time.Second)}}},
			[]string{"It waits for scheduler tenon-scheduler, which has a leader: a renewed Lease tenon-system/tenon-scheduler 2s ago.\n", unheard}, "",
		},
		"it runs and has answered": {
			condition(waiting("p", "tenon-scheduler", 3*time.Minute), "Unschedulable", "0/4 nodes"), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "tenon-scheduler", Leases: []schedulers.Lease{lease("a", 2*time.Second)}}},
			[]string{"Its scheduler says: 0/4 nodes\nIt has no node;"}, "It waits for",
		},
		"it has answered by an event": {
			waiting("p", "mine", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "mine", Spoke: ago(time.Minute)}, Events: []corev1.Event{event}},
			[]string{"Its scheduler says: 0/4 nodes\nIt has no node;"}, "It waits for",
		},
		"it has answered others": {
			waiting("p", "mine", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "mine", Spoke: ago(time.Minute)}},
			[]string{"It waits for scheduler mine, which has no Lease of its name; an event of it is 1m0s old.\n", unheard}, "",
		},
		"nothing may be read": {
			waiting("p", "mine", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "mine", Unread: []string{"its Lease cannot be read (forbidden)"}}, Unread: "forbidden"},
			[]string{"which may run or not: its Lease cannot be read (forbidden).\nNo scheduler has set a condition on it since it was created 3m0s ago. Not looked at: its events (forbidden).\n"}, "",
		},
		"its Lease may not be read, and it has answered": {
			condition(waiting("p", "", 3*time.Minute), "Unschedulable", "0/4 nodes"), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "default-scheduler", Unread: []string{"you may not list Leases", "you may not list events"}}},
			[]string{"Its scheduler says: 0/4 nodes\nIt waits for scheduler default-scheduler, which may run or not: you may not list Leases; you may not list events.\nIt has no node;"}, "",
		},
		"the cluster's own, whose Lease is elsewhere": {
			waiting("p", "", 3*time.Minute), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "default-scheduler"}},
			[]string{"It waits for scheduler default-scheduler, which is not seen to run", unheard}, "",
		},
		"the cluster's own, a moment ago": {waiting("p", "", time.Second), schedulers.Seen{Scheduler: schedulers.Scheduler{Name: "default-scheduler"}}, []string{"of its own.\nIt has no node;"}, "It waits for"},
		"a gate": {
			gated(waiting("p", "koord-scheduler", 3*time.Minute)), schedulers.Seen{},
			[]string{"No scheduler looks at it until its scheduling gates are removed: example.com/quota.\n"}, "batch room",
		},
	} {
		page, found := New(nil, []corev1.Pod{x.pod}, noon).ExplainPod("shop", "p", x.seen)
		if !found {
			t.Fatal(name)
		}
		text := page.Text()
		for _, want := range x.want {
			if !strings.Contains(text, want) || x.absent != "" && strings.Contains(text, x.absent) {
				t.Errorf("%s: want %q and not %q in\n%s", name, want, x.absent, text)
			}
		}
	}
}

func condition(p corev1.Pod, reason, message string) corev1.Pod {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message}}
	return p
}

// gated returns a pod with a scheduling gate, as the API server stores it. It
// has a condition that is not from a scheduler.
func gated(p corev1.Pod) corev1.Pod {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	return condition(p, corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates")
}

// TestAPodWithoutASchedulerFindsNoPlace checks fit with schedulers that do not run.
func TestAPodWithoutASchedulerFindsNoPlace(t *testing.T) {
	named := strings.Replace(ownPod, "spec: {", "spec: {schedulerName: koord-scheduler, ", 1)
	for name, x := range map[string]struct {
		text string
		s    schedulers.Scheduler
		want string
		fits bool
	}{
		"no sign":             {named, schedulers.Scheduler{Name: "koord-scheduler"}, "shop/p would wait:\n  for scheduler koord-scheduler, which is not seen to run: no Lease has its name", false},
		"no leader":           {named, schedulers.Scheduler{Name: "koord-scheduler", Leases: []schedulers.Lease{lease("", time.Hour)}}, "  for scheduler koord-scheduler, which has no leader: ", false},
		"a leader":            {named, schedulers.Scheduler{Name: "koord-scheduler", Leases: []schedulers.Lease{lease("a", time.Second)}}, "1 of 1 pod", true},
		"not known":           {named, schedulers.Scheduler{Name: "koord-scheduler", Unread: []string{"its Lease cannot be read (x)"}}, "Not looked at: whether scheduler koord-scheduler runs: its Lease cannot be read (x).\n", true},
		"the cluster's own":   {ownPod, schedulers.Scheduler{Name: "default-scheduler"}, "1 of 1 pod", true},
		"its Lease has ended": {ownPod, schedulers.Scheduler{Name: "default-scheduler", Leases: []schedulers.Lease{lease("", time.Hour)}}, "  for scheduler default-scheduler, which has no leader: ", false},
	} {
		if text, fits := fit(scene(t), manifests(t, x.text).Wanted, Webhook{}, x.s); fits != x.fits || !strings.Contains(text, x.want) {
			t.Errorf("%s: fits %v; want %q in\n%s", name, fits, x.want, text)
		}
	}
}

// TestWithoutTheManagerAPodStartsWithoutItsCPUs checks fit while tenon-manager
// does not run. A pod that names no scheduler does not wait for CPUs then.
func TestWithoutTheManagerAPodStartsWithoutItsCPUs(t *testing.T) {
	wide := strings.ReplaceAll(ownPod, "{cpu: 2}", "{cpu: 8}")
	const absent = "tenon-manager has no leader: Lease x has no holder"
	for name, x := range map[string]struct {
		text, absent string
		want         string
		not          string
		answer       FitAnswer
	}{
		"it runs":            {wide, "", "shop/p would wait:\n", "tenon-manager", FitWaits},
		"too few CPUs":       {wide, absent, "  starts without them\n\nshop/p would not get what it asks for, and would start without it:\n  no webhook names tenon-scheduler in the pod, because " + absent + "; so the pod goes to the cluster's own scheduler,", "would wait", FitUnmet},
		"too few resources":  {strings.ReplaceAll(ownPod, "{cpu: 2}", "{cpu: 2, memory: 900Ti}"), absent, "shop/p would wait:\n", "own scheduler", FitWaits},
		"room":               {ownPod, absent, "Not looked at: which node p gets: while tenon-manager does not run, the cluster's own scheduler chooses it", "would start", FitPlaced},
		"another scheduler":  {strings.Replace(wide, "spec: {", "spec: {schedulerName: tenon-scheduler, ", 1), absent, "shop/p would wait:\n", "own scheduler", FitWaits},
		"no CPUs of its own": {strings.Replace(wide, "'true'", "'false'", 1), absent, "", "own scheduler", FitPlaced},
		"it names its node":  {strings.Replace(wide, "spec: {", "spec: {nodeName: node-1, ", 1), absent, "on the node that it names:\n", "own scheduler", FitUnmet},
	} {
		wanted := manifests(t, x.text).Wanted
		wanted[0].NoManager = x.absent
		page := scene(t).Fit(wanted, Webhook{}, nil)
		if text := page.Text(); page.Pods[0].Answer != x.answer || !strings.Contains(text, x.want) || strings.Contains(text, x.not) {
			t.Errorf("%s: %s; want %q and not %q in\n%s", name, page.Pods[0].Answer, x.want, x.not, text)
		}
	}
}

// TestWithoutTheManagerNoProfileApplies checks a profile that gives a class. The
// API server was not asked.
func TestWithoutTheManagerNoProfileApplies(t *testing.T) {
	own := configv1alpha1.ClusterColocationProfile{Spec: configv1alpha1.ClusterColocationProfileSpec{QoSClass: "LSR"}}
	own.Name = "own"
	by := Webhook{Profiles: []configv1alpha1.ClusterColocationProfile{own}}
	for absent, want := range map[string]string{"": "as ClusterColocationProfile own makes it", "tenon-manager has no leader": "shop/p  no CPUs of its own"} {
		wanted := manifests(t, strings.Replace(ownPod, "'true'", "'false'", 1)).Wanted
		wanted[0].NoManager = absent
		if text, _ := fit(scene(t), wanted, by); !strings.Contains(text, want) {
			t.Errorf("%q: want %q in\n%s", absent, want, text)
		}
	}
}
