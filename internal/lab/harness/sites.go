package harness

import (
	"context"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/lab/testbed"
)

// Enter prepares an experiment with the configuration c where it runs: on this
// machine, or with pods on a cluster.
func Enter[C, S any](ctx context.Context, c C, onPods bool, machine, pods func(context.Context, C) (S, error)) (S, error) {
	if onPods {
		machine = pods
	}
	s, err := machine(ctx, c)
	return s, testbed.InterruptError(ctx, err)
}

// Choose returns the cells that can run. refuse returns the reason why a cell
// cannot, and to what the reason applies: to the cell, or to all cells like it. It
// returns no reason if the cell can run. refused lists each reason once.
func Choose[C any](cells []C, refuse func(C) (subject any, why string)) (taken []C, refused []string) {
	for _, c := range cells {
		subject, why := refuse(c)
		if text := fmt.Sprintf("%v: %s", subject, why); why == "" {
			taken = append(taken, c)
		} else if !slices.Contains(refused, text) {
			refused = append(refused, text)
		}
	}
	return taken, refused
}
