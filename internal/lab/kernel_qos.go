package lab

import (
	"context"

	"tenon.sh/tenon/internal/lab/frame"
)

// KernelQOS runs the kernel-qos experiment. It is the colocation experiment
// with one isolation mechanism at a time, for each mechanism that this node
// supports, and with a trace of the work that runs on siblings. Its files and
// its result have the form of Colocate's.
func KernelQOS(ctx context.Context, c Config) (frame.Outcome, error) {
	c.kernelQOS = true
	return Colocate(ctx, c)
}
