package labflag

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groups are the parts of the help of an experiment, in order. The first part
// holds all flags that no other part names.
var groups = []struct {
	title string
	flags []string
}{
	{title: "Workload"},
	{"Machine", []string{"cpus", "client-cpus", "max-steal", "max-foreign", "no-check", "state-dir"}},
	{"Statistics", []string{"blocks", "campaign", "design", "margin", "max-time", "no-retry", "resume", "seed", "start-length", "starts", "turn", "until-resolved"}},
	{"Cluster", []string{"kubernetes", "node", "context", "namespace", "config-map", "image", "nginx-image", "ffmpeg-image", "pi-image", "node-port", "batch-pods", "batch-pod-cpu"}},
	{"Result", []string{"out", "help"}},
}

// GroupHelp makes the help of an experiment print its flags in groups.
func GroupHelp(cmd *cobra.Command) {
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	cobra.AddTemplateFunc("groupedFlags", groupedFlags)
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), flags, "{{groupedFlags .LocalFlags}}", 1))
}

func groupedFlags(all *pflag.FlagSet) string {
	sets := make([]*pflag.FlagSet, len(groups))
	for i := range sets {
		sets[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	all.VisitAll(func(f *pflag.Flag) {
		i := 0
		for j, g := range groups {
			if slices.Contains(g.flags, f.Name) {
				i = j
			}
		}
		sets[i].AddFlag(f)
	})
	var b strings.Builder
	for i, g := range groups {
		if sets[i].HasAvailableFlags() {
			b.WriteString(g.title + ":\n" + sets[i].FlagUsages() + "\n")
		}
	}
	return strings.TrimSpace(b.String())
}
