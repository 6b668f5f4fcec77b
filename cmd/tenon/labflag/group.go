package labflag

import (
	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
)

// groups are the parts of the help of an experiment, in order. The first part
// holds all flags that no other part names.
var groups = []cmdline.FlagGroup{
	{Title: "Workload"},
	{Title: "Machine", Flags: []string{"cpus", "client-cpus", "max-steal", "max-foreign", "no-check", "state-dir"}},
	{Title: "Statistics", Flags: []string{"blocks", "campaign", "design", "margin", "max-time", "no-retry", "resume", "seed", "start-length", "starts", "turn", "until-resolved"}},
	{Title: "Cluster", Flags: []string{"kubernetes", "node", "context", "namespace", "config-map", "image", "nginx-image", "ffmpeg-image", "pi-image", "node-port", "batch-pods", "batch-pod-cpu"}},
	{Title: "Result", Flags: []string{"csv", "from", "out", "output", "to", "yes"}},
}

// GroupHelp makes the help of an experiment print its flags in groups. It must be
// called when the command has all its flags.
func GroupHelp(cmd *cobra.Command) { cmdline.GroupFlags(cmd.Flags(), groups...) }
