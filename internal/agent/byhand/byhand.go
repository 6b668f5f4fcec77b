// Package byhand lets the requests of an operator wait for the tick that
// applies them. It also saves what the operator chose, for the next daemon.
package byhand

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// A Queue holds the callers whose requests no tick has applied yet. The zero
// value is empty. The caller of a method must hold the lock of the data that is
// requested.
type Queue struct {
	waiting []chan error // for the next tick
	ticking []chan error // callers whose requests the present tick applies
}

// Add returns a channel. When a tick has applied the request, the channel
// receives its outcome, which is nil for success.
func (q *Queue) Add() <-chan error {
	done := make(chan error, 1)
	q.waiting = append(q.waiting, done)
	return done
}

// Begin marks the beginning of a tick. This tick applies all requests that were
// added before.
func (q *Queue) Begin() {
	q.ticking, q.waiting = append(q.ticking, q.waiting...), nil
}

// End gives the outcome of the tick to the callers. If the tick could not read
// the node, it applied nothing, and the callers wait for the next tick.
func (q *Queue) End(applied bool, outcome error) {
	if !applied {
		q.waiting, q.ticking = append(q.ticking, q.waiting...), nil
		return
	}
	for _, done := range q.ticking {
		done <- outcome
	}
	q.ticking = nil
}

// Wait returns the outcome of a request. If ctx ends before a tick has applied
// the request, Wait returns an error. The error begins with the text request,
// which is a sentence about the request.
func Wait(ctx context.Context, done <-chan error, request string) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s, but no tick of tenond has applied it yet: %w", request, ctx.Err())
	}
}

// Save writes a value as JSON. If the daemon is killed meanwhile, the old file
// remains. Only the owner may read the file.
func Save(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
