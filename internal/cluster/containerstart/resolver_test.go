package containerstart

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// A podSource is a source of pods. It lists the pods of secret only after a
// call of Look.
type podSource struct {
	mu     sync.Mutex
	known  []corev1.Pod
	secret []corev1.Pod // listed after the first look
	looks  int
}

func (s *podSource) Look() { s.Hurry() }

func (s *podSource) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	s.known = append(s.known, s.secret...)
	s.secret = nil
}

func (s *podSource) Known() kubelet.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return kubelet.Known{Pods: s.known}
}

func batchPod() corev1.Pod {
	list := corev1.ResourceList{kube.BatchCPU: resource.MustParse("1500"), kube.BatchMemory: resource.MustParse("1Gi")}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ffmpeg", UID: "u", Labels: map[string]string{kube.LabelQOSClass: "BE"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
	}
}

func TestTheRuntimeIsToldTheKubeletsWordsForBatchResources(t *testing.T) {
	asked := nri.Pod{Namespace: "default", Name: "ffmpeg", UID: "u", Labels: map[string]string{kube.LabelQOSClass: "BE"}}
	written := asked
	written.Annotations = map[string]string{kube.AnnotationExtended: `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1500"},"limits":{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"1Gi"}}}}`}
	for name, c := range map[string]struct {
		pods  *podSource
		pod   nri.Pod
		looks int
	}{
		"the kubelet has listed the pod":        {&podSource{known: []corev1.Pod{batchPod()}}, asked, 0},
		"the kubelet lists it when it is asked": {&podSource{secret: []corev1.Pod{batchPod()}}, asked, 1},
		"only the webhook has":                  {&podSource{}, written, 0},
	} {
		l, ok, err := Resolver{Pods: c.pods}.Container(t.Context(), c.pod, "main")
		if err != nil || !ok || *l.Quota != 150_000 || *l.Period != 100_000 || *l.Memory != 1<<30 {
			t.Errorf("%s: %+v %v %v", name, l, ok, err)
		}
		if c.pods.looks != c.looks {
			t.Errorf("%s: the kubelet was asked %d times, want %d", name, c.pods.looks, c.looks)
		}
	}
}

func TestAPodThatIsNoBatchWorkIsNotWaitedFor(t *testing.T) {
	pods := &podSource{}
	if l, ok, err := (Resolver{Pods: pods}).Container(t.Context(), nri.Pod{UID: "w", Labels: map[string]string{kube.LabelQOSClass: "LS"}}, "main"); ok || err != nil || pods.looks > 0 {
		t.Errorf("%+v %v %v, %d questions", l, ok, err, pods.looks)
	}
}

// TestAPodThatIsLeftAloneDoesNotWait checks a BE pod and one that asks for CPUs,
// which the kubelet does not list.
func TestAPodThatIsLeftAloneDoesNotWait(t *testing.T) {
	pods := &podSource{}
	for _, class := range []string{"BE", "LSR"} {
		p := nri.Pod{UID: "w", Labels: map[string]string{kube.LabelQOSClass: class, kube.LabelIgnore: "true"}}
		s := Resolver{Pods: pods, Containers: New(func() { t.Errorf("%s: the loop is woken", class) })}
		if l, ok, err := s.Container(t.Context(), p, "main"); ok || err != nil {
			t.Errorf("%s: %+v %v %v", class, l, ok, err)
		}
		if err := s.Starting(t.Context(), p, nri.Created{Name: "main", ID: "id"}); err != nil || pods.looks > 0 {
			t.Errorf("%s: %v, %d questions", class, err, pods.looks)
		}
	}
}

func TestAPodThatNobodyKnowsIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, ok, err := Resolver{Pods: &podSource{}}.Container(ctx, nri.Pod{UID: "w", Labels: map[string]string{kube.LabelQOSClass: "BE"}}, "main")
	if ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(ok, err)
	}
}

// TestOnlyWorkThatNeedsTheLoopWaitsForIt checks which containers wait at their
// start: only those of best-effort work and of pods that demand CPUs. The
// kubelet itself sets the limits of services.
func TestOnlyWorkThatNeedsTheLoopWaitsForIt(t *testing.T) {
	for name, c := range map[string]struct {
		class string
		notes map[string]string
		cpu   string
		want  int
	}{
		"best-effort work":                    {"BE", nil, "", 1},
		"a service":                           {"LS", nil, "1", 0},
		"a pod without a class":               {"", nil, "1", 0},
		"a pod with own CPUs":                 {"LSE", nil, "1", 1},
		"an LSR pod of half a CPU":            {"LSR", nil, "500m", 0},
		"a pod with ACK's annotation":         {"", map[string]string{kube.AnnotationCPUSetScheduler: "true"}, "1", 1},
		"a pod with ACK's annotation, off":    {"", map[string]string{kube.AnnotationCPUSetScheduler: "false"}, "1", 0},
		"best-effort work with the same note": {"BE", map[string]string{kube.AnnotationCPUSetScheduler: "true"}, "", 1},
	} {
		woken := 0
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Labels: map[string]string{kube.LabelQOSClass: c.class}, Annotations: c.notes}}
		if c.cpu != "" {
			list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c.cpu)}
			pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
		}
		if _, demands, _ := kube.DemandOf(&pod); demands && !mayDemandCPUs(&pod) {
			t.Errorf("%s: its annotations alone do not tell that it demands CPUs", name)
		}
		resolver := Resolver{&podSource{known: []corev1.Pod{pod}}, New(func() { woken++ })}
		err := resolver.Starting(t.Context(), nri.Pod{UID: "u", Labels: pod.Labels, Annotations: c.notes}, nri.Created{Name: "main", ID: "containerd://1"})
		if err != nil || woken != c.want {
			t.Errorf("%s: the loop was woken %d times, want %d; %v", name, woken, c.want, err)
		}
	}
}

// TestAPodThatTheKubeletListsLateStartsWithoutItsCPUs checks a pod that the
// kubelet does not list in time. Its container starts without its CPUs. The
// next tick that sees the pod binds it.
func TestAPodThatTheKubeletListsLateStartsWithoutItsCPUs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	pods := &podSource{}
	err := Resolver{pods, New(func() { t.Error("the loop was woken for an unknown pod") })}.
		Starting(ctx, nri.Pod{UID: "u", Labels: map[string]string{kube.LabelQOSClass: "LSE"}}, nri.Created{Name: "main", ID: "containerd://1"})
	if !errors.Is(err, context.DeadlineExceeded) || pods.looks == 0 {
		t.Errorf("%v after %d questions to the kubelet", err, pods.looks)
	}
}
