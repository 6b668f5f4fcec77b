// Kubectl-tenon is a plugin of kubectl that shows Tenon's state on all nodes of
// a cluster: kubectl tenon top, explain, fit, map and doctor. It reads the
// nodes, their reports and the pods, and changes nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand(time.Now)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl-tenon:", err)
		os.Exit(1)
	}
}
