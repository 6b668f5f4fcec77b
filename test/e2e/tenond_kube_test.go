package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/apiserver/apitest"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A kubelet lists pods. While away is set, it does not answer.
type kubelet struct {
	*httptest.Server
	mu   sync.Mutex
	pods []corev1.Pod
	away bool
}

func (k *kubelet) leave(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = away
}

func (k *kubelet) put(p corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = append(k.pods, p)
}

// change changes each pod.
func (k *kubelet) change(with func(*corev1.Pod)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.pods {
		with(&k.pods[i])
	}
}

// plantNode makes a site that is a node of a cluster. It has a kubelet and an
// API server whose answers the test sets, and cgroups like those of a kubelet.
func plantNode(t *testing.T) (*site, *kubelet, *apitest.Server) {
	t.Helper()
	s := newSite(t, "node") // without a configuration file
	t.Cleanup(s.disarm)
	k := &kubelet{}
	k.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case k.away:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Header.Get("Authorization") != "Bearer agent":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/pods":
			// The list has a random order, because the real kubelet keeps its
			// pods in a map.
			rand.Shuffle(len(k.pods), func(i, j int) { k.pods[i], k.pods[j] = k.pods[j], k.pods[i] })
			_ = json.NewEncoder(w).Encode(corev1.PodList{Items: k.pods})
		case r.URL.Path == "/configz":
			fmt.Fprintf(w, `{"kubeletconfig":{"cgroupDriver":"cgroupfs","cgroupRoot":"/%s"}}`, s.root)
		}
	}))
	t.Cleanup(k.Close)
	api := apitest.New(t)
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n"}})
	s.args = []string{"--kubernetes", "--config-map", "koordinator-system/slo-controller-config", "--node-name", "node-1", "--kubeconfig", api.Kubeconfig(t), "--kubelet", k.URL, "--kubelet-insecure", "--kubelet-poll", "1s", "--nri", ""}
	return s, k, api
}

// pod returns a pod as a kubelet lists it, with many fields that are not used.
func pod(name, class string, i int, limits corev1.ResourceList) corev1.Pod {
	uid := types.UID(fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i))
	var env []corev1.EnvVar
	for n := range 60 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", n), Value: strings.Repeat("x", 100)})
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, Labels: map[string]string{"koordinator.sh/qosClass": class},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:x":"` + strings.Repeat("y", 4000) + `"}`)}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: "main", Image: "busybox", Env: env, Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", ContainerID: fmt.Sprintf("containerd://%064d", i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

// groupOf returns the cgroup of a pod of the site.
func groupOf(p corev1.Pod) string {
	level := "burstable"
	if p.Labels["koordinator.sh/qosClass"] == "BE" {
		level = "besteffort"
	}
	return "kubepods/" + level + "/pod" + string(p.UID)
}

// admit makes the cgroups of a pod, starts a process in the cgroup of its
// container, and adds the pod to the kubelet's list.
func (s *site) admit(k *kubelet, p corev1.Pod) (group string) {
	s.t.Helper()
	s.run(containerOf(p), "sleep", "100000")
	k.put(p)
	return groupOf(p)
}

// containerOf returns the cgroup of the container of a pod.
func containerOf(p corev1.Pod) string {
	return groupOf(p) + "/" + strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
}

func batchOf(milli int64) corev1.ResourceList {
	return corev1.ResourceList{"kubernetes.io/batch-cpu": *resource.NewQuantity(milli, resource.DecimalSI), "kubernetes.io/batch-memory": resource.MustParse("256Mi")}
}

func isolate(on bool) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "koordinator-system", Name: "slo-controller-config"},
		Data: map[string]string{"resource-qos-config": fmt.Sprintf(`{"clusterStrategy":{"policies":{"cpuIsolation":"cpu.idle"},"lsClass":{"cpuQOS":{"enable":%v}},"beClass":{"cpuQOS":{"enable":%v}}}}`, on, on)}}
}

func (s *site) max(group string) node.CPUMax {
	s.t.Helper()
	v, err := s.tree.ReadCPUMax(string(s.path(group)))
	if err != nil {
		s.t.Fatal(err)
	}
	return node.CPUMax(v)
}

// TestTenondOfAClusterOutlastsAPIServerAndKubelet checks that tenond keeps its
// knobs while kubelet and API server are away, even after a kill and a restart.
// When both are back, it must find the cgroup of a new pod at once, and apply
// changes of the ConfigMap.
func TestTenondOfAClusterOutlastsAPIServerAndKubelet(t *testing.T) {
	inTurn(t)
	s, k, api := plantNode(t)
	api.Put(isolate(true))
	web := s.admit(k, pod("web", "LS", 1, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}))
	job := s.admit(k, pod("job", "BE", 2, batchOf(500)))
	s.before = s.dump(t)
	d := s.tenond()
	bounded := func(group string) func() bool {
		return func() bool {
			return s.max(group) == node.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond} && s.weight(group).Idle
		}
	}
	eventually(t, "the pod has its limits and is idle", bounded(job))
	begun := time.Now()
	late := s.admit(k, pod("late", "BE", 3, batchOf(500)))
	eventually(t, "the next pod has its limits and is idle", bounded(late))
	t.Logf("a new pod had its values after %v", time.Since(begun).Round(time.Millisecond))
	if s.weight(web).Idle {
		t.Error("the service is idle")
	}

	api.RefuseAll(true)
	k.leave(true)
	d.await("using the last list", 1)
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		d.signal(end)
		<-d.end
		held, begun := s.dump(t), s.countIntents()
		d = s.tenond()
		time.Sleep(3 * time.Second)
		if n := s.countIntents(); n != begun {
			t.Errorf("after %v a restart without kubelet and API server began %d writes:\n%s", end, n-begun, d.said())
		}
		if diff := cmp.Diff(held, s.dump(t)); diff != "" {
			t.Errorf("after %v (-before +after):\n%s", end, diff)
		}
	}

	api.RefuseAll(false)
	api.Put(isolate(false))
	eventually(t, "the knobs that the ConfigMap does not set any more are released", func() bool { return !s.weight(job).Idle })
	eventually(t, "and listed", func() bool {
		body, _ := api.Applied("/apis/tenon.sh/v1alpha1/nodereports/node-1/status")
		return strings.Contains(string(body), `"PodsKnown"`) && !strings.Contains(string(body), `"CPUQOS"`)
	})
	d.stop()
	s.restore()
}

// TestNoOtherTenondRunsWhileOneRestoresTheNode removes Tenon from the cluster:
// the API server knows no DaemonSet. While the tenond that must leave asks for
// it, the test freezes that tenond and starts another one, as after the force
// deletion of a pod, which looks the same to the tenond in it. If both ran, the
// first would restore the knobs that the second writes, and take its lease away.
func TestNoOtherTenondRunsWhileOneRestoresTheNode(t *testing.T) {
	s, k, api := plantNode(t)
	s.args = append(s.args, "--daemonset", "tenon-system/tenond")
	api.Put(isolate(true))
	job := s.admit(k, pod("job", "BE", 2, batchOf(500)))
	s.before = s.dump(t)
	first := s.tenond()
	eventually(t, "the pod is idle", func() bool { return s.weight(job).Idle })
	asked, answer := api.Hold("/apis/apps/v1/namespaces/tenon-system/daemonsets/tenond")
	first.signal(syscall.SIGTERM)
	select {
	case <-asked:
	case <-first.end:
		t.Fatal("tenond has ended and did not ask for its DaemonSet")
	case <-time.After(patience):
		t.Fatal("tenond does not ask for its DaemonSet")
	}
	first.signal(syscall.SIGSTOP)
	second := s.launch()
	eventually(t, "the second tenond runs or has ended", func() bool { return second.ended() || strings.Contains(second.said(), "msg=ready") })
	if want := fmt.Sprintf("only one tenond can run on a machine: process %d manages this machine", first.Process.Pid); !second.ended() || !strings.Contains(second.said(), want) {
		t.Errorf("while the first one leaves, the second does not say %q", want)
	}
	close(answer)
	first.signal(syscall.SIGCONT)
	<-first.end
	if diff := cmp.Diff(s.before, s.dump(t)); !first.ProcessState.Success() || diff != "" {
		t.Errorf("the first ended with %v (-before +after):\n%s", first.ProcessState, diff)
	}
	third := s.tenond()
	eventually(t, "the pod is idle again", func() bool { return s.weight(job).Idle })
	third.stop()
	s.restore()
}

// TestTenondThatKnowsNothingLetsGoOfNothing checks a daemon that has no saved
// pods and gets no answer. It must not treat the node as empty.
func TestTenondThatKnowsNothingLetsGoOfNothing(t *testing.T) {
	inTurn(t)
	s, k, api := plantNode(t)
	api.Put(isolate(true))
	job := s.admit(k, pod("job", "BE", 2, batchOf(500)))
	s.before = s.dump(t)
	d := s.tenond()
	eventually(t, "the pod is idle", func() bool { return s.weight(job).Idle })
	d.signal(syscall.SIGKILL)
	<-d.end
	k.leave(true)
	api.RefuseAll(true)
	if err := os.Remove(filepath.Join(s.state, "kubernetes.json")); err != nil {
		t.Fatal(err)
	}
	d = s.launch()
	d.await("are not known yet", 1)
	time.Sleep(3 * time.Second)
	if !s.weight(job).Idle {
		t.Error("the pod was released")
	}
	k.leave(false)
	api.RefuseAll(false)
	d.await("msg=ready", 1)
	if !s.weight(job).Idle {
		t.Error("the pod was released after the restart")
	}
	d.stop()
	s.restore()
}

// TestTenondIsSmallOnANodeOf110Pods measures how much memory tenond with its
// Kubernetes client uses.
func TestTenondIsSmallOnANodeOf110Pods(t *testing.T) {
	inTurn(t)
	const pods, most = 110, 45 << 20
	s, k, api := plantNode(t)
	api.Put(isolate(true))
	for i := range pods {
		class, asks := "LS", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		if i%2 == 0 {
			class, asks = "BE", batchOf(100)
		}
		p := pod(fmt.Sprintf("pod-%d", i), class, i, asks)
		if err := s.tree.Make(string(s.path(groupOf(p) + "/" + strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")))); err != nil {
			t.Fatal(err)
		}
		k.put(p)
	}
	d := s.tenond()
	largest := unit.Bytes(0)
	for i := range 40 {
		if i%2 == 0 { // each list differs from the one before, so tenond decodes all pods
			k.mu.Lock()
			k.pods[0].Status.Message = fmt.Sprint(i)
			k.mu.Unlock()
		}
		time.Sleep(250 * time.Millisecond)
		largest = max(largest, anonymous(t, d.Process.Pid))
	}
	t.Logf("RssAnon with %d pods: at most %.1f MiB, in the end %.1f MiB", pods, float64(largest)/(1<<20), float64(anonymous(t, d.Process.Pid))/(1<<20))
	if largest > most {
		t.Errorf("more than %d MiB", most>>20)
	}
	d.stop()
}

// anonymous returns the anonymous memory of a process.
func anonymous(t *testing.T, pid int) unit.Bytes {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			break
		}
	}
	return unit.Bytes(kib << 10)
}
