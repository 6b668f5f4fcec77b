package nri

import (
	"context"
	"maps"
	"slices"
	"time"
)

// catchUpTimes is the maximum number of requests for the values of one
// container. After that, the plugin leaves the container to the loop of the
// agent, because its pod may be gone.
const catchUpTimes = 10

// catchUp asks at regular intervals, until ctx ends, for values that were not
// known when the runtime asked for them. It then updates these containers.
// Without the update, the runtime would write its own values again at each
// change of the container. It also restores the containers of pods that Tenon
// leaves alone from now on.
func (p *plugin) catchUp(ctx context.Context) {
	select {
	case <-p.configured:
	case <-ctx.Done():
		return
	}
	turn := time.NewTicker(syncDeadlines * p.Deadline)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		if queries := p.listUnanswered(); len(queries) > 0 {
			p.update(ctx, queries)
		}
		if left := p.listIgnored(); len(left) > 0 {
			p.restore(left)
		}
	}
}

// listUnanswered lists the containers whose values must be requested again.
func (p *plugin) listUnanswered() (queries []query) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.open)) {
		if q := p.open[id]; q.times < catchUpTimes {
			queries = append(queries, q)
		}
	}
	return queries
}

// listIgnored lists the containers with values of Tenon whose pods it leaves alone
// now.
func (p *plugin) listIgnored() map[string]owned {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := map[string]owned{}
	for id, o := range p.ours {
		if p.Ignores(o.pod) {
			left[id] = o
		}
	}
	return left
}

// restore restores the kubelet's values of containers, except when the plugin is
// about to end, and restores those of all. After an error, the next turn tries
// again.
func (p *plugin) restore(left map[string]owned) {
	select {
	case p.catching <- struct{}{}:
	default:
		return
	}
	defer func() { <-p.catching }()
	if updates := kubeletUpdates(left); len(updates) > 0 {
		if _, err := p.stub.UpdateContainers(updates); err != nil {
			p.Log.Warn("NRI: cannot restore the kubelet's values of containers that are left alone: tried again", "containers", len(updates), "error", err)
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range left {
		delete(p.ours, id)
	}
}

// update sends updates of containers to the runtime, except when the plugin is
// about to end.
func (p *plugin) update(ctx context.Context, queries []query) {
	select {
	case p.catching <- struct{}{}:
	default:
		return
	}
	defer func() { <-p.catching }()
	updates := p.collectUpdates(ctx, "catch up", queries)
	if len(updates) == 0 {
		return
	}
	if _, err := p.stub.UpdateContainers(updates); err != nil {
		p.Log.Warn("NRI: cannot update containers whose values were not known at their creation: the loop will write the values", "containers", len(updates), "error", err)
	}
}
