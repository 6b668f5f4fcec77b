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
	// Prepare fills in the settings that have no flag.
	Prepare func(s *testbed.Setting, agent bool) error
	// Run runs an experiment and prints its result.
	Run func(cmd *cobra.Command, run func(context.Context) (harness.Outcome, error)) error
}

// settingFlags adds the flags of every experiment. If outside is not nil, it
// also adds the flag that starts tenond in place of the lab's own loop.
func (f Frame) settingFlags(cmd *cobra.Command, s *testbed.Setting, outside *bool) {
	labflag.Common(cmd, s, "all but the client's")
	if outside != nil {
		cmd.Flags().BoolVar(outside, "agent", false, "let tenond do the work in Tenon's modes: it finds the workloads by rules")
	}
	cmd.Flags().Var((*labflag.CPUs)(&s.ClientCPUs), "client-cpus", "CPUs of the lab itself, of its client and of tenond (default: an eighth, whole cores)")
}
