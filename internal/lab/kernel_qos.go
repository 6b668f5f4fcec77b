package lab

import (
	"context"

	"tenon.sh/tenon/internal/lab/frame"
)

// KernelQOS runs the kernel-qos experiment: the colocation experiment with one
// isolation mechanism at a time, for each that this node supports, and with a
// trace of the work that runs on siblings. Its files and its result are as with
// Colocate.
func KernelQOS(ctx context.Context, c Config) (frame.Outcome, error) {
	c.kernelQOS = true
	return Colocate(ctx, c)
}
