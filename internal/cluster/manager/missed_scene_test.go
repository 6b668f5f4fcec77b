package manager

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission/missed"
)

// TestPodsThatAProfileMissedAreReported creates pods while no manager runs, so
// that the API server admits them without their profiles. One of the profiles
// would change the class of its pod. The next manager must report this pod in
// the status of the profile, as an event of the pod, and as a metric.
func TestPodsThatAProfileMissedAreReported(t *testing.T) {
	s := newScene(t)
	often := func(o *Options) { s.webhooks(o); o.searches = 50 * time.Millisecond }
	spark := func(name string) *corev1.Pod {
		p := s.pod("", listOf("cpu", "1", "memory", "1Gi"))
		p.GenerateName, p.Name, p.Labels = "", s.name+"-"+name, map[string]string{"job": s.name}
		return p
	}
	s.must(s.client.Create(s.ctx, spark("older"))) // profiles act at creation only: it is not missed
	nextSecond := func() { time.Sleep(1100 * time.Millisecond) }
	nextSecond() // the times of the API have whole seconds
	profile := &configv1alpha1.ClusterColocationProfile{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: configv1alpha1.ClusterColocationProfileSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": s.name}}, QoSClass: "BE",
	}}
	s.must(s.client.Create(s.ctx, profile))
	t.Cleanup(func() { s.must(s.client.DeleteAllOf(s.ctx, &configv1alpha1.ClusterColocationProfile{})) })

	first := s.start(often)
	s.awaitTrust()
	s.waitUntil("the profile holds", now, func() bool {
		p := spark("seen")
		s.must(s.client.Create(s.ctx, p, client.DryRunAll))
		return p.Labels["koordinator.sh/qosClass"] == "BE"
	})
	nextSecond()
	s.must(s.client.Create(s.ctx, spark("seen")))
	first.end()

	elsewhere := spark("not-covered")
	elsewhere.Namespace = s.name // the webhooks exclude the namespace of the manager
	idle := spark("best-effort")
	idle.Spec.Containers[0].Resources = corev1.ResourceRequirements{} // BE with or without the profile
	s.must(s.client.Create(s.ctx, spark("missed")), s.client.Create(s.ctx, elsewhere), s.client.Create(s.ctx, idle))

	r := s.start(often)
	condition := func() metav1.Condition {
		s.must(s.client.Get(s.ctx, client.ObjectKeyFromObject(profile), profile))
		if c := meta.FindStatusCondition(profile.Status.Conditions, missed.Condition); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	s.waitUntil("the profile says which pod it missed", soon, func() bool { return condition().Status == metav1.ConditionFalse })
	if c := condition(); c.Reason != missed.ReasonMissed || !strings.Contains(c.Message, " default/"+s.name+"-missed; create") {
		t.Errorf("the condition is %+v, want the pod %s-missed alone", c, s.name)
	}
	s.waitUntil("an event of the pod says so", soon, func() bool {
		var list eventsv1.EventList
		s.must(s.client.List(s.ctx, &list, client.InNamespace("default")))
		for _, e := range list.Items {
			if e.Reason == missed.ReasonMissed && e.Regarding.Name == s.name+"-missed" && strings.Contains(e.Note, "runs as LS") {
				return true
			}
		}
		return false
	})
	if got := missedPods(t, r, s.name); got != 1 {
		t.Errorf("the metric has %v pods", got)
	}
	s.must(s.client.Delete(s.ctx, spark("missed"), client.GracePeriodSeconds(0)))
	s.waitUntil("the profile is well again", soon, func() bool { return condition().Status == metav1.ConditionTrue && missedPods(t, r, s.name) == 0 })
	if n := r.log.count("a profile missed a pod"); n != 1 {
		t.Errorf("the log names missed pods %d times", n)
	}
}

// missedPods returns how many pods a profile missed, according to the metric.
func missedPods(t *testing.T, r *replica, profile string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "tenon_manager_missed_pods" && m.Label[0].GetValue() == profile {
				return m.Gauge.GetValue()
			}
		}
	}
	return -1
}
