// Package labcmd has the commands of tenon that run a service beside batch work:
// tenon lab colocation, kernel-qos, memory and reaction.
package labcmd

import (
	"context"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A Frame contains the functions of the program tenon that the commands of this
// package call.
type Frame struct {
	// Usage marks an error as a mistake in the command line.
	Usage  func(error) error
	NoArgs cobra.PositionalArgs
	// Complete sets the values that a shell offers for a flag.
	Complete func(cmd *cobra.Command, flag string, values ...string)
	// Prepare fills in the settings that have no flag.
	Prepare func(s *testbed.Setting, agent bool) error
	// Run runs an experiment and prints its result.
	Run func(cmd *cobra.Command, run func(context.Context) (harness.Outcome, error)) error
}

// settingFlags adds the flags of every experiment. If outside is not nil, it
// also adds the flag that starts tenond in place of the lab's own loop.
func (f Frame) settingFlags(cmd *cobra.Command, s *testbed.Setting, outside *bool) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of all that is drawn")
	flags.BoolVar(&s.Once, "no-retry", false, "do not repeat void runs")
	if outside != nil {
		flags.BoolVar(outside, "agent", false, "let tenond do the work in Tenon's modes: it finds the workloads by rules")
	}
	flags.Var((*labflag.CPUs)(&s.CPUs), "cpus", "CPUs to test, such as 0-5 (default: all but the client's)")
	flags.Var((*labflag.CPUs)(&s.ClientCPUs), "client-cpus", "CPUs of the lab itself, of its client and of tenond (default: an eighth, whole cores)")
	flags.StringVar(&s.Out, "out", "", "directory of the results (default ./tenon-lab-TIME)")
	for _, name := range []string{"seed", "cpus", "client-cpus"} {
		f.Complete(cmd, name)
	}
}
