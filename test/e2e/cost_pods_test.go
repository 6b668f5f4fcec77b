package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/kernel/proc"
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

// TestCostBesideAHundredPods prints how much CPU time tenond uses on a node of
// a cluster with a hundred pods. Each pod has one sleeping process, and a third
// of the pods are services. The work of the kubelet and the runtime does not
// count.
func TestCostBesideAHundredPods(t *testing.T) {
	if os.Getenv("TENON_TEST_LONG") != "1" {
		t.Skip("it measures for a minute and proves nothing: set TENON_TEST_LONG=1")
	}
	s, k, api := plantNode(t)
	address := freeAddress(t)
	s.args = append(s.args, "--kubelet-poll", "5s", "--metrics", address)
	api.Put(strategies())
	for i := range 100 {
		class, asks := "BE", batchOf(20)
		if i%3 == 0 {
			class, asks = "LS", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}
		}
		s.admit(k, pod(fmt.Sprintf("sleeping-%d", i), class, i, asks))
	}
	s.before = s.dump(t)
	d := s.tenond()
	d.await("msg=ready", 1)
	time.Sleep(5 * time.Second) // wait until the first ticks are over
	fs := proc.Default()
	use := func() (sum time.Duration) {
		threads, err := fs.Threads(d.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		for _, tid := range threads {
			if r, err := fs.SchedStat(d.Process.Pid, tid); err == nil {
				sum += r.Run
			}
		}
		return sum
	}
	const span, ticks = time.Minute, `tenon_tick_duration_seconds_count{part="sense"}`
	before, used := scrape(t, address)[ticks], use()
	time.Sleep(span)
	share := 100 * (use() - used).Seconds() / span.Seconds()
	t.Logf("%.3f %% of a CPU, %.2f ticks/s, RssAnon %.1f MiB", share,
		(scrape(t, address)[ticks]-before)/span.Seconds(), float64(anonymous(t, d.Process.Pid))/(1<<20))
	d.stop()
	s.restore()
}
