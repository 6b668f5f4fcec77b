// Command tenond is the node agent, which keeps best-effort work within the CPU
// and memory that the latency-sensitive services of this machine leave idle.
package main

import (
	"errors"
	"fmt"
	"os"

	"tenon.sh/tenon/internal/cmdline"
)

// exitConfig is the exit status after a fault in the configuration, from
// sysexits.h. systemd prints it.
const exitConfig = 78

func main() { os.Exit(execute()) }

// execute runs the command line and returns the exit status.
func execute() int {
	err := newRootCommand().Execute()
	var faults faultsError
	if errors.As(err, &faults) {
		fmt.Fprintln(os.Stderr, err) // one line for each fault, in the order of the file
		return exitConfig
	}
	return cmdline.End("tenond", err)
}
