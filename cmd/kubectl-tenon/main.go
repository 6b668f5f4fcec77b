// Kubectl-tenon is a plugin of kubectl that shows Tenon's state on all nodes of
// a cluster: kubectl tenon top, explain, fit, map and doctor. It reads the
// nodes, their reports and the pods, and changes nothing. kubectl tenon translate
// prints manifests as the webhook would change their pods.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/cmdline"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if status := cmdline.End("kubectl-tenon", newRootCommand(time.Now).ExecuteContext(ctx)); status != 0 {
		os.Exit(status)
	}
}
