// Package commands makes an operator's requests wait for the tick that applies
// them. It also saves the operator's choices for the next daemon.
package commands

import (
	"context"
	"encoding/json"
	"fmt"

	"tenon.sh/tenon/internal/machine/statedir"
)

// A Queue holds the callers whose requests wait for a tick. The zero Queue is
// empty. The requests change some data; the caller of a method must hold the
// lock of these data.
type Queue struct {
	waiting []chan error // callers whose requests the next tick applies
	ticking []chan error // callers whose requests the present tick applies
}

// Add adds a caller. The returned channel gets one value when a tick has
// applied the request: nil or the error.
func (q *Queue) Add() <-chan error {
	done := make(chan error, 1)
	q.waiting = append(q.waiting, done)
	return done
}

// Begin must be called when a tick begins. The tick applies the requests that
// are in the queue at this time.
func (q *Queue) Begin() {
	q.ticking, q.waiting = append(q.ticking, q.waiting...), nil
}

// End passes the result of the tick to the callers. If applied is false, the
// tick could not read the node, and the callers wait for the next tick.
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

// Wait returns the result of a request. If ctx ends first, it returns an error.
// The error begins with the argument request, which describes the request.
func Wait(ctx context.Context, done <-chan error, request string) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s, but no tick of tenond has applied it yet: %w", request, ctx.Err())
	}
}

// Save writes a value as JSON into a file that only its owner may read. If the
// daemon is killed during the write, the old file stays complete.
func Save(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return statedir.WriteFile(path, text)
}
