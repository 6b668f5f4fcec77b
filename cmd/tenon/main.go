// Command tenon runs commands in their QoS class, shows what the node can do and what Tenon would
// write, restores every knob, and runs the experiments of the lab.
package main

import (
	"errors"
	"fmt"
	"os"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/machine/launch"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == launch.GateArg {
		launch.Gate(os.Args[2:])
	}
	os.Exit(execute())
}

// execute runs the command line and returns the exit status. tenon run exits with
// the status of its command.
func execute() int {
	err := newRootCommand().Execute()
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	code := cmdline.End("tenon", err)
	var refused *launch.StartError
	if errors.As(err, &refused) {
		return refused.Status()
	}
	return code
}

// An exitStatus is an error that only makes tenon exit with this status.
// Nothing is printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
