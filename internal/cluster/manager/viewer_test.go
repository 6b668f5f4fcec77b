package manager

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestANamespaceUserAsksKubectlTenon runs the plugin against a real API server,
// as a user with rights in one namespace only, and as the same user with the
// ClusterRole tenon-viewer of the chart.
func TestANamespaceUserAsksKubectlTenon(t *testing.T) {
	s := newScene(t)
	s.node("n1")
	var n1 corev1.Node
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &n1))
	n1.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("10")
	s.must(s.client.Status().Update(s.ctx, &n1))
	s.report("n1", batchOf(4000, 4))
	var report v1alpha1.NodeReport
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &report))
	report.Status.CPUs = &v1alpha1.CPUs{Caches: []v1alpha1.Cache{{CPUs: "0-15"}}, Keep: 1}
	s.must(s.client.Status().Update(s.ctx, &report))

	// A user with what edit gives in a namespace, as far as the plugin needs it.
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "edits"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"get", "list", "create"}}}}
	of := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: s.name + name}}
	}
	s.must(
		s.client.Create(s.ctx, role),
		s.client.Create(s.ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "edits"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "edits"}, Subjects: append(of("-user"), of("-viewer")...)}),
	)
	viewer := chartRole(t, "ClusterRole", "tenon-viewer")
	s.must(s.client.Create(s.ctx, viewer))
	t.Cleanup(func() { s.must(s.client.Delete(s.ctx, viewer)) })
	bound := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenon-viewer"}, Subjects: of("-viewer")}
	s.must(s.client.Create(s.ctx, bound))
	t.Cleanup(func() { s.must(s.client.Delete(s.ctx, bound)) })

	// The Lease of a manager that runs.
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "tenon-manager"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a"), RenewTime: &now, LeaseDurationSeconds: new(int32(3600))}}
	s.must(s.client.Create(s.ctx, lease))
	t.Cleanup(func() { s.must(s.client.Delete(s.ctx, lease)) })

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "db", Annotations: map[string]string{"cpuset-scheduler": "true"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: listOf("cpu", "2", "memory", "64Mi")}}}
	pod.Spec.NodeName = "n1"
	s.must(s.client.Create(s.ctx, pod))

	plugin := filepath.Join(t.TempDir(), "kubectl-tenon")
	if text, err := exec.Command("go", "build", "-trimpath", "-o", plugin, "tenon.sh/tenon/cmd/kubectl-tenon").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	s.must(os.WriteFile(manifest, []byte("kind: Pod\nmetadata: {name: p}\nspec: {tolerations: [{operator: Exists}], containers: [{name: c, image: none, resources: {requests: {cpu: 500m}}}]}\n"), 0o600))
	as := map[string]string{}
	for _, name := range []string{"-user", "-viewer"} {
		user, err := control.env.AddUser(envtest.User{Name: s.name + name, Groups: []string{s.name + name}}, nil)
		s.must(err)
		text, err := user.KubeConfig()
		s.must(err)
		as[name] = filepath.Join(t.TempDir(), "kubeconfig")
		s.must(os.WriteFile(as[name], text, 0o600))
	}
	const noNodes, noReports = "you may not list nodes", "you may not list nodereports.tenon.sh"
	for name, x := range map[string]struct {
		user, line string
		fails      bool
		want       []string
	}{
		"explain pod":               {"-user", "explain pod db", false, []string{"/db asks for 2 CPUs of its own.\nIt is on n1: on which CPUs it runs is not known.\n", "Not looked at: nodes (" + noNodes + ").\n", "Not looked at: reports of nodes (" + noReports + ").\n", "the ClusterRole tenon-viewer has this right"}},
		"fit":                       {"-user", "fit " + manifest, true, []string{"/p would find a place is not known: " + noNodes + "\n", "The API server was asked to create such pods, without storing them.\n"}},
		"top":                       {"-user", "top", true, []string{noNodes + ", and " + noReports + ": an administrator can bind the ClusterRole tenon-viewer to you"}},
		"doctor":                    {"-user", "doctor", true, []string{noNodes + ", and " + noReports}},
		"explain pod, of a viewer":  {"-viewer", "explain pod db", false, []string{"It is on n1: no scheduler chose its CPUs, and the node has not reported the pod yet.\n"}},
		"fit, of a viewer":          {"-viewer", "fit " + manifest, false, []string{"At most 1 of 1 pod would find a place now.\n", "Not looked at: pods of other namespaces, with what they request (you may not list pods of all namespaces).\n"}},
		"top, of a viewer":          {"-viewer", "top", false, []string{"\nn1  ", "the waiting pods are not checked: "}},
		"doctor, of a viewer":       {"-viewer", "doctor", false, []string{"1 node, 1 with a report\n", "the waiting pods are not checked: "}},
		"map, of a viewer":          {"-viewer", "map n1", false, []string{"not looked at: pods of other namespaces"}},
		"explain node, of a viewer": {"-viewer", "explain node n1", false, []string{"batch-cpu 5200m: what batch work may count on"}},
	} {
		args := append(strings.Fields(x.line), "--kubeconfig", as[x.user])
		if strings.HasPrefix(x.line, "explain pod") || strings.HasPrefix(x.line, "fit") {
			args = append(args, "-n", s.name)
		}
		out, err := exec.Command(plugin, args...).CombinedOutput()
		if (err != nil) != x.fails {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, want := range x.want {
			if strings.Count(string(out), want) != 1 {
				t.Errorf("%s: want %q once in\n%s", name, want, out)
			}
		}
	}
}

// chartRole returns a Role or a ClusterRole that the chart renders.
func chartRole(t testing.TB, kind, name string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../../../test/chart/testdata/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		if err := decoder.Decode(&o); err != nil {
			t.Fatalf("the chart has no %s %s: %v", kind, name, err)
		}
		if o.GetKind() == kind && o.GetName() == name {
			return &o
		}
	}
}
