// Command tenond is the node agent, which keeps best-effort work within the CPU
// and memory that the latency-sensitive services of this machine leave idle.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// These are the exit statuses, which systemd prints. exitConfig is from sysexits.h.
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
		fmt.Fprintln(os.Stderr, err) // one line for each fault, in the order of the file
		return exitConfig
	}
	// Joined errors are printed on one line, so that scripts and logs do not
	// split them.
	fmt.Fprintln(os.Stderr, "tenond: "+strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// A usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
