package main

import (
	"errors"
	"strings"
	"testing"
)

// TestDoctorNamesNeighboursThatDoNotWork checks a horizontal and a vertical
// autoscaler of batch work, a Job of Kueue that names cpu, and their counterparts
// that work.
func TestDoctorNamesNeighboursThatDoNotWork(t *testing.T) {
	list := func(group, kind string, items ...string) string {
		return `{"kind": "` + kind + `List", "apiVersion": "` + group + `", "items": [` + strings.Join(items, ", ") + `]}`
	}
	pod := func(owner, class, resources string) string {
		return `{"metadata": {"name": "` + owner + `-1", "namespace": "shop", "labels": {"koordinator.sh/qosClass": "` + class + `"}, "ownerReferences": [{"kind": "ReplicaSet", "name": "` + owner + `-5d4f", "controller": true}]},
			"spec": {"nodeName": "node-1", "containers": [{"name": "c", "resources": {"requests": ` + resources + `}}]}}`
	}
	hpa := func(name, target, kind string) string {
		return `{"metadata": {"name": "` + name + `", "namespace": "shop"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "` + target + `"}, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "` + kind + `"}}}]}}`
	}
	vertical := func(name, target, mode string) string {
		return `{"kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1", "metadata": {"name": "` + name + `", "namespace": "shop"}, "spec": {"targetRef": {"kind": "Deployment", "name": "` + target + `"}, "updatePolicy": {"updateMode": "` + mode + `"}}}`
	}
	// policed is a vertical autoscaler with policies for containers. That of the pods is c.
	policed := func(policies string) string {
		return list("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", strings.Replace(vertical("v", "encode", "Recreate"), `"updatePolicy"`, `"resourcePolicy": {"containerPolicies": [`+policies+`]}, "updatePolicy"`, 1))
	}
	job := func(name, queue, class, resources string) string {
		return `{"metadata": {"name": "` + name + `", "namespace": "shop", "labels": {` + queue + `}}, "spec": {"template": {"metadata": {"labels": {"koordinator.sh/qosClass": "` + class + `"}}, "spec": {"containers": [{"name": "c", "resources": {"requests": ` + resources + `}}]}}}}`
	}
	const (
		batch  = `{"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}`
		native = `{"cpu": "1", "memory": "1Gi"}`
		queue  = `"kueue.x-k8s.io/queue-name": "q"`
		hpas   = "/apis/autoscaling/v2/horizontalpodautoscalers"
		vpas   = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
		jobs   = "/apis/batch/v1/jobs"
	)
	manager := strings.Replace(leases, `"items": [`, `"items": [{"metadata": {"namespace": "tenon-system", "name": "tenon-manager"}, "spec": {"holderIdentity": "m", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}}, `, 1)
	pods := list("v1", "Pod", pod("encode", "BE", batch), pod("web", "LS", native))
	base := with(installed, "/api/v1/pods", pods, pathLeases, manager)
	for name, x := range map[string]struct {
		path, text, line string
	}{
		"by utilization":                       {hpas, list("autoscaling/v2", "HorizontalPodAutoscaler", hpa("h", "encode", "Utilization")), "  HorizontalPodAutoscaler shop/h scales Deployment encode by the utilization of cpu, and its batch pods request none of it"},
		"by value":                             {hpas, list("autoscaling/v2", "HorizontalPodAutoscaler", hpa("h", "encode", "AverageValue")), ""},
		"of a service":                         {hpas, list("autoscaling/v2", "HorizontalPodAutoscaler", hpa("h", "web", "Utilization")), ""},
		"vertical":                             {vpas, list("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", vertical("v", "encode", "Recreate")), "  VerticalPodAutoscaler shop/v writes cpu and memory into new pods of Deployment encode"},
		"vertical, off":                        {vpas, list("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", vertical("v", "encode", "Off")), ""},
		"vertical, of a service":               {vpas, list("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", vertical("v", "web", "Recreate")), ""},
		"vertical, off for its container":      {vpas, policed(`{"containerName": "c", "mode": "Off"}`), ""},
		"vertical, off for all":                {vpas, policed(`{"containerName": "*", "mode": "Off"}`), ""},
		"vertical, off for another":            {vpas, policed(`{"containerName": "d", "mode": "Off"}`), "  VerticalPodAutoscaler shop/v writes cpu and memory"},
		"vertical, off for all others":         {vpas, policed(`{"containerName": "c", "mode": "Auto"}, {"containerName": "*", "mode": "Off"}`), "  VerticalPodAutoscaler shop/v writes cpu and memory"},
		"vertical, off for it, not for others": {vpas, policed(`{"containerName": "*"}, {"containerName": "c", "mode": "Off"}`), ""},
		"vertical, for memory":                 {vpas, policed(`{"containerName": "*", "controlledResources": ["memory"]}`), "  VerticalPodAutoscaler shop/v writes memory into new pods"},
		"vertical, for nothing":                {vpas, policed(`{"containerName": "*", "controlledResources": []}`), ""},
		"in a queue":                           {jobs, list("batch/v1", "Job", job("j", queue, "BE", native)), "  Job shop/j waits in a queue of Kueue for cpu and memory, and its pods will have batch resources: kubectl tenon translate"},
		"in a queue, translated":               {jobs, list("batch/v1", "Job", job("j", queue, "BE", batch)), ""},
		"in a queue, no batch":                 {jobs, list("batch/v1", "Job", job("j", queue, "LS", native)), ""},
		"in no queue":                          {jobs, list("batch/v1", "Job", job("j", "", "BE", native)), ""},
	} {
		out, err := kubectl(t, with(base, x.path, x.text), "doctor")
		if errors.Is(err, errUnhealthy) != (x.line != "") || err != nil && x.line == "" || !strings.Contains(out, x.line) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, x.line, out)
		}
	}
	no := refusal(403, "Forbidden", "no")
	out, err := kubectl(t, with(base, hpas, no, vpas, no, jobs, no), "doctor")
	for _, want := range []string{"the HorizontalPodAutoscalers are not checked: you may not list HorizontalPodAutoscalers\n", "the VerticalPodAutoscalers are not checked", "the Jobs of Kueue are not checked"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("without rights: %v, want %q in\n%s", err, want, out)
		}
	}
}
