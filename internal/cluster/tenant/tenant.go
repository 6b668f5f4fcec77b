// Package tenant decides what the pods of a namespace may ask for. An
// administrator says so by labels of the namespace. A user who may only edit the
// objects in a namespace cannot change these labels. All functions are pure.
package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/config/spelling"
	"tenon.sh/tenon/internal/model/node"
)

// LabelPrefix begins the labels of a namespace by which an administrator allows
// or forbids something to its pods: "allow.tenon.sh/own-cpus: false". The rest
// of the label is a Right. The value is true or false.
const LabelPrefix = "allow.tenon.sh/"

// A Right is something for which the pods of a namespace may ask: a class, a
// priority class, or one of the constants below.
type Right string

const (
	// OwnCPUs is the right to CPUs on which no other service runs.
	OwnCPUs Right = "own-cpus"
	// Objectives is the right to an objective (kube.AnnotationObjective).
	Objectives Right = "objectives"
	// Overrides is the right to annotations and labels that change, for one pod,
	// the settings of its class or the order of evictions.
	Overrides Right = "overrides"
	// BatchAboveRequests is the right of best-effort work to use more than it
	// requests: limits above the requests, or no batch resources at all.
	BatchAboveRequests Right = "batch-above-requests"
	// Ignore is the right to be left alone (kube.LabelIgnore).
	Ignore Right = "ignore"
)

// System is the right to class SYSTEM. It and Ignore are the only rights that the
// pods of a namespace do not have by default, because such a pod runs on the own
// CPUs of other pods, and nothing bounds it.
const System = Right(node.System)

// All lists the rights.
func All() []Right {
	var all []Right
	for _, c := range node.Classes {
		all = append(all, Right(c))
	}
	for _, c := range kube.PriorityClasses {
		all = append(all, Right(c))
	}
	return append(all, OwnCPUs, Objectives, Overrides, BatchAboveRequests, Ignore)
}

// A Namespace has the name and the labels of a namespace, which decide about the
// rights of its pods.
type Namespace struct {
	Name string
	// Labels are the labels of the namespace.
	Labels map[string]string
	// Home is the namespace of Tenon itself. Its pods have all rights by default,
	// as those of kube-system have.
	Home string
	// Limits say which objectives are too short for pods of the cluster.
	Limits config.PodObjectives
}

// Allows reports whether the pods of the namespace may ask for something. A
// value that is neither true nor false forbids it, because an administrator has
// probably meant to. Where the administrator has all new pods left alone, each pod
// may say so.
func (n Namespace) Allows(r Right) bool {
	if r == Ignore && kube.IsIgnoredNamespace(n.Labels) {
		return true
	}
	if value, said := n.Labels[LabelPrefix+string(r)]; said {
		return value == "true"
	}
	return r != System && r != Ignore || n.Name == kube.SystemNamespace || n.Name == n.Home
}

// Granted reports whether an administrator has said that the pods of the namespace may ask
// for something, beyond what every namespace may.
func (n Namespace) Granted(r Right) bool {
	return n.Labels[LabelPrefix+string(r)] == "true" || n.Name == kube.SystemNamespace || n.Name == n.Home
}

// Refuse returns the faults of a pod that asks for something that its namespace
// does not allow. If the pod exists already, old is the pod as it was. Then only
// what the change adds counts, because the pod may be older than the labels.
func (n Namespace) Refuse(old, p *corev1.Pod) []config.Fault {
	var had []ask
	if old != nil {
		had = asksOf(old)
	}
	var faults []config.Fault
	for _, a := range asksOf(p) {
		if n.Allows(a.right) || slices.ContainsFunc(had, a.isIn) {
			continue
		}
		faults = append(faults, config.Fault{Field: a.field, Problem: fmt.Sprintf("namespace %.64q may not have %s: %s", n.Name, a.what, n.remedy(a))})
	}
	return append(faults, n.tooStrict(old, p)...)
}

// tooStrict returns the faults of an objective that is shorter than the administrator
// allows, unless the pod had it before.
func (n Namespace) tooStrict(old, p *corev1.Pod) (faults []config.Fault) {
	if old != nil && old.Annotations[kube.AnnotationObjective] == p.Annotations[kube.AnnotationObjective] {
		return nil
	}
	o, said, _ := kube.ObjectiveOf(p, kube.ClassWithDefault(p))
	if !said {
		return nil
	}
	for _, f := range n.Limits.TooStrict(o) {
		faults = append(faults, config.Fault{Field: annotation(kube.AnnotationObjective) + "." + f.Field, Problem: f.Problem})
	}
	return faults
}

// remedy says what to write instead, and how an administrator can allow a.
func (n Namespace) remedy(a ask) string {
	label := LabelPrefix + string(a.right)
	if value, said := n.Labels[label]; said {
		return fmt.Sprintf("%s, or ask an administrator, who forbids it by the label %s: %.64q of the namespace", a.instead, label, value)
	}
	return fmt.Sprintf(`%s, or ask an administrator for the label %s: "true" of the namespace`, a.instead, label)
}

// CheckLabels returns the faults of the labels of a namespace that begin with
// LabelPrefix, and of kube.LabelIgnore. old has the labels of the namespace as it was; labels that stay
// are not checked again.
func CheckLabels(old, now map[string]string) []config.Fault {
	var names []string
	for _, r := range All() {
		names = append(names, string(r))
	}
	var faults []config.Fault
	for _, key := range slices.Sorted(maps.Keys(now)) {
		name, ours := strings.CutPrefix(key, LabelPrefix)
		value := now[key]
		if was, had := old[key]; !ours && key != kube.LabelIgnore || had && was == value {
			continue
		}
		field := "metadata.labels[" + key + "]"
		switch {
		case ours && !slices.Contains(names, name):
			problem := "want one of " + strings.Join(names, ", ")
			if meant := spelling.Nearest(name, names); meant != "" {
				problem = "did you mean " + LabelPrefix + meant + "?"
			}
			faults = append(faults, config.Fault{Field: field, Problem: "unknown right: " + problem})
		case value != "true" && value != "false":
			faults = append(faults, config.Fault{Field: field, Problem: fmt.Sprintf(`%.64q: want "true" or "false"`, value)})
		}
	}
	return faults
}
