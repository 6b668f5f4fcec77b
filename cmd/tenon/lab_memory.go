package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/testbed"
)

func newMemoryCommand(g *global) *cobra.Command {
	var c lab.MemoryConfig
	var modes string
	var outside bool
	cmd := &cobra.Command{
		Use:   "memory [flags]",
		Short: "nginx with its pages in the page cache beside a memory hog, with and without Tenon",
		Long: `Run nginx, whose pages just fit into memory, beside a program that is greedy for
memory, in one cgroup with less memory than the two want together, and show what
that did to nginx's latency and to its pages.

` + harness.ModeHelp(lab.MemoryModes) + `
Every mode runs once in each block, in random order, with nginx restarted and its
pages read anew. Files of five times --set are written to --data, on a device,
and removed at the end; nothing else is evicted from the page cache. The group is
bounded to twice --set, so the rest of the machine is in no danger.
It needs root (for cgroups), nginx, and two CPUs. About ten minutes.`,
		Example: `  sudo tenon lab memory
  sudo tenon lab memory --blocks 2 --duration 3s --set 64Mi
  sudo tenon lab memory --agent --seed 7 --out results`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = harness.ParseModes(modes, lab.MemoryModes); err != nil {
				return usageError{fmt.Errorf("--modes: %w", err)}
			}
			if err := prepare(g, &c.Setting, outside); err != nil {
				return err
			}
			return experiment(cmd, g, func(ctx context.Context) (harness.Outcome, error) { return lab.Memory(ctx, c) })
		},
	}
	c.Set = 256 << 20
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas, or all")
	flags.IntVar(&c.Blocks, "blocks", harness.LeastBlocks(), "how often every mode runs; a verdict needs 12")
	flags.DurationVar(&c.Duration, "duration", 6*time.Second, "length of the measured part of a run")
	flags.Var((*labflag.Bytes)(&c.Set), "set", "what nginx reads at random, such as 256Mi; all other sizes follow from it")
	flags.Float64Var(&c.Rate, "rate", 500, "requests per second that are offered")
	flags.StringVar(&c.Data, "data", "/var/tmp", "directory for the files that are read, on a device")
	flags.Float64Var(&c.StealPercent, "max-steal", 1, "steal time, in percent of the tested CPUs, above which a run is void")
	flags.IntVar(&c.Port, "port", 0, "port of nginx on 127.0.0.1 (default: a free one)")
	settingFlags(cmd, &c.Setting, &outside)
	complete(cmd, "modes", "all", "exclusive,default,tenond", "default,tenond")
	for _, name := range []string{"blocks", "duration", "set", "rate", "max-steal", "port"} {
		complete(cmd, name)
	}
	return cmd
}

// settingFlags adds the flags of every experiment. If outside is not nil, it
// also adds the flag that starts tenond in place of the lab's own loop.
func settingFlags(cmd *cobra.Command, s *testbed.Setting, outside *bool) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of all that is drawn")
	flags.BoolVar(&s.Once, "once", false, "do not repeat void runs")
	if outside != nil {
		flags.BoolVar(outside, "agent", false, "let tenond do the work in Tenon's modes: it finds the workloads by rules")
	}
	flags.Var((*labflag.CPUs)(&s.CPUs), "cpus", "CPUs to test, such as 0-5 (default: all but the client's)")
	flags.Var((*labflag.CPUs)(&s.ClientCPUs), "client-cpus", "CPUs of the lab itself, of its client and of tenond (default: an eighth, whole cores)")
	flags.StringVar(&s.Out, "out", "", "directory of the results (default ./tenon-lab-TIME)")
	for _, name := range []string{"seed", "cpus", "client-cpus"} {
		complete(cmd, name)
	}
}

// prepare fills in the settings that have no flag.
func prepare(g *global, s *testbed.Setting, outside bool) (err error) {
	if s.Self, err = labSelf(); err != nil {
		return err
	}
	if outside {
		if s.Agent, err = tenondBeside(s.Self[0]); err != nil {
			return err
		}
	}
	s.JournalDir, s.Command, s.Version = g.stateDir, os.Args, versionName()
	s.Notices, s.Terminal = os.Stderr, isTerminal(os.Stderr)
	return nil
}
