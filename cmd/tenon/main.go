// Command tenon runs commands in their QoS class, shows what the node can do
// and what would be written, puts everything back, and runs the experiments.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"tenon.sh/tenon/internal/machine/launch"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == launch.GateArg {
		launch.Gate(os.Args[2:])
	}
	os.Exit(execute())
}

// The exit statuses of Tenon itself. tenon run passes on its command's.
const (
	exitFailure = 1
	exitUsage   = 2
)

// execute runs the command line and returns the exit status.
func execute() int {
	err := newRootCommand().Execute()
	var status exitStatus
	if err == nil {
		return 0
	} else if errors.As(err, &status) {
		return int(status)
	}
	// One line, whatever was joined: scripts and logs keep it together.
	fmt.Fprintln(os.Stderr, "tenon: "+strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	var refused *launch.StartError
	switch {
	case errors.As(err, &refused):
		return refused.Status()
	case errors.As(err, new(usageError)):
		return exitUsage
	}
	return exitFailure
}

// exitStatus ends Tenon with this status and without a message.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// A usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
