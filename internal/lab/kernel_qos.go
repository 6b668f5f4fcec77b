package lab

import (
	"context"

	"tenon.sh/tenon/internal/lab/frame"
)

// KernelQOS runs the kernel-qos experiment: the colocation experiment with one
// rung of the isolation ladder at a time, the rungs that this node has, and a
// look at who runs beside whom. What it leaves and returns is as with
// Colocate.
func KernelQOS(ctx context.Context, c Config) (frame.Outcome, error) {
	c.ladder = true
	return Colocate(ctx, c)
}
