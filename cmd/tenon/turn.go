package main

import (
	"context"
	"log/slog"
	"os"

	"tenon.sh/tenon/internal/agent/loop"
)

// tick returns a function that makes one tick of a's loop. With --verbose, the
// function logs the tick.
func (g *global) tick(a *loop.Agent) func(context.Context) error {
	return func(ctx context.Context) error {
		t, err := a.Step(ctx)
		log := g.log()
		for _, o := range t.Done {
			log.Info("write", "step", o.Step.String(), "by", o.Step.Owner.String(), "error", o.Err)
		}
		log.Info("turn", "sense", t.Sense, "decide", t.Decide, "act", t.Act)
		return err
	}
}

// log returns a logger that discards everything unless --verbose is set.
func (g *global) log() *slog.Logger {
	if !g.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}
