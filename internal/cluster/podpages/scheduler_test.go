package podpages

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// waiting returns a pod that waits for a scheduler.
func waiting(name, scheduler string, age time.Duration) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(ago(age))},
		Spec:       corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c"}}},
	}
}

func lease(holder string, age time.Duration) Lease {
	return Lease{Namespace: "tenon-system", Name: "tenon-scheduler", Holder: holder, Renewed: ago(age), Duration: 15 * time.Second}
}

// TestAPodThatNoSchedulerTakesSaysSo checks pods of three schedulers: one that
// runs, one that does not run, and one of which this is not known.
func TestAPodThatNoSchedulerTakesSaysSo(t *testing.T) {
	unheard := "No scheduler has looked at it since it was created 3m0s ago: it has no condition and no event of one.\n"
	event := corev1.Event{Reason: "FailedScheduling", Message: "0/4 nodes", LastTimestamp: metav1.NewTime(ago(time.Minute)), ReportingController: "mine"}
	for name, x := range map[string]struct {
		pod    corev1.Pod
		seen   Seen
		want   []string
		absent string
	}{
		"no sign of it": {
			waiting("p", "koord-scheduler", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "koord-scheduler"}},
			[]string{"It waits for scheduler koord-scheduler, which is not seen to run: no Lease has its name, and no event comes from it.\n", unheard}, "has a leader",
		},
		"it gave its Lease up": {
			waiting("p", "tenon-scheduler", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "tenon-scheduler", Leases: []Lease{lease("", 10*time.Minute)}}},
			[]string{"It waits for scheduler tenon-scheduler, which has no leader: Lease tenon-system/tenon-scheduler has no holder.\n", unheard}, "",
		},
		"it died": {
			waiting("p", "tenon-scheduler", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "tenon-scheduler", Leases: []Lease{lease("a", 10*time.Minute)}}},
			[]string{"which has no leader: a renewed Lease tenon-system/tenon-scheduler 10m0s ago for the last time.\n", unheard}, "",
		},
		"it died after it had answered": {
			condition(waiting("p", "tenon-scheduler", 3*time.Minute), "Unschedulable", "0/4 nodes"), Seen{Scheduler: Scheduler{Name: "tenon-scheduler", Leases: []Lease{lease("a", 10*time.Minute)}}},
			[]string{"Its scheduler says: 0/4 nodes\nIt waits for scheduler tenon-scheduler, which has no leader: "}, "No scheduler has looked",
		},
		"it runs and is busy": {
			waiting("p", "tenon-scheduler", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "tenon-scheduler", Leases: []Lease{lease("b", 10*time.Minute), lease("a", 2*time.Second)}}},
			[]string{"It waits for scheduler tenon-scheduler, which has a leader: a renewed Lease tenon-system/tenon-scheduler 2s ago.\n", unheard}, "",
		},
		"it runs and has answered": {
			condition(waiting("p", "tenon-scheduler", 3*time.Minute), "Unschedulable", "0/4 nodes"), Seen{Scheduler: Scheduler{Name: "tenon-scheduler", Leases: []Lease{lease("a", 2*time.Second)}}},
			[]string{"Its scheduler says: 0/4 nodes\nIt has no node;"}, "It waits for",
		},
		"it has answered by an event": {
			waiting("p", "mine", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "mine", Spoke: ago(time.Minute)}, Events: []corev1.Event{event}},
			[]string{"Its scheduler says: 0/4 nodes\nIt has no node;"}, "It waits for",
		},
		"it has answered others": {
			waiting("p", "mine", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "mine", Spoke: ago(time.Minute)}},
			[]string{"It waits for scheduler mine, which has no Lease of its name; an event of it is 1m0s old.\n", unheard}, "",
		},
		"nothing may be read": {
			waiting("p", "mine", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "mine", Unread: []string{"its Lease cannot be read (forbidden)"}}, Unread: "forbidden"},
			[]string{"which may run or not: its Lease cannot be read (forbidden).\nNo scheduler has set a condition on it since it was created 3m0s ago. Not looked at: its events (forbidden).\n"}, "",
		},
		"the cluster's own, whose Lease is elsewhere": {
			waiting("p", "", 3*time.Minute), Seen{Scheduler: Scheduler{Name: "default-scheduler"}},
			[]string{"It waits for scheduler default-scheduler, which is not seen to run", unheard}, "",
		},
		"the cluster's own, a moment ago": {waiting("p", "", time.Second), Seen{Scheduler: Scheduler{Name: "default-scheduler"}}, []string{"of its own.\nIt has no node;"}, "It waits for"},
		"a gate": {
			gated(waiting("p", "koord-scheduler", 3*time.Minute)), Seen{},
			[]string{"No scheduler looks at it until its scheduling gates are removed: example.com/quota.\n"}, "It waits for",
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

// TestANewerEventContradictsALease checks a Lease without a leader. A scheduler
// with an event that is newer than the Lease may still run.
func TestANewerEventContradictsALease(t *testing.T) {
	s := Scheduler{Name: "s", Leases: []Lease{lease("", time.Hour)}, Spoke: ago(time.Minute)}
	if state, text := s.State(noon); state != NotKnown || !strings.Contains(text, "an event of it is newer (1m0s)") {
		t.Errorf("%s: %s", state, text)
	}
	if !s.NeedsEvents(noon) || (Scheduler{Leases: []Lease{lease("a", time.Second)}}).NeedsEvents(noon) {
		t.Error("the events are read in vain, or not at all")
	}
}

// TestDoctorNamesTheSchedulersThatDoNotRun checks the lines for doctor and top.
func TestDoctorNamesTheSchedulersThatDoNotRun(t *testing.T) {
	young, ended, leaving := waiting("young", "koord-scheduler", time.Second), waiting("ended", "koord-scheduler", time.Hour), waiting("leaving", "koord-scheduler", time.Hour)
	ended.Status.Phase = corev1.PodFailed
	leaving.DeletionTimestamp = &metav1.Time{Time: noon}
	pods := []corev1.Pod{
		young, ended, leaving, gated(waiting("gated", "koord-scheduler", time.Hour)),
		waiting("db", "koord-scheduler", 3*time.Minute), condition(waiting("web", "koord-scheduler", time.Hour), "Unschedulable", "x"),
		condition(waiting("a", "tenon-scheduler", time.Hour), "Unschedulable", "x"), waiting("own", "", time.Hour), condition(waiting("full", "", time.Hour), "Unschedulable", "x"),
		waiting("busy", "busy", time.Hour), waiting("hint", "hint", time.Hour), waiting("blind", "blind", time.Hour), condition(waiting("said", "blind", time.Hour), "Unschedulable", "x"),
	}
	if got := strings.Join(WaitingFor(pods), " "); got != "blind busy default-scheduler hint koord-scheduler tenon-scheduler" {
		t.Error(got)
	}
	lines := strings.Join(Unattended(pods, []Scheduler{
		{Name: "koord-scheduler"},
		{Name: "tenon-scheduler", Leases: []Lease{lease("", time.Hour)}},
		{Name: "default-scheduler"},
		{Name: "busy", Leases: []Lease{lease("a", time.Second)}},
		{Name: "hint", Spoke: ago(time.Minute)},
		{Name: "blind", Unread: []string{"its Lease cannot be read (forbidden)"}},
	}, noon), "\n")
	const want = `2 pods wait for scheduler koord-scheduler, which is not seen to run: no Lease has its name, and no event comes from it: shop/db, shop/web
1 pod waits for scheduler tenon-scheduler, which has no leader: Lease tenon-system/tenon-scheduler has no holder: shop/a
1 pod waits for scheduler default-scheduler for up to 1h0m without a condition from it, and it is not seen to run: no Lease has its name, and no event comes from it: shop/own
1 pod waits for scheduler blind for up to 1h0m without a condition from it, and it may run or not: its Lease cannot be read (forbidden): shop/blind`
	if lines != want {
		t.Errorf("got\n%s\nwant\n%s", lines, want)
	}
}

func TestTheTimeOfAnEventIsItsLast(t *testing.T) {
	for name, e := range map[string]corev1.Event{
		"old":    {LastTimestamp: metav1.NewTime(noon), EventTime: metav1.NewMicroTime(ago(time.Hour))},
		"new":    {EventTime: metav1.NewMicroTime(noon)},
		"series": {EventTime: metav1.NewMicroTime(ago(time.Hour)), Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(noon)}},
	} {
		if got := TimeOf(&e); !got.Equal(noon) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAPodWithoutASchedulerFindsNoPlace checks fit with schedulers that do not run.
func TestAPodWithoutASchedulerFindsNoPlace(t *testing.T) {
	named := strings.Replace(ownPod, "spec: {", "spec: {schedulerName: koord-scheduler, ", 1)
	for name, x := range map[string]struct {
		text string
		s    Scheduler
		want string
		fits bool
	}{
		"no sign":             {named, Scheduler{Name: "koord-scheduler"}, "shop/p would wait:\n  for scheduler koord-scheduler, which is not seen to run: no Lease has its name", false},
		"no leader":           {named, Scheduler{Name: "koord-scheduler", Leases: []Lease{lease("", time.Hour)}}, "  for scheduler koord-scheduler, which has no leader: ", false},
		"a leader":            {named, Scheduler{Name: "koord-scheduler", Leases: []Lease{lease("a", time.Second)}}, "1 of 1 pod", true},
		"not known":           {named, Scheduler{Name: "koord-scheduler", Unread: []string{"its Lease cannot be read (x)"}}, "Not looked at: whether scheduler koord-scheduler runs: its Lease cannot be read (x).\n", true},
		"the cluster's own":   {ownPod, Scheduler{Name: "default-scheduler"}, "1 of 1 pod", true},
		"its Lease has ended": {ownPod, Scheduler{Name: "default-scheduler", Leases: []Lease{lease("", time.Hour)}}, "  for scheduler default-scheduler, which has no leader: ", false},
	} {
		if text, fits := fit(scene(t), manifests(t, x.text).Wanted, Webhook{}, x.s); fits != x.fits || !strings.Contains(text, x.want) {
			t.Errorf("%s: fits %v; want %q in\n%s", name, fits, x.want, text)
		}
	}
}
