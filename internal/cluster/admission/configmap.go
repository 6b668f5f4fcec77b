package admission

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/config"
)

// ValidateConfigMap checks the data of slo-controller-config or ack-slo-config.
// For an invalid value, the refusal names the key, the value and the allowed
// range. Unknown and unsupported keys cause only a warning.
func ValidateConfigMap(data map[string]string) Verdict {
	var v Verdict
	cluster, faults := config.ParseConfigMap(data)
	v.refuseFaults(faults)
	notices := cluster.Notices()
	if node, _ := cluster.Node(nil, nil); v.Allowed() {
		notices = append(notices, node.Notices...)
	}
	for _, text := range notices {
		v.Warnings = append(v.Warnings, Warning{Code: Ignored, Problem: text})
	}
	return v
}

// ValidatePodConfigMap checks the data of ack-slo-pod-config.
func ValidatePodConfigMap(data map[string]string) Verdict {
	var v Verdict
	_, faults := kube.ParseNamespaces(data)
	for _, f := range faults {
		field := f.Key
		if f.Field != "" {
			field += "." + f.Field
		}
		if f.Inert {
			v.warn(Ignored, field, "%s", f.Problem)
			continue
		}
		v.refuse(field, "%s", f.Problem)
	}
	return v
}

// ValidateNamespace checks the labels of a namespace that say what its pods may ask for,
// and the annotation that says on which terms they share batch resources. old has the
// metadata of the namespace as it was, and is empty for a new one. gate says whether batch
// pods have a gate, without which the terms have no effect. It warns that a namespace that
// is left alone from now on may have pods that are not.
func ValidateNamespace(old, now metav1.ObjectMeta, gate bool) Verdict {
	var v Verdict
	v.refuseFaults(tenant.CheckLabels(old.Labels, now.Labels))
	if text := now.Annotations[kube.AnnotationBatch]; text != old.Annotations[kube.AnnotationBatch] {
		terms, said, faults := kube.BatchTermsOf(now.Annotations)
		v.refuseFaults(faults)
		above := tenant.Namespace{Name: now.Name, Labels: now.Labels}.Allows(tenant.BatchAboveRequests)
		switch {
		case !said || len(faults) > 0:
		case !gate:
			v.warn(Ignored, annotation(kube.AnnotationBatch), "has no effect yet: only the gate of batch pods keeps to it (gate in batch-config of the ConfigMap)")
		case terms.Capped() && above:
			v.warn(Uncounted, annotation(kube.AnnotationBatch), `the cap counts requests, and pods of the namespace may use more than they request: want the label %s%s: "false", too`, tenant.LabelPrefix, tenant.BatchAboveRequests)
		}
	}
	if kube.IsIgnoredNamespace(now.Labels) && !kube.IsIgnoredNamespace(old.Labels) {
		v.warn(NewPods, label(kube.LabelIgnore), "it counts for new pods: those that run already get it by kubectl label pods --all -n NAMESPACE %s=%s", kube.LabelIgnore, now.Labels[kube.LabelIgnore])
	}
	return v
}

func (v *Verdict) refuseFaults(faults []config.Fault) {
	for _, f := range faults {
		v.refuseFault(f)
	}
}

// refuseFault adds a refusal for a fault of the ConfigMap. It adds the line
// number unless the mistake is in line 1.
func (v *Verdict) refuseFault(f config.Fault) {
	if f.Line > 1 {
		v.refuse(f.Field, "%s (line %d of the text)", f.Problem, f.Line)
		return
	}
	v.refuse(f.Field, "%s", f.Problem)
}
