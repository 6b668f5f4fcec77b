package jobcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/lab/concurrency/run"
)

// clusterFlags are the flags of --kubernetes.
type clusterFlags struct {
	on    bool
	texts []clusterFlag
	alone []string // flags that are about this machine and have no effect on a cluster
}

// A clusterFlag is a text flag that needs --kubernetes.
type clusterFlag struct {
	to          *string
	name, usage string
}

// add adds the flags. what describes the work that runs on the nodes.
func (t *clusterFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&t.on, "kubernetes", false, what)
	for _, flag := range t.texts {
		cmd.Flags().StringVar(flag.to, flag.name, "", "with --kubernetes: "+flag.usage)
		complete(cmd, flag.name)
	}
}

// check refuses flags that have no effect in this combination.
func (t *clusterFlags) check(cmd *cobra.Command, more ...string) error {
	if !t.on {
		for _, flag := range t.texts {
			more = append(more, flag.name)
		}
		for _, name := range more {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s is for --kubernetes", name)
			}
		}
		return nil
	}
	for _, name := range t.alone {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s has no effect on the pods of a cluster: leave it out with --kubernetes", name)
		}
	}
	return nil
}

// jobFlags are the flags of tenon lab concurrency --kubernetes.
type jobFlags struct {
	clusterFlags
	nodes string
}

func newJobFlags(k *run.Pods) *jobFlags {
	t := &jobFlags{}
	t.texts = []clusterFlag{
		{&t.nodes, "node", "nodes to test, separated by commas (default: all that take ordinary pods)"},
		{&k.Context, "context", "the context of kubectl (default: the current one)"},
		{&k.Namespace, "namespace", "where the jobs go; made, and removed at the end, if it does not exist (default tenon-lab)"},
		{&k.Image, "image", "the image of the jobs; --input is a film in it (default: that of the published experiment)"},
	}
	t.alone = []string{"slice", "window", "warmup", "max-steal", "max-foreign", "cpus"}
	return t
}

// apply makes the configuration of an experiment on a cluster.
func (t *jobFlags) apply(cmd *cobra.Command, c *run.Config, k *run.Pods) error {
	if err := t.check(cmd); err != nil || !t.on {
		return err
	}
	if strings.TrimSpace(t.nodes) != "" {
		for _, name := range strings.Split(t.nodes, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return fmt.Errorf("--node %q: want names of nodes, separated by commas", t.nodes)
			}
			k.Nodes = append(k.Nodes, name)
		}
	}
	c.Pods = k
	if !cmd.Flags().Changed("work") {
		c.Work = 0 // a pod needs seconds to begin: its job is longer by default
	}
	return nil
}
