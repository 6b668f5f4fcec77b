package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// askEvery is the time between two readings of what the manager has read from
// Prometheus. The manager asks Prometheus less often.
const askEvery = 5 * time.Second

// hearQueried reads what the manager has read from Prometheus for this node, until
// ctx ends. It asks only while a pod of the node has an objective that needs it.
func (c *Follower) hearQueried(ctx context.Context) {
	failed := ""
	for {
		if c.queries.Load() {
			all, err := c.API.Queried(ctx, c.Node)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && err.Error() != failed:
				failed = err.Error()
				c.log.Warn("what the manager has read from Prometheus is not known; tried again", "error", err)
			case err == nil:
				failed = ""
				c.queried.Store(all)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askEvery*9/10 + rand.N(askEvery/5)):
		}
	}
}

// Queried returns what the manager has read from Prometheus for the services of this
// node. It returns each answer once.
func (c *Follower) Queried() []v1alpha1.QueriedService {
	if all := c.queried.Swap(nil); all != nil {
		return all.Services
	}
	return nil
}
