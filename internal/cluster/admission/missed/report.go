package missed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// forget removes the reports about profiles that no longer exist.
func (f *Finder) forget(profiles []configv1alpha1.ClusterColocationProfile) {
	for name := range f.number {
		if !slices.ContainsFunc(profiles, func(p configv1alpha1.ClusterColocationProfile) bool { return p.Name == name }) {
			f.Gauge.DeleteLabelValues(name)
			delete(f.number, name)
			delete(f.wrote, name)
		}
	}
}

// report sets the metric of a profile, and writes the profile's condition if it
// has changed. A CRD without conditions, such as Koordinator's, drops the
// condition. A partial search may lack pods, so its report never has fewer pods
// than the last one, and is never empty. It leaves a condition of an earlier
// process, because the number of pods in it is not known.
func (f *Finder) report(ctx context.Context, p *configv1alpha1.ClusterColocationProfile, pods []string, partial bool) error {
	number, known := f.number[p.Name]
	present := meta.FindStatusCondition(p.Status.Conditions, Condition)
	unnumbered := !known && present != nil && present.Status == metav1.ConditionFalse
	if partial && (len(pods) == 0 || len(pods) < number || unnumbered) {
		return nil
	}
	f.Gauge.WithLabelValues(p.Name).Set(float64(len(pods)))
	f.number[p.Name] = len(pods)
	c := metav1.Condition{Type: Condition, Status: metav1.ConditionTrue, Reason: reasonNone, Message: "no running pod is known that was created without this profile", ObservedGeneration: p.Generation}
	if len(pods) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonMissed, message(pods)
	}
	switch {
	case present == nil && len(pods) == 0 && f.wrote[p.Name] == "":
		return nil
	case present != nil && present.Status == c.Status && present.Message == c.Message, present == nil && f.wrote[p.Name] == c.Message:
		return nil
	}
	c.LastTransitionTime = metav1.NewTime(f.Now())
	next := p.DeepCopy()
	meta.SetStatusCondition(&next.Status.Conditions, c)
	if err := f.Client.Status().Patch(ctx, next, client.MergeFrom(p)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of profile %s: %w", p.Name, err)
	}
	f.wrote[p.Name] = c.Message
	return nil
}

// message returns the text of a condition, which names the missed pods.
func message(pods []string) string {
	slices.Sort(pods)
	named, more := pods, ""
	if len(pods) > maxNamed {
		named, more = pods[:maxNamed], fmt.Sprintf(" and %d more", len(pods)-maxNamed)
	}
	return fmt.Sprintf("pods that match run without it, because the webhook was not reached when they were created, or because their labels are newer: %s%s; create them again", strings.Join(named, ", "), more)
}
