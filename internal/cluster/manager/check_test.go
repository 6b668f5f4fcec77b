package manager

import (
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestACheckNamesWhatDoesNotWork checks an installation whose parts come one after
// the other. The check runs with the rights of the chart.
func TestACheckNamesWhatDoesNotWork(t *testing.T) {
	s := newScene(t)
	key, gone := s.agents()
	defer gone()
	target := Target{Agents: key, Config: s.config, Webhooks: true}
	rc := s.checker()
	check := func() Installation {
		t.Helper()
		i, err := Check(s.ctx, rc, target)
		s.must(err)
		return i
	}
	if i := check(); i.Healthy() || i.Wanted != 0 || len(i.Agents) > 0 || !errors.Is(i.Webhook, ErrUnbound) {
		t.Errorf("without an agent: %+v", i)
	}

	s.node("n1")
	s.node("n2")
	var set appsv1.DaemonSet
	s.must(s.client.Get(s.ctx, key, &set))
	set.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, NumberReady: 2}
	s.must(s.client.Status().Update(s.ctx, &set))
	none := int64(0)
	for _, name := range []string{"n1", "n2"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name, Labels: map[string]string{"app": "tenond"}},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "tenond", Image: "tenond"}}}}
		s.must(s.client.Create(s.ctx, pod))
		t.Cleanup(func() { s.must(s.client.Delete(s.ctx, pod, &client.DeleteOptions{GracePeriodSeconds: &none})) })
	}
	s.report("n1", batchOf(4000, 4))
	if i := check(); i.Healthy() || i.Wanted != 2 || !slices.Equal(i.Agents, []string{"n1", "n2"}) || !slices.Equal(i.Silent, []string{"n2"}) || !slices.Equal(i.Bare, []string{"n1"}) {
		t.Errorf("with the report of one agent: %+v", i)
	}

	s.start(s.webhooks)
	s.awaitTrust()
	s.report("n2", batchOf(4000, 4))
	s.waitUntil("the check finds nothing", soon, func() bool { return check().Healthy() })
	if i := check(); !slices.Equal(i.Offering, []string{"n1", "n2"}) {
		t.Errorf("the nodes %v offer batch resources", i.Offering)
	}

	var old v1alpha1.NodeReport
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n2"}, &old))
	old.Status.Reported = metav1.NewMicroTime(time.Now().Add(-time.Hour))
	s.must(s.client.Status().Update(s.ctx, &old))
	if i := check(); i.Healthy() || !slices.Equal(i.Silent, []string{"n2"}) {
		t.Errorf("with a report of an hour ago: %+v", i)
	}
	s.report("n2", batchOf(4000, 4))

	// Without colocation, no node has to have batch resources.
	var m corev1.ConfigMap
	s.must(s.client.Get(s.ctx, s.config, &m))
	m.Data = map[string]string{"colocation-config": `{"enable":false}`}
	s.must(s.client.Update(s.ctx, &m))
	s.becomes("n1", "none none", now)
	if i := check(); !i.Healthy() || len(i.Offering) > 0 {
		t.Errorf("without colocation: %+v", i)
	}
	target.Config.Name = "none-such"
	if _, err := Check(s.ctx, s.rc, target); !apierrors.IsNotFound(err) {
		t.Errorf("without the ConfigMap: %v", err)
	}
}

// checker returns the configuration of a client that has the rights of the chart's
// helm test, in the namespace of the scene.
func (s *scene) checker() *rest.Config {
	s.t.Helper()
	cluster := chartRole(s.t, "ClusterRole", "tenon-check")
	cluster.SetName(s.name + "-check")
	s.must(s.client.Create(s.ctx, cluster))
	s.t.Cleanup(func() { s.must(s.client.Delete(s.ctx, cluster)) })
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: s.name + "-check"}}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	bound := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-check"}, RoleRef: ref("ClusterRole", cluster.GetName()), Subjects: user}
	s.must(s.client.Create(s.ctx, bound))
	s.t.Cleanup(func() { s.must(s.client.Delete(s.ctx, bound)) })
	for _, name := range []string{"tenon-check", "tenon-check-config"} {
		role := chartRole(s.t, "Role", name)
		role.SetNamespace(s.name)
		s.must(
			s.client.Create(s.ctx, role),
			s.client.Create(s.ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, RoleRef: ref("Role", name), Subjects: user}),
		)
	}
	rc := rest.CopyConfig(s.rc)
	rc.Impersonate = rest.ImpersonationConfig{UserName: s.name + "-check", Groups: []string{"system:authenticated"}}
	return rc
}
