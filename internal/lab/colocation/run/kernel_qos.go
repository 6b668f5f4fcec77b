package run

import (
	"context"

	"tenon.sh/tenon/internal/lab/harness"
)

// KernelQOS runs the colocation experiment with each isolation mechanism that
// this node supports, one at a time. It also traces what runs on the two siblings
// of a core. The files and the result have the same form as those of Run.
func KernelQOS(ctx context.Context, c Config) (harness.Outcome, error) {
	c.kernelQOS = true
	return Run(ctx, c)
}
