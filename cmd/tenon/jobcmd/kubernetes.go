package jobcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/lab/concurrency/run"
)

// jobFlags are the flags of tenon lab concurrency --kubernetes.
type jobFlags struct {
	labflag.Cluster
	nodes string
}

func newJobFlags(k *run.Pods) *jobFlags {
	t := &jobFlags{}
	t.Nodes = true
	t.Texts = []labflag.ClusterText{
		labflag.Text(&t.nodes, "node", "nodes to test, separated by commas (default: all that take ordinary pods)"),
		labflag.Text(&k.Image, "image", "the image of the jobs; --input is a film in it (default: that of the published experiment)"),
	}
	t.Alone = []string{"slice", "window", "warmup", "max-steal", "max-foreign", "cpus"}
	return t
}

// apply makes the configuration of an experiment on a cluster.
func (t *jobFlags) apply(cmd *cobra.Command, c *run.Config, k *run.Pods) error {
	if err := t.Check(cmd); err != nil || !t.On {
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
