// Package admission is what the webhooks say to pods, profiles and ConfigMaps
// as they are written: what is changed, what is refused, and what to write
// instead. Everything here is a pure function over the values of the Kubernetes
// API. The caller looks up what a decision depends on, and draws the lots.
package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// A Request is a pod that is to be created, and what a decision about it
// depends on.
type Request struct {
	// Pod is as it was sent. It is not changed.
	Pod *corev1.Pod
	// Namespace is the pod's; nil: it could not be looked up.
	Namespace *corev1.Namespace
	// Profiles are all of the cluster, in any order.
	Profiles []configv1alpha1.ClusterColocationProfile
	// PriorityClasses are those of the cluster by name.
	PriorityClasses map[string]schedulingv1.PriorityClass
	// Draw returns a random number of at least 0 and below 1. It is asked once
	// for each profile that matches and has a probability; nil stands for 0.
	Draw func() float64
}

// A Verdict is the decision on an object.
type Verdict struct {
	// Refusals are the reasons to reject the object. If there are none, it is
	// admitted.
	Refusals []Refusal
	// Warnings are shown to the author of the object. They do not reject it.
	Warnings []string
}

// A Refusal is one reason against an object.
type Refusal struct {
	// Field is the path of the field:
	// "spec.containers[web].resources.limits[cpu]".
	Field string
	// Problem names the value, and what to write instead.
	Problem string
}

// String prints `metadata.labels[koordinator.sh/qosClass]: "best": want one of …`.
func (r Refusal) String() string { return r.Field + ": " + r.Problem }

// Allowed reports whether nothing stands against the object.
func (v Verdict) Allowed() bool { return len(v.Refusals) == 0 }

// most is the maximum number of refusals in a message.
const most = 20

// Message is all refusals in one sentence; empty if there are none.
func (v Verdict) Message() string {
	var all []string
	for i, r := range v.Refusals {
		if i == most {
			all = append(all, fmt.Sprintf("and %d more", len(v.Refusals)-most))
			break
		}
		all = append(all, r.String())
	}
	return strings.Join(all, "; ")
}

func (v *Verdict) refuse(field, problem string, a ...any) {
	v.Refusals = append(v.Refusals, Refusal{field, fmt.Sprintf(problem, a...)})
}

func (v *Verdict) warn(problem string, a ...any) {
	if w := fmt.Sprintf(problem, a...); !slices.Contains(v.Warnings, w) {
		v.Warnings = append(v.Warnings, w)
	}
}

// label and annotation return the name of a field of the metadata.
func label(key string) string      { return "metadata.labels[" + key + "]" }
func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// shown is a text of the user's as a message shows it.
func shown(s string) string { return fmt.Sprintf("%.64q", s) }

// A place is one container of a pod, and where it stands.
type place struct {
	*corev1.Container
	field string
}

// places returns the containers of a pod that have resources: those of the
// app, sidecars and all that run before them.
func places(p *corev1.Pod) []place {
	var all []place
	for i := range p.Spec.InitContainers {
		all = append(all, placed(&p.Spec.InitContainers[i], "spec.initContainers", i))
	}
	for i := range p.Spec.Containers {
		all = append(all, placed(&p.Spec.Containers[i], "spec.containers", i))
	}
	return all
}

func placed(c *corev1.Container, list string, i int) place {
	name := c.Name
	if name == "" || len(name) > 63 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		name = fmt.Sprint(i)
	}
	return place{c, list + "[" + name + "].resources"}
}

// lists returns the two lists of a container with their names.
func (c place) lists() []list {
	return []list{{"requests", c.Resources.Requests, c.field}, {"limits", c.Resources.Limits, c.field}}
}

type list struct {
	name string
	of   corev1.ResourceList
	at   string
}

func (l list) field(resource corev1.ResourceName) string {
	return fmt.Sprintf("%s.%s[%.64s]", l.at, l.name, resource)
}

// names returns the resources of a list in order.
func (l list) names() []corev1.ResourceName {
	var all []corev1.ResourceName
	for n := range l.of {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
