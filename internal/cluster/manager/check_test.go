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
	"tenon.sh/tenon/internal/cluster/nodepages"
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

	// A ConfigMap from before the webhooks may have a fault.
	var m corev1.ConfigMap
	s.must(s.client.Get(s.ctx, s.config, &m))
	valid := m.Data
	m.Data = map[string]string{"colocation-config": `{"enable":"perhaps"}`}
	s.must(s.client.Update(s.ctx, &m))
	if i := check(); i.Healthy() || len(i.ConfigFaults) != 1 || len(i.Offering) > 0 {
		t.Errorf("with a fault: %+v", i)
	}
	m.Data = valid
	s.must(s.client.Update(s.ctx, &m))

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

// TestACheckNamesTheFaultsOfTheConfiguration checks settings with which each node that
// offers batch resources has them. A fault of a key makes that no node offers any, so it
// must not look as if colocation were off.
func TestACheckNamesTheFaultsOfTheConfiguration(t *testing.T) {
	const good, bad = `{"enable":true}`, `{"enable":"perhaps"}`
	label := map[string]string{"node.koordinator.sh/memory-reclaim-ratio": "much"}
	annotation := map[string]string{"node.koordinator.sh/colocation-strategy": bad}
	for name, c := range map[string]struct {
		text, other         string
		labels, annotations map[string]string
		without             bool // the node has no agent
		ofMap, ofNode       int
		offers              bool
	}{
		"no fault":                            {good, `{}`, nil, nil, false, 0, 0, true},
		"a fault of the colocation":           {bad, `{}`, nil, nil, false, 1, 0, false},
		"of another key":                      {good, `no JSON`, nil, nil, false, 1, 0, true},
		"of both":                             {bad, `no JSON`, nil, nil, false, 2, 0, false},
		"of a label":                          {good, `{}`, label, nil, false, 0, 1, true},
		"of an annotation":                    {good, `{}`, nil, annotation, false, 0, 1, true},
		"of a label where Tenon does not run": {good, `{}`, label, nil, true, 0, 0, true},
	} {
		n := giveBatch(machineOf(16, 64), 1000, 1<<30)
		other := machineOf(16, 64)
		other.Name, other.Labels, other.Annotations = "n2", c.labels, c.annotations
		giveBatch(other, 1000, 1<<30)
		i := Installation{Wanted: 2, Agents: []string{"n1", "n2"}}
		if c.without {
			i = Installation{Wanted: 1, Agents: []string{"n1"}}
		}
		now := time.Now()
		reports := []v1alpha1.NodeReport{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
		for k := range reports {
			reports[k].Status.Reported = metav1.NewMicroTime(now)
		}
		i.judge(map[string]string{"colocation-config": c.text, "resource-qos-config": c.other}, nodepages.Nodes([]corev1.Node{*n, *other}, reports), now)
		if len(i.ConfigFaults) != c.ofMap || len(i.NodeFaults["n2"]) != c.ofNode || len(i.NodeFaults["n1"]) > 0 {
			t.Errorf("%s: faults %v of the ConfigMap, %v of nodes", name, i.ConfigFaults, i.NodeFaults)
		}
		if want := c.ofMap+c.ofNode == 0; i.Healthy() != want {
			t.Errorf("%s: healthy is %v, want %v: %+v", name, i.Healthy(), want, i)
		}
		if offers := len(i.Offering) == len(i.Agents); offers != c.offers || len(i.Silent) > 0 || len(i.Bare) > 0 {
			t.Errorf("%s: %+v", name, i)
		}
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
