// Package top shows a live view of a node in a terminal. It shows the CPU usage
// of each workload, by class, and Tenon's last writes with their reasons. The
// view is a pure function of the agent's last answer and the pressed keys.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/model/node"
)

// retryInterval is the time between two attempts to reach the agent if it does
// not answer.
const retryInterval = 2 * time.Second

// Run shows the view until the user quits or ctx ends.
func Run(ctx context.Context, c *control.Client, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := newModel(func(id node.WorkloadID) (control.Explanation, error) {
		return c.ExplainWorkload(ctx, string(id))
	})
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, c, p.Send)
	}()
	_, err := p.Run()
	interrupted := ctx.Err() != nil
	stop()
	<-done
	if interrupted || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("tenon top: %w", err)
	}
	return nil
}

// follow sends each status until ctx ends. While the agent does not answer, it
// sends the reason.
func follow(ctx context.Context, c *control.Client, send func(tea.Msg)) {
	for {
		err := c.Follow(ctx, func(s control.Status) { send(s) })
		if ctx.Err() != nil {
			return
		}
		send(silence{err})
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
	}
}
