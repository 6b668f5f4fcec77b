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
// change of the container.
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
