// Package labcmd has the commands of tenon that run a service beside batch work:
// tenon lab colocation and tenon lab kernel-qos.
package labcmd

import (
	"context"

	"github.com/spf13/cobra"

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
	// SettingFlags adds the flags of every experiment.
	SettingFlags func(cmd *cobra.Command, s *testbed.Setting, agent *bool)
	// Prepare fills in the settings that have no flag.
	Prepare func(s *testbed.Setting, agent bool) error
	// Run runs an experiment and prints its result.
	Run func(cmd *cobra.Command, run func(context.Context) (harness.Outcome, error)) error
}
