// Command tenon-manager publishes the batch resources that the agents report,
// and answers the webhooks of the API server. A cluster has one manager,
// usually with two replicas.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Exit statuses.
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
	// Joined errors are printed on one line, so that logs do not split them.
	fmt.Fprintln(os.Stderr, "tenon-manager: "+strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// A usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
