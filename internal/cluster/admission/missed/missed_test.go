package missed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// An apiServer has profiles and pods. A test sets which of its requests fail.
type apiServer struct {
	client.Client
	profiles []configv1alpha1.ClusterColocationProfile
	pods     []corev1.Pod
	unread   map[string]bool // pods whose Get times out
	unlisted map[string]bool // values of the label job whose List times out
}

func (a *apiServer) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch l := list.(type) {
	case *configv1alpha1.ClusterColocationProfileList:
		for i := range a.profiles {
			l.Items = append(l.Items, *a.profiles[i].DeepCopy())
		}
	case *corev1.NamespaceList:
		l.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	case *schedulingv1.PriorityClassList:
	case *metav1.PartialObjectMetadataList:
		o := (&client.ListOptions{}).ApplyOptions(options)
		for job := range a.unlisted {
			if o.LabelSelector.Matches(labels.Set{"job": job}) {
				return apierrors.NewTimeoutError("slow", 1)
			}
		}
		for _, p := range a.pods {
			if o.LabelSelector.Matches(labels.Set(p.Labels)) {
				l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta})
			}
		}
	default:
		return fmt.Errorf("list %T", list)
	}
	return nil
}

func (a *apiServer) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		o.Webhooks = []admissionv1.MutatingWebhook{{}}
		return nil
	case *corev1.Pod:
		if a.unread[key.Name] {
			return apierrors.NewTimeoutError("slow", 1)
		}
		for _, p := range a.pods {
			if p.Name == key.Name {
				*o = p
				return nil
			}
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
}

func (a *apiServer) Status() client.SubResourceWriter { return status{of: a} }

// status writes the status of profiles.
type status struct {
	client.SubResourceWriter
	of *apiServer
}

func (s status) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	for i := range s.of.profiles {
		if p := &s.of.profiles[i]; p.Name == o.GetName() {
			p.Status = o.(*configv1alpha1.ClusterColocationProfile).Status
		}
	}
	return nil
}

func (a *apiServer) add(job string, n int) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", job, i)
		a.pods = append(a.pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"job": job}, CreationTimestamp: metav1.NewTime(noon)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}, Limits: corev1.ResourceList{"cpu": resource.MustParse("2")},
			}}}},
		})
	}
}

func profileOf(job string) configv1alpha1.ClusterColocationProfile {
	return configv1alpha1.ClusterColocationProfile{
		ObjectMeta: metav1.ObjectMeta{Name: job, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec:       configv1alpha1.ClusterColocationProfileSpec{QoSClass: "BE", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": job}}},
	}
}

// condition returns the condition of a profile and its metric. Without a
// metric, it returns −1 in place of the metric.
func (a *apiServer) condition(t *testing.T, f *Finder, job string) string {
	t.Helper()
	text := "absent"
	for i := range a.profiles {
		if c := meta.FindStatusCondition(a.profiles[i].Status.Conditions, Condition); c != nil && a.profiles[i].Name == job {
			text = fmt.Sprintf("%s with %d named", c.Status, strings.Count(c.Message, "default/"))
		}
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(f.Gauge); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	number := -1.0
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Label[0].GetValue() == job {
				number = m.Gauge.GetValue()
			}
		}
	}
	return fmt.Sprintf("%s, metric %v", text, number)
}

func (a *apiServer) finder() *Finder {
	return &Finder{
		Cache: a, Live: a, Client: a, Events: events.NewFakeRecorder(2000), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }, Gauge: NewGauge(),
		said: map[types.UID]bool{}, wrote: map[string]string{}, number: map[string]int{},
	}
}

// TestAFailedSearchNeverSaysThatAllIsWell makes parts of a search fail. An
// earlier search has found three pods of one profile and two of another.
func TestAFailedSearchNeverSaysThatAllIsWell(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*apiServer, *Finder) *Finder
		fails  bool
		want   string // the wanted condition of the profile spark
	}{
		"nothing fails": {func(_ *apiServer, f *Finder) *Finder { return f }, false, "False with 3 named, metric 3"},
		"no pod can be read": {func(a *apiServer, f *Finder) *Finder {
			a.unread = map[string]bool{"spark-0": true, "spark-1": true, "spark-2": true}
			return f
		}, true, "False with 3 named, metric 3"},
		"one pod cannot be read": {func(a *apiServer, f *Finder) *Finder {
			a.unread = map[string]bool{"spark-1": true}
			return f
		}, true, "False with 3 named, metric 3"},
		"the pods cannot be listed": {func(a *apiServer, f *Finder) *Finder {
			a.unlisted = map[string]bool{"spark": true}
			return f
		}, true, "False with 3 named, metric 3"},
		"one is unread, two are new": {func(a *apiServer, f *Finder) *Finder {
			a.add("spark", 5)
			a.pods, a.unread = a.pods[3:], map[string]bool{"spark-1": true}
			return f
		}, true, "False with 4 named, metric 4"},
		"a new leader reads a part": {func(a *apiServer, _ *Finder) *Finder {
			a.unread = map[string]bool{"spark-1": true}
			return a.finder()
		}, true, "False with 3 named, metric -1"},
		"a profile is gone": {func(a *apiServer, f *Finder) *Finder {
			a.profiles = a.profiles[1:]
			return f
		}, false, "absent, metric -1"},
	} {
		a := &apiServer{profiles: []configv1alpha1.ClusterColocationProfile{profileOf("spark"), profileOf("job")}}
		a.add("spark", 3)
		a.add("job", 2)
		f := a.finder()
		if err := f.search(t.Context()); err != nil {
			t.Fatal(err)
		}
		f = x.change(a, f)
		if err := f.search(t.Context()); (err != nil) != x.fails {
			t.Errorf("%s: %v", name, err)
		}
		for job, want := range map[string]string{"spark": x.want, "job": "False with 2 named, metric 2"} {
			if got := a.condition(t, f, job); got != want {
				t.Errorf("%s: %s says %q, want %q", name, job, got, want)
			}
		}
	}
}

// TestUnreadPodsDoNotCountAsClean checks a profile all of whose pods are beyond
// the maximum number that one search reads.
func TestUnreadPodsDoNotCountAsClean(t *testing.T) {
	a := &apiServer{profiles: []configv1alpha1.ClusterColocationProfile{profileOf("spark"), profileOf("job")}}
	a.add("job", 2)
	f := a.finder()
	first := f.search(t.Context())
	a.add("spark", maxRead)
	if err := errors.Join(first, f.search(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := a.condition(t, f, "job"); got != "False with 2 named, metric 2" {
		t.Errorf("unread pods: %s", got)
	}
	a.pods = nil
	if err := f.search(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"spark", "job"} {
		if got := a.condition(t, f, job); got != "True with 0 named, metric 0" {
			t.Errorf("without pods, %s says %s", job, got)
		}
	}
}
