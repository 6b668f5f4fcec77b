package cluster

import (
	"context"
	"errors"

	"tenon.sh/tenon/internal/cluster/containerstart"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// nri answers the NRI requests of the container runtime until ctx ends.
func (c *Follower) nri(ctx context.Context) {
	o := c.nriOptions()
	o.Changed = func(l nri.Link) { c.link.Store(&l) }
	o.Leaves = c.Leaves
	if err := nri.Run(ctx, o); errors.Is(err, nri.ErrReleased) && c.Released != nil {
		c.Released()
	}
}

func (c *Follower) nriOptions() nri.Options {
	ignores := func(uid string) bool {
		left := c.alone.Load()
		return left != nil && (*left)[uid]
	}
	return nri.Options{Ignores: ignores, Socket: c.NRI, Values: containerstart.Resolver{Pods: c.pods, Containers: c.starting}, V1: c.tree.VersionOf("cpu") == 1, Log: c.log}
}
