package labflag

import (
	"fmt"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/testbed"
)

// Complete sets the values that a shell offers for a flag. The shell offers no
// files, even if there are no values.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	// An error means that the flag does not exist. A test completes each flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// NoValues makes a shell offer nothing for flags.
func NoValues(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		Complete(cmd, name)
	}
}

// Common adds the flags of every experiment. tested names the CPUs that are tested
// if the user names none.
func Common(cmd *cobra.Command, s *testbed.Setting, tested string) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of all that is drawn")
	flags.BoolVar(&s.Once, "no-retry", false, "do not repeat void runs")
	flags.Float64Var(&s.StealPercent, "max-steal", 1, "steal time, in percent of the tested CPUs, above which a run is void")
	flags.Var((*CPUs)(&s.CPUs), "cpus", "CPUs to test, such as 0-5 (default: "+tested+")")
	flags.StringVar(&s.Out, "out", "", "directory of the results (default ./tenon-lab-TIME)")
	NoValues(cmd, "seed", "max-steal", "cpus", "blocks", "max-time")
}

// Cluster has the flags of --kubernetes.
type Cluster struct {
	On    bool
	Texts []ClusterText
	Alone []string // flags that are about this machine and have no effect on a cluster
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
		Complete(cmd, flag.name)
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
