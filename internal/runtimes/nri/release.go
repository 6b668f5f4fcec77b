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

// kubelet are the values that the kubelet gives a container which asks for no
// CPU and no memory of its own, as one does that asks for batch resources
// (pkg/kubelet/cm: no quota, no limit).
var kubelet = Limits{Quota: new(int64(-1)), Memory: new(int64(-1))}

// ErrReleased ends what has given the containers the kubelet's values again.
var ErrReleased = errors.New("the containers have the kubelet's values again")

// releasing bounds how long the runtime may take to update them all.
const releasing = 10 * time.Second

// Release gives the containers that have values of Tenon those of the kubelet
// again, for an uninstall, by a connection of its own. A container that is being
// stopped must not: the runtime takes no new plugin until it has ended (Run
// has Leaves for that). Only the runtime can give them back, as far as it
// remembers them: it writes them again when it is asked for another change.
func Release(ctx context.Context, o Options) error {
	p := newPlugin(o.filled())
	p.release = true
	if err := session(ctx, p, func(Link) {}); !errors.Is(err, ErrReleased) {
		return fmt.Errorf("give the containers the kubelet's values: %w", err)
	}
	return nil
}

// leave updates all containers of which Tenon has set something. It returns
// ErrReleased when that is done.
func (p *plugin) leave() error {
	select {
	case p.catching <- struct{}{}: // and nobody catches up any more
	case <-time.After(releasing):
	}
	p.mu.Lock()
	open := maps.Clone(p.open)
	p.mu.Unlock()
	for _, q := range open { // by now it may be known
		p.limits(context.Background(), "release", q.pod, q.container)
	}
	p.mu.Lock()
	ours := maps.Clone(p.ours)
	p.mu.Unlock()
	var updates []*api.ContainerUpdate
	for _, id := range slices.Sorted(maps.Keys(ours)) {
		u := &api.ContainerUpdate{}
		if set(u, back(ours[id])) {
			u.SetContainerId(id)
			u.SetIgnoreFailure() // it may have ended
			updates = append(updates, u)
		}
	}
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
		p.Log.Warn("NRI: containers keep values of Tenon", "error", r.err)
		return r.err
	}
	p.Log.Info("NRI: containers have the kubelet's values again", "containers", len(updates))
	return ErrReleased
}

// back are the kubelet's values for what Tenon has set.
func back(l Limits) (values Limits) {
	if l.Quota != nil {
		values.Quota = kubelet.Quota
	}
	if l.Memory != nil {
		values.Memory = kubelet.Memory
	}
	return values
}
