// Package admission decides how the webhooks answer when a user writes a pod, a
// profile or a ConfigMap. A webhook may change the object. It may also reject
// the object, and then advises what to write instead. All functions are pure.
// The caller reads all inputs and draws the random numbers.
package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// A Request is a pod that a user creates, with all other inputs of the
// decision.
type Request struct {
	// Pod is the pod as the user sent it. No function changes it.
	Pod *corev1.Pod
	// Namespace is the namespace of the pod. It is nil if it could not be read.
	Namespace *corev1.Namespace
	// Profiles are all profiles of the cluster, in any order.
	Profiles []configv1alpha1.ClusterColocationProfile
	// PriorityClasses are the priority classes of the cluster by name.
	PriorityClasses map[string]schedulingv1.PriorityClass
	// Ranges are the LimitRanges of the namespace.
	Ranges Ranges
	// ColocationOff means that colocation-config is disabled for the whole
	// cluster. Then no node has batch resources.
	ColocationOff bool
	// Gate reports whether pods that use batch resources get a scheduling gate until a node
	// has room for them. It is called for such a pod only. nil: they get none.
	Gate func() bool
	// User is the name of the user who creates the pod.
	User string
	// Scheduler is the name of the scheduler that chooses CPUs. It is empty if
	// there is none.
	Scheduler string
	// SchedulerNames maps the name of a scheduler to the name that replaces it
	// in pods.
	SchedulerNames map[string]string
	// Seal returns a code for a text that only the replicas of the manager can
	// compute. It seals the annotation AnnotationProfiles at the time Now. If Seal
	// is nil, the annotation counts without a seal.
	Seal func(text string) string
	Now  time.Time
	// Draw returns a random number of at least 0 and below 1. The webhook calls
	// it once for each profile that matches the pod and has a probability. If
	// Draw is nil, the number is 0.
	Draw func() float64
}

// A Verdict is the decision about an object.
type Verdict struct {
	// Refusals are the reasons to reject the object. If there are none, the object
	// is admitted.
	Refusals []Refusal
	// Warnings are shown to the author of the object. They do not reject it.
	Warnings []Warning
}

// A Refusal is one reason to reject an object.
type Refusal struct {
	// Field is the path of the field, such as
	// "spec.containers[web].resources.limits[cpu]".
	Field string
	// Problem quotes the value and says what to write instead.
	Problem string
}

// String prints a refusal: `metadata.labels[koordinator.sh/qosClass]: "best": want one of …`.
func (r Refusal) String() string { return r.Field + ": " + r.Problem }

// A WarningCode says what a warning is about.
type WarningCode string

// The values of WarningCode.
const (
	Removed       WarningCode = "removed"        // the webhook removed a value that only Tenon writes
	Replaced      WarningCode = "replaced"       // the webhook replaced a value
	Ignored       WarningCode = "ignored"        // a value has no effect
	ProfileFaulty WarningCode = "profile-faulty" // a profile is not applied, because it has a fault
	Pending       WarningCode = "pending"        // the pod waits for a node or a scheduler
	Uncounted     WarningCode = "uncounted"      // the scheduler counts other amounts than the pod uses
	Unlimited     WarningCode = "unlimited"      // no limit of its own bounds the pod or a container
	TooSmall      WarningCode = "too-small"      // a limit is too small to work with
	GivenUp       WarningCode = "given-up"       // a pod with a node gives up its CPUs
	Refusing      WarningCode = "refusing"       // a profile makes pods that are refused
	NewPods       WarningCode = "new-pods"       // a label of a namespace counts for new pods only
	Undecided     WarningCode = "undecided"      // only the webhook can tell: a profile acts on a part of the pods of a template, or the labels of its namespace are not known
)

// A Warning is a remark about an object that is admitted. Field is the path of
// the field, and empty if the warning is about the whole object.
type Warning struct {
	Code           WarningCode
	Field, Problem string
}

// String prints a warning as the author of the object reads it.
func (w Warning) String() string {
	if w.Field == "" {
		return w.Problem
	}
	return w.Field + ": " + w.Problem
}

// Allowed reports whether the object is admitted.
func (v Verdict) Allowed() bool { return len(v.Refusals) == 0 }

// maxRefusals is the maximum number of refusals that a message lists.
const maxRefusals = 20

// Message joins all refusals into one sentence. It returns "" if there are
// none.
func (v Verdict) Message() string {
	var all []string
	for i, r := range v.Refusals {
		if i == maxRefusals {
			all = append(all, fmt.Sprintf("and %d more", len(v.Refusals)-maxRefusals))
			break
		}
		all = append(all, r.String())
	}
	return strings.Join(all, "; ")
}

func (v *Verdict) refuse(field, problem string, a ...any) {
	v.Refusals = append(v.Refusals, Refusal{field, fmt.Sprintf(problem, a...)})
}

func (v *Verdict) warn(code WarningCode, field, problem string, a ...any) {
	v.add(Warning{code, field, fmt.Sprintf(problem, a...)})
}

func (v *Verdict) add(w Warning) {
	if !slices.Contains(v.Warnings, w) {
		v.Warnings = append(v.Warnings, w)
	}
}

// Texts returns the warnings for the author of the object.
func (v Verdict) Texts() []string {
	all := make([]string, 0, len(v.Warnings))
	for _, w := range v.Warnings {
		all = append(all, w.String())
	}
	return all
}

// label returns the path of a label for messages, and annotation the path of an
// annotation.
func label(key string) string      { return "metadata.labels[" + key + "]" }
func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// quoteText quotes a text of a user for a message, shortened to 64 characters.
func quoteText(s string) string { return fmt.Sprintf("%.64q", s) }

// A place is one container of a pod, with the path of its field.
type place struct {
	*corev1.Container
	field string
}

// places returns the containers of a pod: init containers, sidecars and main
// containers.
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

// lists returns two lists of amounts: the requests and the limits of a container.
func (c place) lists() []list {
	return []list{{"requests", c.Resources.Requests, c.field}, {"limits", c.Resources.Limits, c.field}}
}

// amountField returns the path of an amount in a list of the container.
func (c place) amountField(list string, resource corev1.ResourceName) string {
	return fmt.Sprintf("%s.%s[%s]", c.field, list, resource)
}

type list struct {
	name string
	of   corev1.ResourceList
	at   string
}

func (l list) field(resource corev1.ResourceName) string {
	return fmt.Sprintf("%s.%s[%.64s]", l.at, l.name, resource)
}

// names returns the resources of a list in alphabetical order.
func (l list) names() []corev1.ResourceName {
	var all []corev1.ResourceName
	for n := range l.of {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
