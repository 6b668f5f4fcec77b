// Kubectl-tenon is a plugin of kubectl that shows Tenon's state on all nodes of
// a cluster: kubectl tenon top, explain, fit, map and doctor. It reads the
// nodes, their reports and the pods, and changes nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// These are the exit statuses after an error, the same as those of tenon.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand(time.Now).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl-tenon:", err)
		os.Exit(exitStatus(err))
	}
}

func exitStatus(err error) int {
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// A usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
