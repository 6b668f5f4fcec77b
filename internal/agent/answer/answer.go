// Package answer ends requests to an agent that has its socket but does not
// answer, because it is stopped or hangs.
package answer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoAnswer means that an agent has the socket, but does not answer in time.
var ErrNoAnswer = errors.New("tenond does not answer: it is stopped or hangs")

// A Wait is the wait of a client for an agent.
type Wait struct {
	ctx    context.Context
	giveUp context.CancelCauseFunc
	timer  *time.Timer
	where  string
}

// Begin begins a wait on the socket where, for at most d. The caller must call
// End, and make its request with Context.
func Begin(ctx context.Context, where string, d time.Duration) *Wait {
	ctx, giveUp := context.WithCancelCause(ctx)
	return &Wait{ctx: ctx, giveUp: giveUp, where: where, timer: time.AfterFunc(d, func() { giveUp(ErrNoAnswer) })}
}

// Context returns the context that ends when the agent has not answered in time.
func (w *Wait) Context() context.Context { return w.ctx }

// Heard begins the wait for the next answer, for at most d.
func (w *Wait) Heard(d time.Duration) { w.timer.Reset(d) }

// End releases what the wait needs.
func (w *Wait) End() {
	w.timer.Stop()
	w.giveUp(nil)
}

// Err returns nil while the wait goes on. If the agent did not answer, the error
// is ErrNoAnswer with the socket, and otherwise that of the caller's context.
func (w *Wait) Err() error {
	err := context.Cause(w.ctx)
	if errors.Is(err, ErrNoAnswer) {
		return NoAnswer(w.where)
	}
	return err
}

// NoAnswer returns ErrNoAnswer with the socket and an advice.
func NoAnswer(where string) error {
	return fmt.Errorf("%w (no answer on %s): see systemctl status tenond, or restart it", ErrNoAnswer, where)
}
