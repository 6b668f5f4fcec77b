// Command tenond is the node agent: it keeps best-effort work inside what the
// latency-sensitive services of this machine leave idle.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// The exit statuses. systemd shows them; exitConfig is that of sysexits.h.
const (
	exitFailure = 1
	exitUsage   = 2
	exitConfig  = 78
)

func main() { os.Exit(execute()) }

// execute runs the command line and returns the exit status.
func execute() int {
	err := newRootCommand().Execute()
	if err == nil {
		return 0
	}
	var faults faultsError
	if errors.As(err, &faults) {
		fmt.Fprintln(os.Stderr, err) // one line each, as they were found
		return exitConfig
	}
	// One line, whatever was joined: scripts and logs keep it together.
	fmt.Fprintln(os.Stderr, "tenond: "+strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// A usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
