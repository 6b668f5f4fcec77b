package admission

import (
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

// ValidateNamespace checks the labels of a namespace that say what its pods may
// ask for. old has the labels of the namespace as it was, or is nil.
func ValidateNamespace(old, now map[string]string) Verdict {
	var v Verdict
	v.refuseFaults(tenant.CheckLabels(old, now))
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
