// Command tenon runs commands in their QoS class, shows what the node can do and what Tenon would
// write, restores every knob, and runs the experiments of the lab.
package main

import (
	"errors"
	"fmt"
	"os"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/machine/launch"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == launch.GateArg {
		launch.Gate(os.Args[2:])
	}
	os.Exit(execute())
}

// These are the exit statuses. tenon run exits with the status of its command.
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
	fmt.Fprintln(os.Stderr, "tenon: "+oneLine(err))
	var refused *launch.StartError
	switch {
	case errors.As(err, &refused):
		return refused.Status()
	case errors.As(err, new(usageError)):
		return exitUsage
	}
	return exitFailure
}

// oneLine returns the text of an error. Joined errors are on one line, so that
// scripts and logs do not split them.
func oneLine(err error) string {
	return printable.Value(err.Error())
}

// An exitStatus is an error that only makes tenon exit with this status.
// Nothing is printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// A usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
