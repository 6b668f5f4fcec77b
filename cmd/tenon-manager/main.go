// Command tenon-manager is the part of Tenon that a cluster has once, in two
// replicas: it publishes what the nodes' agents report as batch resources, and
// answers the API server's webhooks.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// The exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(execute()) }

// execute runs the command line and returns the exit status.
func execute() int {
	err := newRootCommand().Execute()
	if err == nil {
		return 0
	}
	// One line, whatever was joined: logs keep it together.
	fmt.Fprintln(os.Stderr, "tenon-manager: "+strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// A usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
