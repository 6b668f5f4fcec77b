package containerstart

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAContainerStartsAfterATickThatSawIt runs ticks of a given length. If a
// tick runs when the runtime announces the container, it may already have read
// the pods. Therefore the start must wait for the next tick.
func TestAContainerStartsAfterATickThatSawIt(t *testing.T) {
	for name, c := range map[string]struct{ at, tick, want time.Duration }{
		"between two ticks": {50 * time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond},
		"during a tick":     {10 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond},
		"the loop hangs":    {10 * time.Millisecond, time.Minute, MaxWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wake := make(chan struct{}, 1)
				s := New(func() { wake <- struct{}{} })
				tick := func() {
					s.Begin()
					time.Sleep(c.tick)
					s.End()
				}
				go func() {
					tick()
					<-wake
					tick()
				}()
				time.Sleep(c.at)
				begun := time.Now()
				s.Await(t.Context(), "u", "main", "containerd://1")
				if took := time.Since(begun); took != c.want {
					t.Errorf("the start waited %v, want %v", took, c.want)
				}
				time.Sleep(3 * time.Minute)
			})
		})
	}
}

// TestAStartThatWaitsInVainAnswersInTime gives a start a deadline that is
// earlier than the end of MaxWait. An answer after the deadline would cause a
// warning for each container.
func TestAStartThatWaitsInVainAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 750*time.Millisecond)
		defer end()
		s, begun := New(func() {}), time.Now()
		s.Await(ctx, "u", "main", "containerd://1")
		if took := time.Since(begun); ctx.Err() != nil || took != 750*time.Millisecond-answerMargin {
			t.Errorf("the start answered after %v: %v", took, ctx.Err())
		}
	})
}

func pod(id string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: id}}},
	}
}

// TestAContainerIsKnownUntilTheKubeletReportsIt checks that the list of pods
// contains the id of a container before the kubelet reports it. Afterwards the
// id must come from the kubelet.
func TestAContainerIsKnownUntilTheKubeletReportsIt(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // no start waits
	s := New(func() {})
	now := time.Now()
	idOf := func(p corev1.Pod) string { return p.Status.ContainerStatuses[0].ContainerID }

	s.Await(ended, "u", "main", "containerd://new")
	kubelets := pod("containerd://old")
	got := s.AddTo([]corev1.Pod{kubelets}, now)
	if idOf(got[0]) != "containerd://new" || idOf(kubelets) != "containerd://old" {
		t.Errorf("the pod has the id %q, and the kubelet's own %q", idOf(got[0]), idOf(kubelets))
	}
	s.AddTo([]corev1.Pod{pod("containerd://new")}, now)
	if got := s.AddTo([]corev1.Pod{pod("containerd://newer")}, now); idOf(got[0]) != "containerd://newer" {
		t.Errorf("the pod has the id %q after the kubelet reported another", idOf(got[0]))
	}

	s.Await(ended, "u", "main", "containerd://lost")
	if got := s.AddTo([]corev1.Pod{pod("")}, now.Add(2*reportLimit)); idOf(got[0]) != "" || len(s.of) != 0 {
		t.Errorf("the pod has the id %q of a container that the kubelet never reported", idOf(got[0]))
	}
	s.Await(ended, "u", "stranger", "containerd://1")
	if s.AddTo([]corev1.Pod{pod("")}, now); len(s.of) != 0 {
		t.Error("a container that is not in the pod's spec is remembered")
	}
}
