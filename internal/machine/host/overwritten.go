package host

import (
	"context"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// storedWithin is a time after which a value that Tenon has written is in the cache: the
// kernel tells of the write before it returns.
const storedWithin = 5 * time.Millisecond

// FollowOverwritten calls tell when another component has written a knob that it was found
// to have written twice before, until ctx ends. So such a write does not last until the
// next tick. Only a resident host knows these knobs. The error of a cgroup that cannot be
// watched goes to fail: its writes are found in the next tick. After an error no write is told.
func (h *Host) FollowOverwritten(ctx context.Context, tell func(node.Knob), fail func(error)) error {
	if h.cache == nil {
		return nil
	}
	w, err := h.tree.WatchWrites(ctx)
	if err != nil {
		return err
	}
	h.cache.watchBy(func(groups []string) {
		if err := w.Only(groups); err != nil {
			fail(err)
		}
	})
	go func() {
		for path := range w.Wrote() {
			if _, found := h.cache.findOverwritten(node.CgroupPath(path)); !found {
				continue
			}
			// It may be a write of Tenon that is not in the cache yet.
			select {
			case <-ctx.Done():
			case <-time.After(storedWithin):
			}
			if k, found := h.cache.findOverwritten(node.CgroupPath(path)); found {
				tell(k)
			}
		}
	}()
	return nil
}
