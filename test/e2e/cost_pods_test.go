package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strategies returns the settings that most clusters have.
func strategies() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "koordinator-system", Name: "slo-controller-config"}, Data: map[string]string{
		"colocation-config":         `{"enable": true}`,
		"resource-threshold-config": `{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65, "cpuSuppressMinPercent": 10}}`,
		"cpu-burst-config":          `{"clusterStrategy": {"policy": "cpuBurstOnly"}}`,
		"resource-qos-config":       `{"clusterStrategy": {"policies": {"cpuIsolation": "strongest"}, "lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}}}}`,
	}}
}

// wakingPod begins the names of the services that wake up.
const wakingPod = "waking-"

// plantHundredPods makes a node with a hundred pods, of which a third are services. The
// processes of so many services wake up all the time, and all others sleep.
func plantHundredPods(t *testing.T, waking int) (*site, *kubelet) {
	t.Helper()
	s, k, api := plantNode(t)
	s.args = append(s.args, "--kubelet-poll", "5s")
	api.Put(strategies())
	uses := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for i := range 100 {
		switch {
		case i%3 != 0:
			s.admit(k, pod(fmt.Sprintf("sleeping-%d", i), "BE", i, batchOf(20)))
		case i/3 < waking:
			p := pod(fmt.Sprintf("%s%d", wakingPod, i), "LS", i, uses("50m"))
			s.run(containerOf(p), "env", "TENON_TEST_ROLE=waker", os.Args[0])
			k.put(p)
		default:
			s.admit(k, pod(fmt.Sprintf("sleeping-%d", i), "LS", i, uses("5m")))
		}
	}
	return s, k
}

// TestCostBesideAHundredPods prints how much CPU time tenond uses on a node of
// a cluster with a hundred pods. Each pod has one sleeping process, and a third
// of the pods are services. The work of the kubelet and the runtime does not
// count.
func TestCostBesideAHundredPods(t *testing.T) {
	if os.Getenv("TENON_TEST_LONG") != "1" {
		t.Skip("it measures for a minute and proves nothing: set TENON_TEST_LONG=1")
	}
	s, _ := plantHundredPods(t, 0)
	address := freeAddress(t)
	s.args = append(s.args, "--metrics", address)
	s.before = s.dump(t)
	d := s.tenond()
	d.await("msg=ready", 1)
	time.Sleep(5 * time.Second) // wait until the first ticks are over
	const span, ticks = time.Minute, `tenon_tick_duration_seconds_count{part="sense"}`
	before, used := scrape(t, address)[ticks], cpuTime(t, d.Process.Pid)
	time.Sleep(span)
	share := 100 * (cpuTime(t, d.Process.Pid) - used).Seconds() / span.Seconds()
	t.Logf("%.3f %% of a CPU, %.2f ticks/s, RssAnon %.1f MiB", share,
		(scrape(t, address)[ticks]-before)/span.Seconds(), float64(anonymous(t, d.Process.Pid))/(1<<20))
	d.stop()
	s.restore()
}
