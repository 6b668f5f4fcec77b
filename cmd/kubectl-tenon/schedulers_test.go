package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestASilentManagerIsAProblem gives tenon-manager a Lease without a holder.
func TestASilentManagerIsAProblem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const lost = "tenon-manager has no leader: Lease tenon-system/tenon-manager has no holder"
	item := func(spec string) string {
		return strings.Replace(leases, `"items": [`, `"items": [{"metadata": {"namespace": "tenon-system", "name": "tenon-manager"}, "spec": `+spec+`}, `, 1)
	}
	off := item(`{"holderIdentity": "", "renewTime": "2026-03-01T11:50:00.000000Z"}`)
	on := item(`{"holderIdentity": "m", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}`)
	if out, err := kubectl(t, with(installed, pathLeases, off), "doctor"); !errors.Is(err, errUnhealthy) || !strings.Contains(out, "  "+lost+"; until it runs, the webhooks of the chart refuse new pods that are BE") || !strings.Contains(out, "go to the cluster's own scheduler, which chooses no CPUs;") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, with(withRoom, pathLeases, off), "fit", file); err != nil || !strings.Contains(out, "Not looked at: the answer of Tenon's webhooks, because "+lost+".\n") {
		t.Errorf("%v\n%s", err, out)
	}
	const wide = "kind: Pod\nmetadata: {name: p, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 14}, limits: {cpu: 14}}}]}\n"
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte(wide), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t, with(withRoom, pathLeases, off), "fit", own); !errors.Is(err, errNoRoom) || strings.Contains(out, "would wait") ||
		!strings.Contains(out, "default/p would not get what it asks for, and would start without it:\n  no webhook names tenon-scheduler in the pod, because "+lost+"; so the pod goes to the cluster's own scheduler,") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, with(withRoom, pathLeases, on), "fit", own); !errors.Is(err, errNoRoom) || !strings.Contains(out, "default/p would wait:\n  1 node: ") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, with(installed, pathLeases, on), "doctor"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, with(withRoom, pathLeases, on), "fit", file); err != nil || strings.Contains(out, "tenon-manager") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWithoutTheRightToListLeasesNothingIsSilent gives the user no right to list
// Leases. A pod waits, and its scheduler has answered it.
func TestWithoutTheRightToListLeasesNothingIsSilent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const waits = `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "db", "namespace": "shop", "uid": "u2", "creationTimestamp": "2026-03-01T11:57:00Z"}, "spec": {"containers": [{"name": "c"}]},
		"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}}]}`
	no := refusal(403, "Forbidden", "no")
	blind := with(installed, pathLeases, no, pathEvents, no, "/api/v1/namespaces/shop/events", no)
	waiting := with(blind, "/api/v1/pods", waits)
	const unread = "you may not list Leases; you may not list events"
	for name, x := range map[string]struct {
		paths      map[string]string
		line, want string
	}{
		"doctor":                 {with(blind, "/api/v1/pods", `{"kind": "PodList", "apiVersion": "v1", "items": []}`), "doctor", "it is not known whether tenon-manager runs: you may not list Leases\n"},
		"doctor and a scheduler": {waiting, "doctor", "it is not known whether scheduler default-scheduler, for which pods wait, runs: " + unread + "\n"},
		"top and a scheduler":    {waiting, "top", "it is not known whether scheduler default-scheduler, for which pods wait, runs: " + unread + "\n"},
		"explain":                {waiting, "explain pod shop/db", "It waits for scheduler default-scheduler, which may run or not: " + unread + ".\n"},
		"fit":                    {with(withRoom, pathLeases, no), "fit " + file, "Not looked at: whether tenon-manager runs, and its webhooks have answered: you may not list Leases.\n"},
	} {
		if out, err := kubectl(t, x.paths, strings.Fields(x.line)...); err != nil || !strings.Contains(out, x.want) {
			t.Errorf("%s: %v: want %q in\n%s", name, err, x.want, out)
		}
	}
}

// TestWaitingPodsNameTheirScheduler checks all pages about pods that wait.
func TestWaitingPodsNameTheirScheduler(t *testing.T) {
	const waits = `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "db", "namespace": "shop", "uid": "u2", "creationTimestamp": "2026-03-01T11:57:00Z"}, "spec": {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}}]}`
	const event = `{"kind": "EventList", "apiVersion": "v1", "items": [{"metadata": {"namespace": "shop", "name": "e"}, "involvedObject": {"uid": "u2"}, "reason": "FailedScheduling", "message": "0/1 nodes", "reportingComponent": "koord-scheduler", "eventTime": "2026-03-01T11:59:00.000000Z"}]}`
	const sentence = "scheduler koord-scheduler, which is not seen to run: no Lease has its name, and no event comes from it"
	cluster := with(installed, "/api/v1/pods", waits, "/api/v1/namespaces/shop/events", events)
	spoke := with(cluster, "/api/v1/namespaces/shop/events", event, pathEvents, event)
	for name, x := range map[string]struct {
		paths  map[string]string
		line   string
		want   string
		absent string
		err    error
	}{
		"explain":                              {cluster, "explain pod shop/db", "It waits for " + sentence + ".\nNo scheduler has looked at it since it was created 3m0s ago: it has no condition and no event of one.\n", "", nil},
		"doctor":                               {cluster, "doctor", "\nProblems\n  1 pod waits for " + sentence + ": shop/db\n", "", errUnhealthy},
		"top":                                  {cluster, "top", "\n1 pod waits for " + sentence + ": shop/db\n", "", nil},
		"explain, and it runs without a Lease": {spoke, "explain pod shop/db", "Its scheduler says: 0/1 nodes\n", "It waits for", nil},
		"doctor, and it runs without a Lease":  {spoke, "doctor", "1 node, 1 with a report\n", "koord-scheduler", nil},
		"no right to list Leases and events": {
			with(cluster, pathLeases, refusal(403, "Forbidden", "no"), pathEvents, refusal(403, "Forbidden", "no"), "/api/v1/namespaces/shop/events", refusal(403, "Forbidden", "no")), "explain pod shop/db",
			"It waits for scheduler koord-scheduler, which may run or not: you may not list Leases; you may not list events.\nNo scheduler has set a condition on it since it was created 3m0s ago. Not looked at: its events (you may not list events).\n", "looked at it", nil,
		},
		"no right to list pods": {with(cluster, "/api/v1/pods", refusal(403, "Forbidden", "no pods")), "doctor", "the waiting pods are not checked: no pods\n", "koord-scheduler", nil},
	} {
		out, err := kubectl(t, x.paths, strings.Fields(x.line)...)
		if !errors.Is(err, x.err) || x.err == nil && err != nil || !strings.Contains(out, x.want) || x.absent != "" && strings.Contains(out, x.absent) {
			t.Errorf("%s: %v: want %q and not %q in\n%s", name, err, x.want, x.absent, out)
		}
	}
}

// TestABatchPodSaysWhoOpensItsGate checks explain pod for a pod that waits for batch
// room, with tenon-manager and without.
func TestABatchPodSaysWhoOpensItsGate(t *testing.T) {
	const waits = `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "job", "namespace": "shop", "uid": "u2", "creationTimestamp": "2026-03-01T11:57:00Z"}, "spec": {"schedulingGates": [{"name": "tenon.sh/batch-room"}], "containers": [{"name": "c"}]}}]}`
	lease := func(holder string) string {
		return `{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": [{"metadata": {"namespace": "tenon-system", "name": "tenon-manager"}, "spec": {"holderIdentity": "` + holder + `", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}}]}`
	}
	cluster := with(installed, "/api/v1/pods", waits)
	for want, leases := range map[string]string{
		"tenon-manager removes tenon.sh/batch-room when a node has batch room for the pod.":                                             lease("m"),
		"Nothing removes tenon.sh/batch-room now, because tenon-manager has no leader: Lease tenon-system/tenon-manager has no holder.": lease(""),
	} {
		if out, err := kubectl(t, with(cluster, pathLeases, leases), "explain", "pod", "shop/job"); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: want %q in\n%s", err, want, out)
		}
	}
}
