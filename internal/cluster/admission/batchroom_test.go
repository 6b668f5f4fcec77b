package admission

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/unit"
)

// TestBatchPodsAddNoNode checks the annotation for cluster-autoscaler: pods that use
// batch resources have it, and pods that count like services do not. A delay that the
// author has written stays.
func TestBatchPodsAddNoNode(t *testing.T) {
	const own2 = "requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"
	for name, x := range map[string]struct {
		labels, annotations, resources string
		off                            bool
		want                           string
	}{
		"translated":             {be, "", own2, false, scaleUpDelay},
		"with batch resources":   {be, "", "requests: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}", false, scaleUpDelay},
		"without any resources":  {be, "", "", false, scaleUpDelay},
		"with a delay":           {be, kube.AnnotationScaleUpDelay + `: "1m"`, own2, false, "1m"},
		"a service":              {"koordinator.sh/qosClass: LS", "", own2, false, ""},
		"of no class":            {"", "", own2, false, ""},
		"where it keeps its cpu": {be, "", own2, true, ""},
		"that keeps its amounts": {be, `config.koordinator.sh/skip-update-resources: "true"`, own2, false, ""},
	} {
		p, v := Mutate(Request{Pod: pod(t, x.labels, x.annotations, x.resources), ColocationOff: x.off})
		if got := p.Annotations[kube.AnnotationScaleUpDelay]; got != x.want || !v.Allowed() {
			t.Errorf("%s: the delay is %q, want %q; %s", name, got, x.want, v.Message())
		}
	}
	if d, err := time.ParseDuration(scaleUpDelay); err != nil || d < 24*time.Hour {
		t.Errorf("cluster-autoscaler reads the delay as %v, %v", d, err)
	}
}

// TestOnlyPodsThatASchedulerCanPlaceGetTheGate checks which pods get the gate, and that
// a gate of the author does not stay where nothing would open it.
func TestOnlyPodsThatASchedulerCanPlaceGetTheGate(t *testing.T) {
	const own2 = "requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"
	daemon := metav1.OwnerReference{Kind: "DaemonSet", Controller: new(true)}
	job := metav1.OwnerReference{Kind: "Job", Controller: new(true)}
	node := metav1.OwnerReference{Kind: "Node", Controller: new(true)}
	for name, x := range map[string]struct {
		labels, resources string
		owner             *metav1.OwnerReference
		onNode, off       bool // the pod has a node; no node has batch resources
		mirror            bool
		user              string
		want              bool
	}{
		"of a Job":       {be, own2, &job, false, false, false, "", true},
		"of nobody":      {be, "requests: {kubernetes.io/batch-cpu: 1k}", nil, false, false, false, "", true},
		"of a DaemonSet": {be, own2, &daemon, false, false, false, "system:serviceaccount:kube-system:daemon-set-controller", false},
		"of a DaemonSet, by the controller manager": {be, own2, &daemon, false, false, false, "system:kube-controller-manager", false},
		"of a user who calls it a DaemonSet's":      {be, own2, &daemon, false, false, false, "system:serviceaccount:team:daemon-set-controller", true},
		"of a Job, by the controller manager":       {be, own2, &job, false, false, false, "system:kube-controller-manager", true},
		"with a node":                               {be, own2, &job, true, false, false, "", false},
		"of a kubelet":                              {be, own2, &node, true, false, true, "", false},
		"without batch resources":                   {be, "", &job, false, false, false, "", false},
		"a service":                                 {"koordinator.sh/qosClass: LS", own2, nil, false, false, false, "", false},
		"that keeps cpu and memory":                 {be, own2, nil, false, true, false, "", false},
	} {
		for _, on := range []bool{true, false} {
			for _, before := range []bool{false, true} {
				gate := func() bool {
					if !x.want {
						t.Errorf("%s: it is asked whether the gate is on", name)
					}
					return on
				}
				p := pod(t, x.labels, "", x.resources)
				if x.owner != nil {
					p.OwnerReferences = []metav1.OwnerReference{*x.owner}
				}
				if x.onNode {
					p.Spec.NodeName = "n1"
				}
				if x.mirror {
					p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
				}
				foreign := corev1.PodSchedulingGate{Name: "example.com/quota"}
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{foreign}
				if before && !x.mirror {
					p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kube.BatchGate})
				}
				got, v := Mutate(Request{Pod: p, User: x.user, Gate: gate, ColocationOff: x.off})
				if kube.HasBatchGate(got) != (x.want && on) || got.Spec.SchedulingGates[0] != foreign {
					t.Errorf("%s, switched on %v, had it before %v: gates %v; %s", name, on, before, got.Spec.SchedulingGates, v.Message())
				}
				told := slices.ContainsFunc(v.Warnings, func(w Warning) bool { return w.Field == "spec.schedulingGates" })
				if told != (kube.HasBatchGate(got) != kube.HasBatchGate(p)) {
					t.Errorf("%s, switched on %v, had it before %v: warnings %v", name, on, before, v.Warnings)
				}
				if again, v := Mutate(Request{Pod: got, User: x.user, Gate: gate, ColocationOff: x.off}); len(again.Spec.SchedulingGates) != len(got.Spec.SchedulingGates) {
					t.Errorf("%s: a second call makes gates %v of %v; %s", name, again.Spec.SchedulingGates, got.Spec.SchedulingGates, v.Message())
				}
			}
		}
	}
}

// TestAPodAboveTheCapIsRefused checks new pods against the cap of their namespace.
func TestAPodAboveTheCapIsRefused(t *testing.T) {
	const two = "requests: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}, limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}"
	failed := errors.New("no answer")
	for name, x := range map[string]struct {
		terms string
		gated bool
		used  unit.MilliCPU
		err   error
		asked bool   // used was called
		field string // of the refusal
	}{
		"no terms":                    {"", false, 9000, nil, false, ""},
		"only a weight":               {`{"weight":3}`, false, 9000, nil, false, ""},
		"a gate keeps to the cap":     {`{"cpu":"3"}`, true, 9000, nil, false, ""},
		"more than the cap alone":     {`{"cpu":"1"}`, true, 0, nil, false, "spec.containers.resources.requests"},
		"within the cap":              {`{"cpu":"3"}`, false, 1000, nil, true, ""},
		"above the cap":               {`{"cpu":"3"}`, false, 1001, nil, true, "spec.containers.resources.requests"},
		"a cap of the other resource": {`{"memory":"1Gi"}`, false, 9000, nil, true, ""},
		"the use cannot be read":      {`{"cpu":"3"}`, false, 0, failed, true, ""},
		"a fault, with a gate":        {`{"cpu":"x"}`, true, 0, nil, false, ""},
		"a fault, without a gate":     {`{"cpu":"x"}`, false, 0, nil, false, "spec"},
	} {
		p := pod(t, be, "", two)
		if x.gated {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kube.BatchGate}}
		}
		asked := false
		v, err := ValidateTerms(p, map[string]string{kube.AnnotationBatch: x.terms}, func() (share.Amount, error) {
			asked = true
			return share.Amount{CPU: x.used}, x.err
		})
		field := ""
		if !v.Allowed() {
			field = v.Refusals[0].Field
		}
		if field != x.field || asked != x.asked || !errors.Is(err, x.err) {
			t.Errorf("%s: refused for %q, want %q; asked %v, %v", name, v.Message(), x.field, asked, err)
		}
	}
}

// TestTheTermsOfANamespaceAreChecked checks the annotation of a namespace when it is
// written.
func TestTheTermsOfANamespaceAreChecked(t *testing.T) {
	meta := func(text string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{kube.AnnotationBatch: text}}
	}
	const at = "metadata.annotations[tenon.sh/batch]"
	for name, x := range map[string]struct {
		old, now string
		gate     bool
		refused  string
		warned   bool
	}{
		"a weight":             {"", `{"weight":2}`, true, "", false},
		"a cap":                {"", `{"cpu":"40","weight":2}`, true, "", true},
		"a cap from before":    {`{"cpu":"40"}`, `{"cpu":"40"}`, true, "", false},
		"terms without a gate": {"", `{"cpu":"40"}`, false, "", true},
		"a weight of 0":        {"", `{"weight":0}`, true, at + ".weight: 0: want a whole number from 1 to 1000", false},
		"a key that is none":   {"", `{"cpus":"1"}`, true, at + ".cpus: ", false},
		"a fault from before":  {`{"weight":0}`, `{"weight":0}`, true, "", false},
	} {
		v := ValidateNamespace(meta(x.old), meta(x.now), x.gate)
		if (x.refused == "") != v.Allowed() || !strings.HasPrefix(v.Message(), x.refused) || len(v.Warnings) > 0 != x.warned {
			t.Errorf("%s: refused %q, warnings %v", name, v.Message(), v.Warnings)
		}
	}
	bounded := meta(`{"cpu":"40"}`)
	bounded.Labels = map[string]string{"allow.tenon.sh/batch-above-requests": "false"}
	if v := ValidateNamespace(metav1.ObjectMeta{}, bounded, true); !v.Allowed() || len(v.Warnings) > 0 {
		t.Errorf("a cap of requests that are limits: refused %q, warnings %v", v.Message(), v.Warnings)
	}
}
