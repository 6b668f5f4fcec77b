package nri

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// countingValues is a Values that counts how many of the runtime's questions are
// open at the same time.
type countingValues struct {
	tableValues
	open, most atomic.Int32
}

func (v *countingValues) ask() {
	n := v.open.Add(1)
	for most := v.most.Load(); n > most && !v.most.CompareAndSwap(most, n); most = v.most.Load() {
	}
	time.Sleep(20 * time.Millisecond)
	v.open.Add(-1)
}

func (v *countingValues) Starting(context.Context, Pod, Created) error {
	v.ask()
	return nil
}

func (v *countingValues) Container(context.Context, Pod, string) (Limits, bool, error) {
	v.ask()
	return Limits{}, false, nil
}

// TestTheRuntimeAsksAboutOneContainerAfterTheOther checks a fact about the
// library of the runtimes: while a plugin has a question, it has no other. So
// the waits of all containers of a node add up, and package containerstart
// bounds their sum. If this test fails, that bound may no longer be necessary.
func TestTheRuntimeAsksAboutOneContainerAfterTheOther(t *testing.T) {
	r := start(t, nil, nil)
	values := &countingValues{}
	plug(t, Options{Socket: r.socket, Values: values, Deadline: time.Minute, StartDeadline: time.Minute})
	defer r.BlockPluginSync().Unblock()
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox("ffmpeg"), Container: besteffort("ffmpeg", "main")}); err != nil {
				t.Error(err)
			}
		})
		calls.Go(func() {
			if _, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox("web"), Container: besteffort("web", "main")}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := values.most.Load(); n != 1 {
		t.Errorf("%d questions were open at the same time, want 1", n)
	}
}
