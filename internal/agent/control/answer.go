// This file ends requests to an agent that has its socket but does not answer,
// because it is stopped or hangs.

package control

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoAnswer means that an agent has the socket, but does not answer in time.
var ErrNoAnswer = errors.New("tenond does not answer: it is stopped or hangs")

// An answerWait is the wait of a client for an agent.
type answerWait struct {
	ctx    context.Context
	giveUp context.CancelCauseFunc
	timer  *time.Timer
	where  string
}

// awaitAnswer begins a wait on the socket where, for at most d. The caller must call
// End, and make its request with Context.
func awaitAnswer(ctx context.Context, where string, d time.Duration) *answerWait {
	ctx, giveUp := context.WithCancelCause(ctx)
	return &answerWait{ctx: ctx, giveUp: giveUp, where: where, timer: time.AfterFunc(d, func() { giveUp(ErrNoAnswer) })}
}

// Context returns the context that ends when the agent has not answered in time.
func (w *answerWait) Context() context.Context { return w.ctx }

// Heard begins the wait for the next answer, for at most d.
func (w *answerWait) Heard(d time.Duration) { w.timer.Reset(d) }

// End releases what the wait needs.
func (w *answerWait) End() {
	w.timer.Stop()
	w.giveUp(nil)
}

// Err returns nil while the wait goes on. If the agent did not answer, the error
// is ErrNoAnswer with the socket, and otherwise that of the caller's context.
func (w *answerWait) Err() error {
	err := context.Cause(w.ctx)
	if errors.Is(err, ErrNoAnswer) {
		return noAnswer(w.where)
	}
	return err
}

// noAnswer returns ErrNoAnswer with the socket and an advice.
func noAnswer(where string) error {
	return fmt.Errorf("%w (no answer on %s): see systemctl status tenond, or restart it", ErrNoAnswer, where)
}
