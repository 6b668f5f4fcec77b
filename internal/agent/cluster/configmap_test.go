package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/apiserver/apitest"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/tick"
)

// TestATenantsConfigMapReachesNoAgent has a tenant who writes ConfigMaps named
// ack-slo-pod-config in his own namespaces, and keeps changing one. The agent
// must not hold them, because they need memory on every node. Their changes must
// not wake the loop.
func TestATenantsConfigMapReachesNoAgent(t *testing.T) {
	s := apitest.New(t)
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u"}})
	put := func(namespace string, data map[string]string) {
		m := configMap(data)
		m.Name, m.Namespace = kube.PodConfigMap, namespace
		s.Put(m)
	}
	for i := range 3 {
		put(fmt.Sprint("tenant-", i), map[string]string{"ballast": strings.Repeat("x", 1<<10)})
	}
	var events atomic.Int32
	c := openHeardCluster(t, s, t.TempDir(), func(e tick.Event) {
		if e.Kind == tick.EventConfig {
			events.Add(1)
		}
	})
	const watches = 4 // the node, the ConfigMap, and kube.PodConfigMap in two namespaces
	soon(t, "all is known", func() bool {
		_, known := c.podConfigs()
		_, node := c.self.Objects()
		_, config := c.configs.Objects()
		return known && node && config && events.Load() == watches
	})
	if found, _ := c.podConfigs(); len(found) != 0 {
		t.Errorf("the agent holds %d ConfigMaps of tenants", len(found))
	}
	for i := range 10 {
		put("tenant-0", map[string]string{"ballast": fmt.Sprint(i)})
	}
	put("kube-system", map[string]string{"cpu-burst": `{"enabledNamespaces":["web"]}`})
	soon(t, "kube-system counts", func() bool {
		c.FollowConfig()
		return events.Load() > watches && slices.Equal(c.cfg.spaces.CPUBurst.Enabled, []string{"web"})
	})
	if n := events.Load() - watches; n != 1 {
		t.Errorf("%d changes were reported, want 1", n)
	}
}
