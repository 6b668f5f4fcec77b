package jobcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/lab/concurrency/cluster"
)

// clusterFlags are the flags of --kubernetes.
type clusterFlags struct {
	on    bool
	nodes string
}

type clusterFlag struct {
	to          *string
	name, usage string
}

func (t *clusterFlags) list(k *cluster.Config) []clusterFlag {
	return []clusterFlag{
		{&t.nodes, "node", "nodes to test, separated by commas (default: all that take ordinary pods)"},
		{&k.Context, "context", "the context of kubectl (default: the current one)"},
		{&k.Namespace, "namespace", "where the jobs go; made, and removed at the end, if it does not exist (default tenon-lab)"},
		{&k.Image, "image", "the image of the jobs; --input is a film in it (default: that of the published experiment)"},
	}
}

func (t *clusterFlags) add(cmd *cobra.Command, k *cluster.Config) {
	cmd.Flags().BoolVar(&t.on, "kubernetes", false, "run the jobs on nodes of a cluster, as Jobs")
	for _, flag := range t.list(k) {
		cmd.Flags().StringVar(flag.to, flag.name, "", "with --kubernetes: "+flag.usage)
		complete(cmd, flag.name)
	}
}

// machineFlags are the flags that have no effect on a cluster.
var machineFlags = []string{"slice", "window", "warmup", "max-steal", "max-foreign", "cpus"}

// apply refuses flags that have no effect in this combination, and makes the
// configuration of an experiment on a cluster.
func (t *clusterFlags) apply(cmd *cobra.Command, k *cluster.Config) error {
	if !t.on {
		for _, flag := range t.list(k) {
			if cmd.Flags().Changed(flag.name) {
				return fmt.Errorf("--%s is for --kubernetes", flag.name)
			}
		}
		return nil
	}
	for _, name := range machineFlags {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: the pods of a cluster run as a wave on the CPUs that the kubelet gives them: leave it out with --kubernetes", name)
		}
	}
	if strings.TrimSpace(t.nodes) != "" {
		for _, name := range strings.Split(t.nodes, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return fmt.Errorf("--node %q: want names of nodes, separated by commas", t.nodes)
			}
			k.Nodes = append(k.Nodes, name)
		}
	}
	k.Input, k.Config.Input = k.Config.Input, ""
	if !cmd.Flags().Changed("work") {
		k.Work = 0 // a pod needs seconds to begin: its job is longer by default
	}
	return nil
}
