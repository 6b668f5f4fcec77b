package schedulers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

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

// TestWhatCannotBeReadIsNamed checks schedulers whose Leases may not be listed. A
// scheduler that is known to run, or not to run, needs no such text.
func TestWhatCannotBeReadIsNamed(t *testing.T) {
	unread := []string{"you may not list Leases"}
	s := Scheduler{Name: "s", Unread: unread, Spoke: ago(time.Minute)}
	if state, text := s.State(noon); state != NotKnown || text != "may run or not: you may not list Leases; an event of it is 1m0s old" {
		t.Errorf("%s: %s", state, text)
	}
	for want, s := range map[string]Scheduler{
		"you may not list Leases": s,
		"":                        {Name: "s", Spoke: ago(time.Minute)},
	} {
		if got := s.Unknown(noon); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Scheduler{Leases: []Lease{lease("a", time.Second)}, Unread: unread}).Unknown(noon); got != "" {
		t.Error(got)
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
