package labflag

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/testbed"
)

// Common adds the flags of every experiment. tested names the CPUs that are tested
// if the user names none.
func Common(cmd *cobra.Command, s *testbed.Setting, tested string) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of all that is drawn")
	flags.BoolVar(&s.Once, "no-retry", false, "do not repeat void runs")
	flags.Float64Var(&s.StealPercent, "max-steal", 1, "steal time, in percent of the tested CPUs, above which a run is void")
	flags.Var((*CPUs)(&s.CPUs), "cpus", "CPUs to test, such as 0-5 (default: "+tested+")")
	flags.StringVar(&s.Out, "out", "", "directory of the results (default ./tenon-lab-TIME)")
	cmdline.Dirs(flags, "out")
}

// Cluster has the flags of --kubernetes.
type Cluster struct {
	On    bool
	Texts []ClusterText
	Alone []string // flags that are about this machine and have no effect on a cluster
	Nodes bool     // --node takes several nodes
}

// A ClusterText is a text flag that needs --kubernetes.
type ClusterText struct {
	to          *string
	name, usage string
}

// Text returns a text flag that needs --kubernetes.
func Text(to *string, name, usage string) ClusterText { return ClusterText{to, name, usage} }

// Add adds the flags. what describes what runs on the cluster.
func (c *Cluster) Add(cmd *cobra.Command, t *kubectl.Target, what string) {
	cmd.Flags().BoolVar(&c.On, "kubernetes", false, what)
	c.Texts = append(c.Texts,
		ClusterText{&t.Context, "context", "the context of kubectl (default: the current one)"},
		ClusterText{&t.Namespace, "namespace", "where the pods go; made, and removed at the end, if it does not exist (default tenon-lab)"})
	for _, flag := range c.Texts {
		cmd.Flags().StringVar(flag.to, flag.name, "", "with --kubernetes: "+flag.usage)
	}
	const names = "--output=jsonpath={.items[*].metadata.name}"
	cmdline.CompleteFrom(cmd, "context", namesFrom(t, "config", "get-contexts", "--output=name"))
	cmdline.CompleteFrom(cmd, "namespace", namesFrom(t, "get", "namespaces", names))
	if nodes := namesFrom(t, "get", "nodes", names); c.Nodes {
		cmdline.CompleteListFrom(cmd, "node", nodes)
	} else {
		cmdline.CompleteFrom(cmd, "node", nodes)
	}
}

// shellPatience is the time that kubectl may take while a shell waits for names.
const shellPatience = 2 * time.Second

// namesFrom returns a function that returns the names that kubectl prints. Without
// an answer there are none: a shell has no place for an error.
func namesFrom(t *kubectl.Target, args ...string) func(context.Context) []string {
	return func(ctx context.Context) []string {
		ctx, stop := context.WithTimeout(ctx, shellPatience)
		defer stop()
		k, err := kubectl.Find(t.Context, "default")
		if err != nil {
			return nil
		}
		out, err := k.Do(ctx, "", args...)
		if err != nil {
			return nil
		}
		return strings.Fields(string(out))
	}
}

// Check refuses flags that have no effect in this combination. more has other flags
// that need --kubernetes.
func (c *Cluster) Check(cmd *cobra.Command, more ...string) error {
	useless, text := c.Alone, "--%s has no effect on the pods of a cluster: leave it out with --kubernetes"
	if !c.On {
		useless, text = more, "--%s is for --kubernetes"
		for _, flag := range c.Texts {
			useless = append(useless, flag.name)
		}
	}
	for _, name := range useless {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf(text, name)
		}
	}
	return nil
}
