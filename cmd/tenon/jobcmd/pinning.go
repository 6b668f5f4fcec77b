package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/pinning/run"
	"tenon.sh/tenon/internal/lab/testbed"
)

// pinningNotZero maps flags to their accepted values. The default of these
// flags is not zero.
var pinningNotZero = map[string]string{
	"blocks": "1 or more", "limit": "1 or more", "rounds": "1 or more", "threads": fmt.Sprintf("1 to %d", pi.MaxThreads), "digits": fmt.Sprintf("1 to %d", pi.MaxDigits),
	"work": "more than 0", "duration": "1s or more", "max-time": "more than 0", "max-steal": testbed.VoidPercents, "node-port": "1 to 65535",
}

// NewPinning returns the command tenon lab pinning.
func NewPinning(f Frame) *cobra.Command {
	var c run.Config
	var k run.Pods
	on := labflag.Cluster{
		Texts: []labflag.ClusterText{
			labflag.Text(&k.Node, "node", "the node to test (default: the only one that takes ordinary pods)"),
			labflag.Text(&k.NGINX, "nginx-image", "the image of the servers (default: as published, nginx:latest)"),
			labflag.Text(&k.Pi, "pi-image", "the image of the job (default: as published)"),
		},
		Alone: []string{"rounds", "work", "max-steal", "cpus"},
	}
	var parts, modes string
	cmd := &cobra.Command{
		Use:   "pinning [flags]",
		Short: "Measure what a quota, CPUs of its own and warm CPUs do to a program",
		Long: `Run the programs of the published experiment on CPU pinning: a job of 3,000 threads
that computes digits of π and proves them, and two web servers under load (a closed
loop with wrk, then an open loop at a fixed rate). The modes change one thing at a
time:

  shared        a quota, on all CPUs
  shared-aa     the same again, to show the resolution of this machine
  shared-free   all CPUs, without a quota
  shared-warm   shared, and spinners of the idle class keep the CPUs awake
  pinned        CPUs of its own, without a quota
  pinned-quota  the same CPUs, with the quota
  pinned-worst  as many CPUs, chosen badly: threads of one core, far caches
  static-burst  a pool of one L3 cache, with the quota, under Tenon's own loop

Modes run in random order in each block. Those that show nothing on this machine
are left out and named. With fewer than three CPUs there is no
room for two servers and their client: then one server runs, and only its waits
and its moves between CPUs are results. It needs root (for cgroups), and nginx and
wrk for the servers. Five minutes at most.`,
		Example: `  sudo tenon lab pinning
  sudo tenon lab pinning --parts pi --blocks 8
  sudo tenon lab pinning --modes shared,pinned,pinned-quota --limit 4
  tenon lab pinning --kubernetes --node worker-1 --parts nginx --client-cpus 32-45 --duration 60s`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(
				labflag.RefuseZero(cmd.Flags(), pinningNotZero),
				labflag.ParseList(parts, "--parts", &c.Parts, func(s string) (string, error) { return s, nil }),
				labflag.ParseList(modes, "--modes", &c.Modes, func(s string) (pinning.Mode, error) { return pinning.Mode(s), nil }),
			)
			if err != nil {
				return cmdline.Usage(err)
			}
			if err := on.Check(cmd, "node-port", "client-cpus"); err != nil {
				return cmdline.Usage(err)
			}
			if on.On {
				c.Pods = &k
				for flag, to := range map[string]*time.Duration{"duration": &c.Duration, "max-time": &c.MaxTime} {
					if !cmd.Flags().Changed(flag) {
						*to = 0 // the default is another one on a cluster
					}
				}
			}
			if err := f.Prepare(&c.Setting); err != nil {
				return err
			}
			return f.Experiment(cmd, func(ctx context.Context) (harness.Outcome, error) { return run.Run(ctx, c) })
		},
	}
	addPinningFlags(cmd, &c, &k, &parts, &modes)
	on.Add(cmd, &k.Target, "run the published manifests on a node of a cluster")
	return cmd
}

func addPinningFlags(cmd *cobra.Command, c *run.Config, k *run.Pods, parts, modes *string) {
	flags := cmd.Flags()
	flags.StringVar(parts, "parts", "pi,nginx", "what to run: pi, nginx")
	flags.StringVar(modes, "modes", "", "modes to run, separated by commas (default: all)")
	flags.IntVar(&c.Blocks, "blocks", 4, "how often every mode runs")
	flags.IntVar(&c.Limit, "limit", 0, "CPUs of the job and of each server (default: half of the tested CPUs; with --kubernetes 4, or what fits)")
	flags.IntVar(&c.Threads, "threads", 3000, "threads of the job")
	flags.IntVar(&c.Digits, "digits", 20000, "digits of π")
	flags.IntVar(&c.Rounds, "rounds", 0, "times that the job computes them (default: for --work)")
	flags.DurationVar(&c.Work, "work", 3*time.Second, "CPU time of the job")
	flags.DurationVar(&c.Duration, "duration", 3*time.Second, "length of each loop on the web servers (with --kubernetes 10s)")
	flags.DurationVar(&c.MaxTime, "max-time", 5*time.Minute, "stop before a block that does not fit into this time (with --kubernetes 1h)")
	flags.IntVar(&k.NodePort, "node-port", 0, "with --kubernetes: port of the Service on the node (default 32257, as published)")
	flags.Var((*labflag.CPUs)(&c.ClientCPUs), "client-cpus", "with --kubernetes: CPUs of this machine for wrk, such as 32-45 (default: all)")
	var names []string
	for _, m := range pinning.Modes {
		names = append(names, string(m))
	}
	cmdline.CompleteList(cmd, "parts", pinning.Pi, pinning.NGINX)
	cmdline.CompleteList(cmd, "modes", names...)
	labflag.Common(cmd, &c.Setting, "all")
}
