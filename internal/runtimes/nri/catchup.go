package nri

import (
	"context"
	"maps"
	"slices"
	"time"
)

// catchUpTimes is how often it is asked for the values of a container in vain
// before Tenon leaves it to the loop: its pod may be one that nobody tells any
// more.
const catchUpTimes = 10

// catchUp updates the containers whose values were not known when the runtime
// asked for them, once they are: the runtime writes its own idea of a container
// again at each change. It asks every few deadlines until ctx ends.
func (p *plugin) catchUp(ctx context.Context) {
	select {
	case <-p.configured:
	case <-ctx.Done():
		return
	}
	turn := time.NewTicker(synchronizing * p.Deadline)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		if queries := p.unanswered(); len(queries) > 0 {
			p.update(ctx, queries)
		}
	}
}

// unanswered lists the containers that are worth another question.
func (p *plugin) unanswered() (queries []query) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.open)) {
		if q := p.open[id]; q.times < catchUpTimes {
			queries = append(queries, q)
		}
	}
	return queries
}

// update has the runtime update containers, unless the plugin is leaving.
func (p *plugin) update(ctx context.Context, queries []query) {
	select {
	case p.catching <- struct{}{}:
	default:
		return
	}
	defer func() { <-p.catching }()
	updates := p.updates(ctx, "catch up", queries)
	if len(updates) == 0 {
		return
	}
	if _, err := p.stub.UpdateContainers(updates); err != nil {
		p.Log.Warn("NRI: containers whose values were not known when they were made are not updated: the loop will put it right", "containers", len(updates), "error", err)
	}
}
