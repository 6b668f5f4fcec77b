package main

import (
	"errors"
	"strings"
	"testing"
)

const (
	pathNamespaces = "/api/v1/namespaces"
	pathQuotas     = "/api/v1/resourcequotas"
)

// TestDoctorNamesWhatTenantsTake checks a pod of class SYSTEM from before the
// upgrade, and a quota that never counts.
func TestDoctorNamesWhatTenantsTake(t *testing.T) {
	pod := func(space, name, class string) string {
		return `{"metadata": {"name": "` + name + `", "namespace": "` + space + `", "labels": {"koordinator.sh/qosClass": "` + class + `"}}, "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]}}`
	}
	list := func(kind string, items ...string) string {
		return `{"kind": "` + kind + `List", "apiVersion": "v1", "items": [` + strings.Join(items, ", ") + `]}`
	}
	space := func(name, labels string) string {
		return `{"metadata": {"name": "` + name + `", "labels": {` + labels + `}}}`
	}
	spaces := list("Namespace", space("team-a", ""), space("team-b", `"allow.tenon.sh/SYSTEM": "true"`), space("kube-system", ""), space("tenon-system", ""))
	manager := strings.Replace(leases, `"items": [`, `"items": [{"metadata": {"namespace": "tenon-system", "name": "tenon-manager"}, "spec": {"holderIdentity": "m", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}}, `, 1)
	quota := list("ResourceQuota",
		`{"metadata": {"name": "q", "namespace": "team-a"}, "spec": {"hard": {"requests.kubernetes.io/batch-cpu": "100", "pods": "5"}}}`,
		`{"metadata": {"name": "r", "namespace": "team-b"}, "spec": {"hard": {"requests.cpu": "100"}}}`)
	const (
		line    = `  namespace team-a may not have class SYSTEM, and its pods sysburn have it: `
		counted = "  ResourceQuota team-a/q bounds no batch resources (requests.kubernetes.io/batch-cpu): Kubernetes does not count them: "
	)
	system := list("Pod", pod("team-a", "sysburn", "SYSTEM"), pod("team-b", "node-exporter", "SYSTEM"), pod("kube-system", "cni", "SYSTEM"), pod("tenon-system", "tenond", "SYSTEM"))
	base := with(installed, pathNamespaces, spaces, pathLeases, manager)
	for name, x := range map[string]struct {
		paths map[string]string
		lines []string
	}{
		"both":             {with(base, "/api/v1/pods", system, pathQuotas, quota), []string{line, counted}},
		"only a quota":     {with(base, "/api/v1/pods", list("Pod", pod("team-a", "web", "LS")), pathQuotas, quota), []string{counted}},
		"all have a right": {with(base, "/api/v1/pods", strings.Replace(system, `"team-a"`, `"team-b"`, 1), pathQuotas, list("ResourceQuota")), nil},
	} {
		out, err := kubectl(t, x.paths, "doctor")
		if (len(x.lines) > 0) != errors.Is(err, errUnhealthy) || strings.Count(out, "may not have class SYSTEM")+strings.Count(out, "bounds no batch") != len(x.lines) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, want := range x.lines {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, out)
			}
		}
	}
	no := refusal(403, "Forbidden", "no")
	out, err := kubectl(t, with(base, "/api/v1/pods", system, pathQuotas, no, pathNamespaces, no), "doctor")
	for _, want := range []string{"the ResourceQuotas are not checked: you may not list ResourceQuotas\n", "it is not known whether pods have class SYSTEM without a right to it: you may not list namespaces\n"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("without rights: %v, want %q in\n%s", err, want, out)
		}
	}
}

const (
	// hooks is where the API server sends what the webhooks of Tenon answer.
	pathHooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tenon-manager"
	hooks     = `{"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "tenon-manager"}, "webhooks": [{"name": "a", "clientConfig": {"service": {"namespace": "tenon-system", "name": "tenon-manager"}}}]}`
)

// TestALeaseOfAUserIsNotThatOfTheManager has a user make a Lease with the name of the
// manager's in a namespace of his own. It neither shows that the manager runs, nor makes
// the namespace that of Tenon, in which pods may have class SYSTEM.
func TestALeaseOfAUserIsNotThatOfTheManager(t *testing.T) {
	const (
		lease = `{"metadata": {"namespace": "SPACE", "name": "tenon-manager"}, "spec": {"holderIdentity": "m", "leaseDurationSeconds": 15, "renewTime": "TIMEZ"}}`
		list  = `{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": [`
		own   = "/apis/coordination.k8s.io/v1/namespaces/tenon-system/leases"
	)
	of := func(space, renewed string) string {
		return strings.NewReplacer("SPACE", space, "TIME", renewed).Replace(lease)
	}
	forged, stopped, leads := of("team-a", "2026-03-01T11:59:59.000000"), of("tenon-system", "2026-03-01T10:00:00.000000"), of("tenon-system", "2026-03-01T11:59:58.000000")
	base := with(installed,
		pathNamespaces, `{"kind": "NamespaceList", "apiVersion": "v1", "items": [{"metadata": {"name": "team-a"}}, {"metadata": {"name": "tenon-system"}}]}`,
		"/api/v1/pods", `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "sysburn", "namespace": "team-a", "labels": {"koordinator.sh/qosClass": "SYSTEM"}}, "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]}}]}`,
		pathQuotas, `{"kind": "ResourceQuotaList", "apiVersion": "v1", "items": []}`, pathHooks, hooks)
	const taken, gone = "namespace team-a may not have class SYSTEM", "tenon-manager has no leader"
	for name, x := range map[string]struct {
		paths map[string]string
		gone  bool
	}{
		"it stopped": {with(base, pathLeases, list+forged+", "+stopped+"]}", own, list+stopped+"]}"), true},
		"it leads":   {with(base, pathLeases, list+forged+", "+leads+"]}", own, list+leads+"]}"), false},
	} {
		out, err := kubectl(t, x.paths, "doctor")
		if !errors.Is(err, errUnhealthy) || !strings.Contains(out, taken) || strings.Contains(out, gone) != x.gone {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	// Without the right to read the webhooks, the Leases of all namespaces count.
	if out, _ := kubectl(t, with(base, pathLeases, list+stopped+"]}", pathHooks, refusal(403, "Forbidden", "no")), "doctor"); !strings.Contains(out, gone) {
		t.Errorf("without the right:\n%s", out)
	}
}
