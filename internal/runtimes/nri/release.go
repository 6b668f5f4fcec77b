package nri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// kubelet holds the limits that the kubelet gives a container without CPU and
// memory in its spec: no quota and no memory limit (pkg/kubelet/cm). For
// example, a container with batch resources has such a spec.
var kubelet = Limits{Quota: new(int64(-1)), Memory: new(int64(-1))}

// ErrReleased is the error of Run after it has restored the kubelet's values
// of the containers.
var ErrReleased = errors.New("the containers have the kubelet's values again")

// releasing is the time that the runtime may take to update all containers.
const releasing = 10 * time.Second

// Release connects to the runtime and restores the kubelet's values of all
// containers that have values of Tenon. Only the runtime can do this, because
// it stores the values and writes them again at the next change. An uninstall
// calls Release, but never from a container that is being stopped: the runtime
// accepts no new plugin until the container has stopped. Such a container uses
// Options.Leaves instead.
func Release(ctx context.Context, o Options) error {
	p := newPlugin(o.filled())
	p.release = true
	if err := session(ctx, p, func(Link) {}); !errors.Is(err, ErrReleased) {
		return fmt.Errorf("restore the kubelet's values of the containers: %w", err)
	}
	return nil
}

// leave restores the kubelet's values of all containers that have values of
// Tenon. On success it returns ErrReleased.
func (p *plugin) leave() error {
	select {
	case p.catching <- struct{}{}: // from now on, no goroutine sends values of Tenon
	case <-time.After(releasing):
	}
	p.mu.Lock()
	open := maps.Clone(p.open)
	p.mu.Unlock()
	for _, q := range open { // the container may be known now
		p.limits(context.Background(), "release", q.pod, q.container)
	}
	p.mu.Lock()
	ours := maps.Clone(p.ours)
	p.mu.Unlock()
	updates := kubeletUpdates(ours)
	if len(updates) == 0 {
		return ErrReleased
	}
	type reply struct {
		failed []*api.ContainerUpdate
		err    error
	}
	replies := make(chan reply, 1)
	go func() {
		failed, err := p.stub.UpdateContainers(updates)
		replies <- reply{failed, err}
	}()
	var r reply
	select {
	case r = <-replies:
	case <-time.After(releasing):
		r.err = fmt.Errorf("the runtime did not update %d containers within %v", len(updates), releasing)
	}
	if r.err == nil && len(r.failed) > 0 {
		var ids []string
		for _, u := range r.failed {
			ids = append(ids, u.GetContainerId())
		}
		r.err = fmt.Errorf("the runtime could not update %d of %d containers: %s", len(r.failed), len(updates), strings.Join(ids, ", "))
	}
	if r.err != nil {
		p.Log.Warn("NRI: some containers keep values of Tenon", "error", r.err)
		return r.err
	}
	p.Log.Info("NRI: containers have the kubelet's values again", "containers", len(updates))
	return ErrReleased
}

// kubeletUpdates returns the updates that restore the kubelet's values.
func kubeletUpdates(ours map[string]owned) (updates []*api.ContainerUpdate) {
	for _, id := range slices.Sorted(maps.Keys(ours)) {
		u := &api.ContainerUpdate{}
		if set(u, kubeletValues(ours[id].values)) {
			u.SetContainerId(id)
			u.SetIgnoreFailure() // the container may have ended
			updates = append(updates, u)
		}
	}
	return updates
}

// kubeletValues returns the kubelet's values of those fields that l sets.
func kubeletValues(l Limits) (values Limits) {
	if l.Quota != nil {
		values.Quota = kubelet.Quota
	}
	if l.Memory != nil {
		values.Memory = kubelet.Memory
	}
	return values
}
