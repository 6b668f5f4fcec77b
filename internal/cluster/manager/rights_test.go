package manager

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/rollouts"
	"tenon.sh/tenon/internal/cluster/webhooks"
	"tenon.sh/tenon/internal/config"
)

// chartNamespace is the namespace into which the chart of the tests is rendered.
const chartNamespace = "tenon-system"

// installed installs the roles, the admission policies and the webhooks of the chart, and
// runs the manager as the service account of the chart. From then on, s.rc is the access
// of this account.
func (s *scene) installed() *replica {
	s.t.Helper()
	const namespace, name = chartNamespace, "tenon-manager"
	text, err := os.ReadFile("../../../test/chart/testdata/default.yaml")
	s.must(err)
	made := 0
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		if decoder.Decode(&o) != nil {
			break
		}
		switch o.GetKind() {
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		default:
			continue
		}
		if n := o.GetNamespace(); n != "" {
			err := s.client.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				s.t.Fatal(err)
			}
		}
		if o.GetKind() == "RoleBinding" && o.GetName() == name+"-config" {
			s.config.Namespace = o.GetNamespace()
		}
		s.must(s.client.Create(s.ctx, &o))
		s.t.Cleanup(func() { s.must(s.client.Delete(s.ctx, &o)) })
		made++
	}
	if made < 6 {
		s.t.Fatalf("the chart renders %d roles and bindings", made)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.config.Namespace, Name: s.config.Name}, Data: map[string]string{"colocation-config": `{"enable":true}`}}
	s.must(s.client.Create(s.ctx, m))
	s.t.Cleanup(func() { s.must(s.client.Delete(s.ctx, m)) })

	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	port := l.Addr().(*net.TCPAddr).Port
	s.must(l.Close())
	service := webhooks.Service{Namespace: namespace, URL: fmt.Sprintf("https://127.0.0.1:%d", port)}
	mutating, validating := webhooks.Configurations(name, service, s.config)
	s.must(s.client.Create(s.ctx, mutating), s.client.Create(s.ctx, validating))
	s.t.Cleanup(func() { s.must(s.client.Delete(s.ctx, mutating), s.client.Delete(s.ctx, validating)) })
	admin := s.rc
	s.rc = rest.CopyConfig(admin)
	s.rc.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	return s.start(func(o *Options) {
		o.Namespace, o.Name, o.Host, o.Port, o.Service = namespace, name, "127.0.0.1", port, service
	})
}

// TestTheChartsRightsAreEnough runs the manager as the service account of the
// chart. The account has only the roles that the chart renders.
func TestTheChartsRightsAreEnough(t *testing.T) {
	s := newScene(t)
	admin := s.rc
	r := s.installed()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	s.waitUntil("the report says so", now, func() bool { return s.publishedPart("n1").CPU != nil })
	s.awaitTrust()
	b := batchOf(4000, 4)
	b.CPU.Amount = cpu.reportQuantity(9000)
	s.report("n1", b)
	s.waitUntil("an event says what is refused", soon, func() bool { return s.event("n1", "BatchResourcesDegraded", "refused: batch-cpu") })
	s.gate(true)
	s.awaitGate()
	s.ready("n1")
	gated := s.pod("BE", listOf("kubernetes.io/batch-cpu", "1k"))
	s.must(s.client.Create(s.ctx, gated))
	s.waitUntil("the gate of a batch pod is opened", soon, func() bool { return s.isOpen(gated) })
	own, err := client.New(s.rc, client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	waiting := s.pod("BE", listOf("kubernetes.io/batch-cpu", "900k"))
	waiting.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	s.must(s.client.Create(s.ctx, waiting))
	const removed, gatesOnly, restStays = `"schedulingGates":[{"$patch":"delete","name":"tenon.sh/batch-room"}]`, "and no other one", "nothing of a pod but its gate"
	for text, what := range map[string]string{
		`{"spec":{` + removed + `}}`: "",
		`{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/quota"}]}}`: gatesOnly,
		`{"metadata":{"labels":{"a":"b"}}}`:                                             gatesOnly,
		`{"metadata":{"labels":{"a":"b"}},"spec":{` + removed + `}}`:                    restStays,
		`{"spec":{"containers":[{"name":"main","image":"evil"}],` + removed + `}}`:      restStays,
		`{"spec":{"nodeSelector":{"a":"b"},` + removed + `}}`:                           restStays,
		`{"spec":{"tolerations":[{"key":"a","operator":"Exists"}],` + removed + `}}`:    restStays,
		`{"metadata":{"finalizers":["example.com/keep"]},"spec":{` + removed + `}}`:     restStays,
	} {
		try := func() error {
			return own.Patch(s.ctx, waiting.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(text)), client.DryRunAll)
		}
		if what == "" {
			s.must(try())
			continue
		}
		s.waitUntil("the policy of the chart holds", soon, func() bool { return try() != nil })
		s.refused(try(), what)
	}
	tenant := rest.CopyConfig(admin)
	tenant.Impersonate = rest.ImpersonationConfig{UserName: "tenant", Groups: []string{"system:authenticated"}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: s.name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant"}},
	}
	s.must(s.client.Create(s.ctx, role), s.client.Create(s.ctx, binding))
	user, err := client.New(tenant, client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	open := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{`+removed+`}}`))
	s.waitUntil("a user can change pods", soon, func() bool {
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
		return user.Patch(s.ctx, waiting.DeepCopy(), label, client.DryRunAll) == nil
	})
	s.refused(user.Patch(s.ctx, waiting.DeepCopy(), open, client.DryRunAll), "others need the right to change the namespace")
	s.must(s.client.Patch(s.ctx, waiting.DeepCopy(), open, client.DryRunAll)) // an administrator
	rollout := client.RawPatch(types.MergePatchType, []byte(`{"data":{"rollout-config":"{\"enable\":true,\"marginPercent\":10}"}}`))
	s.must(s.client.Patch(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.config.Namespace, Name: s.config.Name}}, rollout))
	s.waitUntil("a rollout is stored, and labels the node", soon, func() bool {
		var record corev1.ConfigMap
		var node corev1.Node
		return s.client.Get(s.ctx, client.ObjectKey{Namespace: chartNamespace, Name: rollouts.Name}, &record) == nil && record.Data != nil &&
			s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &node) == nil && node.Labels[config.LabelRollout] == config.RolloutOff
	})
	if n := r.log.count("forbidden"); n > 0 {
		t.Errorf("a permission was missing %d times:\n%s", n, r.log.last(40))
	}
	var secret corev1.Secret
	s.must(s.client.Get(s.ctx, client.ObjectKey{Namespace: chartNamespace, Name: "tenon-manager"}, &secret))
	s.must(s.client.Delete(s.ctx, &secret))
	s.waitUntil("the Secret is made anew", soon, func() bool {
		return s.client.Get(s.ctx, client.ObjectKey{Namespace: chartNamespace, Name: "tenon-manager"}, &secret) == nil && len(secret.Data[certificate.KeyCA]) > 0
	})
	s.awaitTrust()
}
