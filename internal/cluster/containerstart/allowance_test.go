package containerstart

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// tickGap is the time between two ticks of the loop in a storm, on a node where
// a tick takes tickLength.
const tickGap, tickLength = 400 * time.Millisecond, 20 * time.Millisecond

// runLoop runs a loop in a storm of events, which ticks every tickGap until the
// test ends.
func runLoop(t *testing.T, c *Containers) {
	var running sync.WaitGroup
	running.Go(func() {
		for ctx := t.Context(); ctx.Err() == nil; {
			c.Begin()
			time.Sleep(tickLength)
			c.End()
			select {
			case <-ctx.Done():
			case <-time.After(tickGap - tickLength):
			}
		}
	})
	t.Cleanup(running.Wait)
}

// besteffortPod returns the i-th pod of a storm, as the runtime knows it.
func besteffortPod(i int) nri.Pod {
	return nri.Pod{UID: fmt.Sprint("u", i), Labels: map[string]string{kube.LabelQOSClass: "BE"}}
}

func created(i int) nri.Created {
	return nri.Created{Name: "main", ID: fmt.Sprint("containerd://", i)}
}

// ownCPUPod returns a pod with own CPUs, as the kubelet and as the runtime know
// it.
func ownCPUPod() (corev1.Pod, nri.Pod) {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "own", Labels: map[string]string{kube.LabelQOSClass: "LSE"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
	}
	return p, nri.Pod{UID: "own", Labels: p.Labels}
}

// TestAStormOfStartsDelaysNoOtherContainerForLong starts 60 best-effort
// containers at once. The runtime asks about one after the other, and does
// nothing else meanwhile: here a lock stands for it. A service whose container
// the runtime creates after them must not wait for 60 ticks. The loop must know
// all containers, so that the next tick writes their limits. A pod that demands
// CPUs must still have its tick.
func TestAStormOfStartsDelaysNoOtherContainerForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const starts = 60
		own, asRuntime := ownCPUPod()
		woken := 0
		containers := New(func() { woken++ })
		resolver := Resolver{&podSource{known: []corev1.Pod{own}}, containers}
		runLoop(t, containers)
		time.Sleep(tickGap / 2) // between two ticks
		runtime, begun := make(chan struct{}, 1), time.Now()
		calls := make(chan error, starts)
		for i := range starts {
			go func() {
				runtime <- struct{}{}
				err := resolver.Starting(t.Context(), besteffortPod(i), created(i))
				<-runtime
				calls <- err
			}()
		}
		synctest.Wait() // all starts are before the service
		runtime <- struct{}{}
		_, ours, err := resolver.Container(t.Context(), nri.Pod{UID: "web", Labels: map[string]string{kube.LabelQOSClass: "LS"}}, "main")
		if took, most := time.Since(begun), bestEffortAllowance+MaxWait; took < bestEffortAllowance || took > most || ours || err != nil {
			t.Errorf("the service waited %v for the starts, want at most %v; %v", took, most, err)
		}
		for range starts {
			if err := <-calls; err != nil {
				t.Error(err)
			}
		}
		if woken != starts {
			t.Errorf("the loop was woken %d times, want %d", woken, starts)
		}
		var pods []corev1.Pod
		for i := range starts {
			pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i))}, Spec: own.Spec})
		}
		for i, p := range containers.AddTo(pods, time.Now()) {
			if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].ContainerID != created(i).ID {
				t.Errorf("the next tick does not know container %d: %+v", i, p.Status)
			}
		}
		begun = time.Now()
		if err := resolver.Starting(t.Context(), asRuntime, created(starts)); err != nil || time.Since(begun) == 0 {
			t.Errorf("a pod that demands CPUs waited %v: %v", time.Since(begun), err)
		}
	})
}

// TestWaitsTakeAShareOfTheTime starts containers for two minutes, one after the
// other and without a pause.
func TestWaitsTakeAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		containers := New(func() {})
		resolver := Resolver{&podSource{}, containers}
		runLoop(t, containers)
		const whole = 2 * time.Minute
		var waited time.Duration
		for begun, i := time.Now(), 0; time.Since(begun) < whole; i++ {
			before := time.Now()
			if err := resolver.Starting(t.Context(), besteffortPod(i), created(i)); err != nil {
				t.Fatal(err)
			}
			waited += time.Since(before)
			time.Sleep(10 * time.Millisecond) // the start itself
		}
		if least, most := whole/returnShare, whole/returnShare+bestEffortAllowance+MaxWait; waited < least || waited > most {
			t.Errorf("of %v, containers waited %v, want %v to %v", whole, waited, least, most)
		}
	})
}

// TestPodsThatTheKubeletDoesNotListDelayNoOthersForLong creates and starts
// containers of pods that the kubelet never lists. The plugin must get an error,
// so that it asks again later.
func TestPodsThatTheKubeletDoesNotListDelayNoOthersForLong(t *testing.T) {
	for name, ask := range map[string]func(context.Context, Resolver, int) error{
		"best-effort work is created": func(ctx context.Context, r Resolver, i int) error {
			_, _, err := r.Container(ctx, besteffortPod(i), "main")
			return err
		},
		"a pod with own CPUs starts": func(ctx context.Context, r Resolver, i int) error {
			_, p := ownCPUPod()
			return r.Starting(ctx, p, created(i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := &podSource{}
				resolver, begun := Resolver{pods, New(func() {})}, time.Now()
				const asked = 60
				var err error
				for i := range asked {
					ctx, end := context.WithTimeout(t.Context(), nri.DefaultDeadline)
					err = ask(ctx, resolver, i)
					if end(); err == nil {
						t.Fatal("no error")
					}
				}
				if took, most := time.Since(begun), demandAllowance+MaxWait; took > most || !errors.Is(err, errSpent) {
					t.Errorf("%d questions took %v, want at most %v: %v", asked, took, most, err)
				}
				if pods.looks != asked {
					t.Errorf("the kubelet was asked %d times, want %d", pods.looks, asked)
				}
			})
		})
	}
}

// TestAContainerThatDoesNotWaitIsKnown starts a container of a pod with own CPUs
// after other waits have spent the allowance, and before the kubelet lists the
// pod. The loop must know the container as soon as the pod is listed.
func TestAContainerThatDoesNotWaitIsKnown(t *testing.T) {
	woken := 0
	containers := New(func() { woken++ })
	containers.waits.spend(time.Now().Add(-demandAllowance-time.Second), time.Now())
	own, asRuntime := ownCPUPod()
	if err := (Resolver{&podSource{}, containers}).Starting(t.Context(), asRuntime, created(7)); !errors.Is(err, errSpent) {
		t.Errorf("%v, want %v", err, errSpent)
	}
	if pods := containers.AddTo([]corev1.Pod{own}, time.Now()); len(pods[0].Status.ContainerStatuses) != 1 || woken != 1 {
		t.Errorf("the loop was woken %d times, and knows the containers %+v", woken, pods[0].Status.ContainerStatuses)
	}
}
