// Package missed finds running pods to which the colocation profiles of the
// cluster were not applied, because the API server could not reach the webhooks
// when it created the pods. Such a pod is a service, although a profile should
// have made it best-effort, and its author got no message. The package reports
// the pod in the status of the profile, as an event of the pod, and as a
// metric. It does not change the pod.
package missed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
)

const (
	// Every is the usual time between two searches.
	Every = 5 * time.Minute
	// Condition is the type of the condition in the status of a profile. While
	// the profile has missed pods, the condition is False with ReasonMissed.
	// Otherwise it is True.
	Condition = "Applied"
	// ReasonMissed is the reason of the condition, and of the event of a pod.
	ReasonMissed = "PodsMissed"

	reasonNone = "NoPodMissed"
	// maxNamed is the maximum number of pods that a message names.
	maxNamed = 5
	// maxRead is the maximum number of pods that one search reads completely.
	// With more candidates, the status of a profile may lack some missed pods.
	maxRead = 500
)

// A Finder searches for missed pods. For each profile that may change a class,
// a search lists the metadata of pods that match the profile but lack its
// class. While the webhooks work, there are few such pods. The answer comes
// from the cache of the API server (resource version 0), so that the search
// does not read etcd.
type Finder struct {
	// Cache has the profiles, namespaces, priority classes and the webhook
	// configuration. Live reads pods from the API server itself.
	Cache, Live client.Reader
	Client      client.Client
	Events      events.EventRecorder
	// Hooks is the name of a MutatingWebhookConfiguration. A pod counts as missed
	// only if one of its webhooks applies to the pod.
	Hooks string
	// SchedulerNames maps the name of a scheduler to the name with which the
	// webhook replaces it.
	SchedulerNames map[string]string
	Every          time.Duration
	Log            *slog.Logger
	Now            func() time.Time
	// Gauge is the number of missed pods by profile.
	Gauge *prometheus.GaugeVec

	said   map[types.UID]bool  // pods with an event
	wrote  map[string]string   // by profile: the message in its status
	number map[string]int      // by profile: the last reported number of missed pods
	counts map[string][]string // by profile: the missed pods that the present search has found
}

// NewGauge returns the metric of a Finder.
func NewGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tenon_manager_missed_pods", Help: "Running pods that were created without a profile that matches them and would change their class; known to the replica that leads.",
	}, []string{"profile"})
}

// NeedLeaderElection says that only the leader searches.
func (f *Finder) NeedLeaderElection() bool { return true }

// Start searches at once, and then once per interval, until ctx ends. So a
// manager that becomes the leader after an outage searches at once.
func (f *Finder) Start(ctx context.Context) error {
	f.said, f.wrote, f.number = map[types.UID]bool{}, map[string]string{}, map[string]int{}
	for {
		if err := f.search(ctx); err != nil && ctx.Err() == nil {
			f.Log.Warn("cannot search for pods that profiles missed; trying again", "after", f.Every, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.Every):
		}
	}
}

// A scope contains the objects from the cache that one search needs.
type scope struct {
	profiles   []configv1alpha1.ClusterColocationProfile
	namespaces map[string]*corev1.Namespace
	classes    map[string]schedulingv1.PriorityClass
	webhooks   []admissionv1.MutatingWebhook
}

func (f *Finder) scope(ctx context.Context) (scope, error) {
	s := scope{namespaces: map[string]*corev1.Namespace{}, classes: map[string]schedulingv1.PriorityClass{}}
	var profiles configv1alpha1.ClusterColocationProfileList
	if err := f.Cache.List(ctx, &profiles); err != nil {
		return s, fmt.Errorf("list the profiles: %w", err)
	}
	s.profiles = profiles.Items
	var hooks admissionv1.MutatingWebhookConfiguration
	if err := f.Cache.Get(ctx, client.ObjectKey{Name: f.Hooks}, &hooks); client.IgnoreNotFound(err) != nil {
		return s, fmt.Errorf("read the webhooks: %w", err)
	}
	s.webhooks = hooks.Webhooks
	var namespaces corev1.NamespaceList
	if err := f.Cache.List(ctx, &namespaces); err != nil {
		return s, fmt.Errorf("list the namespaces: %w", err)
	}
	for i := range namespaces.Items {
		s.namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	var classes schedulingv1.PriorityClassList
	if err := f.Cache.List(ctx, &classes); err != nil {
		return s, fmt.Errorf("list the priority classes: %w", err)
	}
	for _, c := range classes.Items {
		s.classes[c.Name] = c
	}
	return s, nil
}

// search finds the missed pods and reports them by profile. If the pods of a
// profile cannot be listed, the last report of the profile stays. If some of
// its pods were not read, the reported number is a lower bound.
func (f *Finder) search(ctx context.Context) error {
	s, err := f.scope(ctx)
	if err != nil {
		return err
	}
	f.counts = map[string][]string{}
	judged, read := map[types.UID]bool{}, 0 // judged[uid] is false if the pod was not read
	failed, partial := map[string]bool{}, map[string]bool{}
	var errs []error
	for _, p := range s.profiles {
		if !admission.NamesClass(p) {
			continue
		}
		candidates, err := f.candidates(ctx, s, p)
		if err != nil {
			failed[p.Name] = true
			errs = append(errs, fmt.Errorf("list the pods of profile %s: %w", p.Name, err))
			continue
		}
		for _, c := range candidates {
			if _, seen := judged[c.UID]; !seen {
				judged[c.UID] = false
				if read++; read <= maxRead {
					err := f.judge(ctx, s, c)
					judged[c.UID] = err == nil
					errs = append(errs, err)
				}
			}
			partial[p.Name] = partial[p.Name] || !judged[c.UID]
		}
	}
	if read > maxRead {
		f.Log.Warn("more pods may have been missed than one search reads", "read", maxRead, "unread", read-maxRead)
	}
	err = errors.Join(errs...)
	for uid := range f.said {
		if _, seen := judged[uid]; !seen && err == nil {
			delete(f.said, uid)
		}
	}
	f.forget(s.profiles)
	for i := range s.profiles {
		if p := &s.profiles[i]; !failed[p.Name] {
			err = errors.Join(err, f.report(ctx, p, f.counts[p.Name], partial[p.Name]))
		}
	}
	return err
}

// candidates returns the metadata of the pods that a profile may have missed.
// The profile selects such a pod by its labels, but the pod does not have the
// profile's class. The pod is newer than the last change of the profile. It
// lacks the webhook's annotation, or has that of another pod, although the
// webhook applies to it.
func (f *Finder) candidates(ctx context.Context, s scope, p configv1alpha1.ClusterColocationProfile) ([]metav1.PartialObjectMetadata, error) {
	selector, err := selectorOf(p)
	if err != nil {
		return nil, nil // the webhook does not apply such a profile; its author got the error
	}
	inNamespace, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector)
	if err != nil {
		return nil, nil
	}
	if p.Spec.NamespaceSelector == nil {
		inNamespace = labels.Everything()
	}
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	running := fields.AndSelectors(fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
	options := &client.ListOptions{LabelSelector: selector, FieldSelector: running, Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := f.Live.List(ctx, &list, options); err != nil {
		return nil, err
	}
	changed := Changed(&p)
	var all []metav1.PartialObjectMetadata
	for _, o := range list.Items {
		decided := admission.Decided(o.Annotations, o.CreationTimestamp.Time)
		namespace := s.namespaces[o.Namespace]
		if decided || o.DeletionTimestamp != nil || !o.CreationTimestamp.After(changed) || namespace == nil ||
			!inNamespace.Matches(labels.Set(namespace.Labels)) || !s.covers(namespace, o.Labels) {
			continue
		}
		all = append(all, o)
	}
	return all, nil
}

// selectorOf returns the selector of a profile. It excludes pods that have the
// profile's class already.
func selectorOf(p configv1alpha1.ClusterColocationProfile) (labels.Selector, error) {
	selector := labels.Everything()
	if p.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(p.Spec.Selector); err != nil {
			return nil, err
		}
	}
	if p.Spec.QoSClass == "" {
		return selector, nil
	}
	other, err := labels.NewRequirement(kube.LabelQOSClass, selection.NotIn, []string{p.Spec.QoSClass})
	if err != nil {
		return nil, err
	}
	return selector.Add(*other), nil
}

// covers reports whether the API server calls one of the webhooks for a pod
// with these labels in this namespace. The selectors of the webhooks exclude
// some namespaces, for example those that the Helm chart lists.
func (s scope) covers(namespace *corev1.Namespace, podLabels map[string]string) bool {
	return slices.ContainsFunc(s.webhooks, func(w admissionv1.MutatingWebhook) bool {
		return len(w.MatchConditions) == 0 && matches(w.NamespaceSelector, namespace.Labels) && matches(w.ObjectSelector, podLabels)
	})
}

func matches(s *metav1.LabelSelector, of map[string]string) bool {
	if s == nil {
		return true // the default of the API
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

// Changed returns the time of the last change of a profile's spec or metadata,
// by the clock of the API server, in whole seconds. Changes of the status do
// not count. The time comes from managedFields, which Slim keeps in the cache.
func Changed(p *configv1alpha1.ClusterColocationProfile) time.Time {
	last := p.CreationTimestamp.Time
	for _, m := range p.ManagedFields {
		if m.Subresource == "" && m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}

// Slim drops the parts of a profile's managedFields that Changed does not read.
// It is a transform function of a cache.
func Slim(o any) (any, error) {
	if p, is := o.(*configv1alpha1.ClusterColocationProfile); is {
		for i, m := range p.ManagedFields {
			p.ManagedFields[i] = metav1.ManagedFieldsEntry{Time: m.Time, Subresource: m.Subresource}
		}
	}
	return o, nil
}

// judge reads one pod, and records it if a profile missed it.
func (f *Finder) judge(ctx context.Context, s scope, o metav1.PartialObjectMetadata) error {
	var pod corev1.Pod
	switch err := f.Live.Get(ctx, client.ObjectKeyFromObject(&o), &pod); {
	case apierrors.IsNotFound(err) || err == nil && pod.UID != o.UID:
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s/%s: %w", o.Namespace, o.Name, err)
	}
	r := admission.Request{Pod: &pod, Namespace: s.namespaces[pod.Namespace], PriorityClasses: s.classes, SchedulerNames: f.SchedulerNames}
	for _, p := range s.profiles {
		if pod.CreationTimestamp.After(Changed(&p)) {
			r.Profiles = append(r.Profiles, p)
		}
	}
	m, missed := admission.ApplyMissed(r)
	if !missed {
		return nil
	}
	for _, name := range m.Profiles {
		f.counts[name] = append(f.counts[name], pod.Namespace+"/"+pod.Name)
	}
	if !f.said[pod.UID] {
		f.said[pod.UID] = true
		f.Events.Eventf(&pod, nil, corev1.EventTypeWarning, ReasonMissed, "Admit",
			"the pod runs as %s: ClusterColocationProfile %s, which matches it, would have made it %s, but Tenon's webhook was not reached when the pod was created, or its labels are newer; create it again",
			m.Was, strings.Join(m.Profiles, ", "), m.Would)
		f.Log.Warn("a profile missed a pod", "namespace", pod.Namespace, "pod", pod.Name, "class", m.Was, "would be", m.Would, "profiles", m.Profiles)
	}
	return nil
}
