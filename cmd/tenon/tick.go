package main

import (
	"context"
	"os"

	"tenon.sh/tenon/internal/agent/loop"
)

// tick returns a function that makes one tick of a's loop, and logs it.
func (g *global) tick(a *loop.Agent) func(context.Context) error {
	log := g.log.Logger(os.Stderr)
	return func(ctx context.Context) error {
		t, err := a.Step(ctx)
		for _, o := range t.Done {
			log.Info("write", "step", o.Step.String(), "by", o.Step.Owner.String(), "error", o.Err)
		}
		log.Info("tick", "sense", t.Sense, "decide", t.Decide, "act", t.Act)
		return err
	}
}
