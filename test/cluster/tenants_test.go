package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/decide/cpus/place"
)

// tenant is a user with the role edit in the namespaces tenant-a and tenant-b.
// An administrator has taken all rights from tenant-b.
const tenant = "--as=tenant"

const tenantSpaces = `apiVersion: v1
kind: Namespace
metadata: {name: tenant-a}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-b, labels: {LABELS}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: tenant-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: tenant-b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`

// tenantPod is a pod of the tenant. It prints its CPUs and waits.
func tenantPod(name, space, meta, spec, resources string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s%s}, spec: {terminationGracePeriodSeconds: 0%s, containers: [{name: main, image: "busybox:1", command: [sh, -c, "exec sleep 100000"], resources: {%s}}]}}`, name, space, meta, spec, resources)
}

// tenantTakesNothing tries what a user with the role edit in two namespaces can
// do. Each try must be refused, or be harmless.
func (h *chart) tenantTakesNothing() {
	h.t.Helper()
	begun := time.Now()
	denied := ""
	for _, right := range []string{"own-cpus", "objectives", "overrides", "batch-above-requests", "koord-prod"} {
		denied += fmt.Sprintf(`allow.tenon.sh/%s: "false", `, right)
	}
	h.applied(strings.Replace(tenantSpaces, "LABELS", denied, 1))
	h.applied("{apiVersion: v1, kind: ResourceQuota, metadata: {name: pods, namespace: tenant-a}, spec: {hard: {pods: \"6\"}}}")
	const (
		cpu     = "requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 10m, memory: 16Mi}"
		one     = "requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}"
		batch   = "requests: {kubernetes.io/batch-cpu: 10, kubernetes.io/batch-memory: 16Mi}, limits: {kubernetes.io/batch-cpu: 10, kubernetes.io/batch-memory: 16Mi}"
		system  = ", labels: {koordinator.sh/qosClass: SYSTEM}"
		be      = ", labels: {koordinator.sh/qosClass: BE}"
		lsr     = ", labels: {koordinator.sh/qosClass: LSR}"
		refused = "may not have "
	)
	// These pods run; the tenant then tries to change them.
	requireSoon(h.t, time.Minute, "the tenant runs ordinary pods", func() error {
		for _, space := range []string{"tenant-a", "tenant-b"} {
			if _, err := h.asTenant(tenantPod("plain", space, "", "", cpu), "apply", "-f", "-"); err != nil {
				return err
			}
			if _, err := h.asTenant(tenantPod("job", space, be, "", batch), "apply", "-f", "-"); err != nil {
				return err
			}
		}
		return nil
	})
	patch := func(space, pod, text string, more ...string) []string {
		return append([]string{"patch", "pod", pod, "-n", space, "--type=merge", "-p", text}, more...)
	}
	mirror := fmt.Sprintf(`, annotations: {kubernetes.io/config.mirror: abc, kubernetes.io/config.hash: abc, kubernetes.io/config.source: file}, labels: {koordinator.sh/qosClass: SYSTEM}, ownerReferences: [{apiVersion: v1, kind: Node, name: %s, uid: %s, controller: true}]`,
		h.n.Name, h.kubectl("get", "node", h.n.Name, "-o", "jsonpath={.metadata.uid}"))
	for name, x := range map[string]struct {
		object string
		args   []string
		want   string // a part of the refusal; empty: it is admitted, and harmless
	}{
		"class SYSTEM by its label":           {tenantPod("x", "tenant-a", system, "", cpu), nil, refused + "class SYSTEM"},
		"class SYSTEM by ACK's annotation":    {tenantPod("x", "tenant-a", ", annotations: {alibabacloud.com/qosClass: SYSTEM}", "", cpu), nil, refused + "class SYSTEM"},
		"class SYSTEM without a request":      {tenantPod("x", "tenant-a", system, "", ""), nil, refused + "class SYSTEM"},
		"class SYSTEM past the scheduler":     {tenantPod("x", "tenant-a", system, ", nodeName: "+h.n.Name, cpu), nil, refused + "class SYSTEM"},
		"class SYSTEM of a running pod":       {"", patch("tenant-a", "plain", `{"metadata":{"labels":{"koordinator.sh/qosClass":"SYSTEM"}}}`), `none cannot become "SYSTEM"`},
		"class SYSTEM later, by ACK's word":   {"", patch("tenant-a", "plain", `{"metadata":{"annotations":{"alibabacloud.com/qosClass":"SYSTEM"}}}`), `none cannot become "SYSTEM"`},
		"a mark of its own namespace":         {"", []string{"label", "namespace", "tenant-a", "allow.tenon.sh/SYSTEM=true"}, "forbidden"},
		"a profile that gives class SYSTEM":   {`{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, metadata: {name: x}, spec: {qosClass: SYSTEM}}`, nil, "forbidden"},
		"a batch job becomes a service":       {"", patch("tenant-a", "job", `{"metadata":{"labels":{"koordinator.sh/qosClass":"LS"}}}`), `"BE" cannot become "LS"`},
		"batch resources without the class":   {tenantPod("x", "tenant-a", "", "", batch), nil, "batch resources are for class BE"},
		"own CPUs by class LSR":               {tenantPod("x", "tenant-b", lsr, "", one), nil, refused + "own CPUs (1)"},
		"own CPUs by ACK's annotation":        {tenantPod("x", "tenant-b", `, annotations: {cpuset-scheduler: "true"}`, "", one), nil, refused + "own CPUs (1)"},
		"own CPUs of less than one":           {tenantPod("x", "tenant-a", lsr, "", cpu), nil, "want a whole number"},
		"a priority by its label":             {tenantPod("x", "tenant-b", ", labels: {koordinator.sh/priority-class: koord-prod}", "", cpu), nil, refused + "the priority koord-prod"},
		"a priority by its class":             {tenantPod("x", "tenant-b", "", ", priorityClassName: koord-prod", cpu), nil, refused + "the priority koord-prod"},
		"a priority below a lower label":      {tenantPod("x", "tenant-b", ", labels: {koordinator.sh/priority-class: koord-mid}", ", priorityClassName: koord-prod", cpu), nil, refused + "the priority koord-prod"},
		"batch work that names no class":      {tenantPod("x", "tenant-b", ", labels: {koordinator.sh/priority-class: koord-batch}", "", ""), nil, refused + "batch work above its requests"},
		"an objective":                        {tenantPod("x", "tenant-b", `, annotations: {tenon.sh/objective: '{"runQueueDelay": "1ms"}'}`, "", cpu), nil, refused + "objectives"},
		"an objective of a running pod":       {"", patch("tenant-b", "plain", `{"metadata":{"annotations":{"tenon.sh/objective":"{}"}}}`), refused + "objectives"},
		"no evictions of a running pod":       {"", patch("tenant-b", "job", `{"metadata":{"annotations":{"koordinator.sh/eviction-policy":"[]"}}}`), refused + "settings of its own"},
		"the last place in evictions":         {tenantPod("x", "tenant-b", `, labels: {koordinator.sh/qosClass: BE, koordinator.sh/priority: "2147483647"}`, "", batch), nil, refused + "an order of evictions"},
		"batch requests of 0":                 {tenantPod("x", "tenant-b", be, "", "requests: {kubernetes.io/batch-cpu: 0, kubernetes.io/batch-memory: 0}, limits: {kubernetes.io/batch-cpu: 100k, kubernetes.io/batch-memory: 100Gi}"), nil, refused + "batch work above its requests"},
		"batch work that requests nothing":    {tenantPod("x", "tenant-b", be, "", ""), nil, refused + "batch work above its requests"},
		"another report of the node":          {"", []string{"patch", "nodereport", h.n.Name, "--type=merge", "-p", "{}"}, "forbidden"},
		"a static pod that is none":           {tenantPod("mirror", "tenant-a", mirror, ", nodeName: "+h.n.Name, cpu), nil, "only a kubelet creates the mirror of a static pod"},
		"the node's most important priority":  {tenantPod("critical", "tenant-a", "", ", priorityClassName: system-node-critical", ""), nil, ""},
		"batch amounts only in an annotation": {tenantPod("annotated", "tenant-a", `, annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"64k"}}}}'}`, "", cpu), nil, ""},
	} {
		args := x.args
		if args == nil {
			args = []string{"create", "-f", "-"}
		}
		out, err := h.asTenant(x.object, args...)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			h.t.Errorf("%s: %v\n%s\nwant %q", name, err, out, x.want)
		}
	}
	if text := h.kubectl("get", "pod", "annotated", "-n", "tenant-a", "-o", "jsonpath={.metadata.annotations}"); strings.Contains(text, "extended-resource-spec") {
		h.t.Errorf("the annotation of the tenant stays: %s", text)
	}
	h.quotasBoundPods(be, batch)
	h.t.Logf("what a tenant tries took %.1f s", time.Since(begun).Seconds())
}

// tenantsLeave deletes the namespaces of the tenant.
func (h *chart) tenantsLeave() {
	h.t.Helper()
	h.kubectl("delete", "namespace", "tenant-a", "tenant-b", "--wait=false")
}

// quotasBoundPods checks what the page says about quotas: one of batch resources
// is accepted and counts nothing, and one of pods counts.
func (h *chart) quotasBoundPods(be, batch string) {
	h.t.Helper()
	h.applied(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: batch, namespace: tenant-b}, spec: {hard: {requests.kubernetes.io/batch-cpu: "15", pods: "3"}}}`)
	requireSoon(h.t, time.Minute, "the pods of the quota are counted", func() error {
		if used := h.kubectl("get", "resourcequota", "batch", "-n", "tenant-b", "-o", "jsonpath={.status.used.pods}"); used != "2" {
			return fmt.Errorf("%s pods count", used)
		}
		return nil
	})
	if _, err := h.asTenant(tenantPod("job-2", "tenant-b", be, "", batch), "create", "-f", "-"); err != nil {
		h.t.Errorf("20 of 15 thousandths of a CPU: %v: Kubernetes counts batch resources: correct the page", err)
	}
	if _, err := h.asTenant(tenantPod("job-3", "tenant-b", be, "", batch), "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		h.t.Errorf("4 of 3 pods: %v", err)
	}
}

func (h *chart) asTenant(object string, args ...string) (string, error) {
	return h.c.KubectlApply(h.t.Context(), object, append(args, tenant)...)
}

func (h *chart) applied(object string) {
	h.t.Helper()
	if _, err := h.c.KubectlApply(h.t.Context(), object, "apply", "-f", "-"); err != nil {
		h.t.Fatal(err)
	}
}

// seatedPod has a seat on each CPU of the node and requests almost nothing.
const seatedPod = `{apiVersion: v1, kind: Pod, metadata: {name: seated, annotations: {cpuset-scheduler: "true"}}, spec: {nodeName: NODE, terminationGracePeriodSeconds: 0,
containers: [{name: main, image: "busybox:1", command: [sh, -c, "exec sleep 100000"], resources: {requests: {cpu: 1m, memory: 16Mi}, limits: {cpu: CPUS, memory: 16Mi}}}]}}`

// seatsReserveWhatTheyRequest starts a pod with seats on all CPUs and a request
// of 1m. Another pod must still own a CPU, and the first one gives up its seat
// there.
func seatsReserveWhatTheyRequest(t *testing.T, a *agent, cpus int) {
	t.Helper()
	n, c := a.n, a.c
	a.apply(strings.NewReplacer("NODE", n.Name, "CPUS", fmt.Sprint(cpus)).Replace(seatedPod))
	requireSoon(t, time.Minute, "the pod with seats runs", func() error { return phase(t, c, "seated", "Running") })
	a.apply(strings.NewReplacer("NAME", "owner", "schedulerName: none", "nodeName: "+n.Name).Replace(pinnedPod))
	owner, seated := uid(t, c, "owner"), uid(t, c, "seated")
	requireSoon(t, time.Minute, "a pod owns a CPU beside seats on all CPUs", func() error {
		report := a.report().Status.CPUs
		if report == nil {
			return errors.New("the node reports no CPUs")
		}
		r, err := cpureport.Read(report)
		if err != nil {
			return err
		}
		own, seats := r.Pods[place.UID(owner)].CPUs, r.Pods[place.UID(seated)].CPUs
		if own.Len() != 1 || seats.Len() != cpus-1 || !own.Intersect(seats).Empty() {
			return fmt.Errorf("own CPUs %v, seats %v of %+v", own, seats, report.Pods)
		}
		return nil
	})
	kubectl(t, c, "delete", "pod", "seated", "--force", "--grace-period=0")
	endByForce(t, c, n, "owner")
}
