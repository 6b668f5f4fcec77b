package kube

import corev1 "k8s.io/api/core/v1"

// LabelIgnore is a label of a pod that Tenon leaves alone, if its value is "true".
// On a namespace it stands for this label on each new pod: the webhook writes it
// into them. For Tenon, such a pod is part of the system of its node: the agent
// writes none of its cgroups, and puts back what it has written there. The webhooks
// do not change the pod, and no CPUs are chosen for it.
const LabelIgnore = "tenon.sh/ignore"

// IsIgnored reports whether Tenon leaves a pod alone.
func IsIgnored(p *corev1.Pod) bool { return p.Labels[LabelIgnore] == ignoreValue }

// IsIgnoredNamespace reports whether Tenon leaves the new pods of a namespace
// with these labels alone.
func IsIgnoredNamespace(labels map[string]string) bool { return labels[LabelIgnore] == ignoreValue }

const ignoreValue = "true"
