package labcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// NewColocation returns the command tenon lab colocation.
func NewColocation(f Frame) *cobra.Command {
	var c run.Config
	var modes, design, resume, podCPU string
	load := labflag.Load{Percent: 30}
	var outside bool
	var k run.Pods
	on := labflag.Cluster{
		Texts: []labflag.ClusterText{
			labflag.Text(&k.Node, "node", "the node to test (default: the only one with Tenon)"),
			labflag.Text(&k.ConfigMap, "config-map", "Tenon's ConfigMap, as `NAMESPACE/NAME` (default tenon-system/slo-controller-config)"),
			labflag.Text(&k.NGINX, "nginx-image", "the image of nginx, which reads /apps/nginx/conf/nginx.conf (default: that of the published experiment)"),
			labflag.Text(&k.FFmpeg, "ffmpeg-image", "the image of ffmpeg; --input is a film in it (default: that of the published experiment)"),
		},
		Alone: []string{"agent", "service", "keep-service", "ready", "batch", "work-regexp", "self-threads", "self-memory"},
	}
	cmd := &cobra.Command{
		Use:   "colocation [flags]",
		Short: "Measure nginx beside ffmpeg, with and without Tenon",
		Long:  colocationHelp(),
		Example: `  sudo tenon lab colocation
  sudo tenon lab colocation --modes frozen,default,tenon --starts 4
  sudo tenon lab colocation --design blocks
  sudo tenon lab colocation --campaign --service redis --out redis
  sudo tenon lab colocation --resume redis
  sudo tenon lab colocation --modes exclusive,default,tenon --blocks 2 --duration 3s
  sudo tenon lab colocation --until-resolved --max-time 90m --seed 7
  sudo tenon lab colocation --agent --modes exclusive,default-65,tenon-65
  sudo tenon lab colocation --client wrk --input film.mp4 --out results
  sudo tenon lab colocation --service redis --batch memory --batch xz
  sudo tenon lab colocation --service self --modes exclusive,exclusive-aa,default,tenon
  sudo tenon lab colocation --service ./server --load http://127.0.0.1:7000/ --batch 'make -j2'
  tenon lab colocation --kubernetes --node worker-1
  tenon lab colocation --kubernetes --node worker-1 --blocks 10
  tenon lab colocation --kubernetes --node worker-1 --batch-pods 8`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if resume != "" {
				if err := asRecorded(cmd, resume); err != nil {
					return cmdline.Usagef("--resume %s: %w", resume, err)
				}
				c.Resume = true
			}
			var err error
			known := run.Modes
			if on.On {
				known = run.KnownPodModes
			}
			if c.Modes, err = harness.ParseModes(modes, known, run.PublishedModes...); err != nil {
				return labflag.ModesError(err)
			}
			if err := labflag.RefuseZero(cmd.Flags(), notZero); err != nil {
				return cmdline.Usage(err)
			}
			if err := on.Check(cmd, "batch-pods", "batch-pod-cpu"); err != nil {
				return cmdline.Usage(err)
			}
			if podCPU != "" {
				if k.BatchCPU, err = unit.ParseMilliCPU(podCPU); err != nil {
					return cmdline.Usagef("--batch-pod-cpu: %w", err)
				}
			}
			if err := f.Prepare(&c.Setting, outside); err != nil {
				return err
			}
			if !cmd.Flags().Changed("duration") {
				c.Duration = 0 // the default of the design
			}
			c.Design = colocation.Design(design)
			c.LoadPercent, c.Workloads.Load = float64(load.Percent), load.Target
			if on.On {
				c.Pods = &k
			}
			return f.Run(cmd, func(ctx context.Context) (harness.Outcome, error) { return run.Run(ctx, c) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas; all, or published for those of the published experiment")
	designFlags(cmd, &c, &design)
	flags.StringVar(&resume, "resume", "", "directory of an experiment with --design switch that was stopped: run the rest of it, with the flags that it began with")
	cmdline.Dirs(flags, "resume")
	flags.IntVar(&c.Blocks, "blocks", 0, "with --design blocks, how often every mode runs (default 12, the fewest for a verdict; with --until-resolved no bound)")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "with --design blocks, length of the measured part of a run")
	flags.DurationVar(&c.MaxTime, "max-time", 0, "start no block that would end later than this")
	f.colocationFlags(cmd, &c)
	flags.Var(&load, "load", "CPU use of the service alone, in percent of the tested CPUs; sets the offered rate. Also: the URL that the load asks ("+protocol.Schemes()+"), or a command that prints latencies")
	f.workloadFlags(cmd, &c.Workloads)
	f.settingFlags(cmd, &c.Setting, &outside)
	on.Add(cmd, &k.Target, "run on a node of a cluster that runs Tenon")
	flags.IntVar(&k.Batch, "batch-pods", 0, "with --kubernetes: so many batch pods, which the scheduler places, by CPU requests, by batch-cpu or by nothing (default: one, on the node of --node)")
	flags.StringVar(&podCPU, "batch-pod-cpu", "", "with --batch-pods: what each of them asks for, such as 500m (default: together all tested CPUs)")
	cmdline.CompleteList(cmd, "modes", append([]string{"all", harness.Published}, modeNames(run.Modes)...)...)
	return cmd
}

// designFlags adds the flags of the design in which modes take turns.
func designFlags(cmd *cobra.Command, c *run.Config, design *string) {
	flags := cmd.Flags()
	flags.StringVar(design, "design", "", "switch: modes take turns while nginx and ffmpeg run; blocks: both start anew for each mode (default: switch where it is possible)")
	flags.BoolVar(&c.Campaign, "campaign", false, "run the modes "+strings.Join(modeNames(run.CampaignModes), ", ")+" in turns for an hour, unless --modes, --starts or --start-length say otherwise")
	flags.IntVar(&c.Starts, "starts", 0, "with --design switch, how often nginx and ffmpeg start (default 12); with --until-resolved the most, and the verdicts are looked at after each third")
	flags.DurationVar(&c.StartLength, "start-length", 0, "with --design switch, the length of all turns of a start (default 40s)")
	flags.DurationVar(&c.Turn, "turn", 0, "with --design switch, how long a mode lasts (default 1s)")
	flags.BoolVar(&c.NoCheck, "no-check", false, "with --design switch, do not check first, for twenty seconds, what can be decided on this machine")
	cmdline.Complete(cmd, "design", string(colocation.DesignSwitch), string(colocation.DesignBlocks))
}

// asRecorded gives the command the flags with which the experiment in dir began.
func asRecorded(cmd *cobra.Command, dir string) error {
	var other string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "resume" && f.Name != "state-dir" && f.Name != "output" {
			other = f.Name
		}
	})
	if other != "" {
		return fmt.Errorf("the flags are those with which the experiment began: leave out --%s", other)
	}
	e, _, err := report.Read[colocation.Experiment](dir, colocation.Kind)
	if err != nil {
		return err
	}
	i := slices.Index(e.Command, cmd.Name())
	if i < 1 || e.Command[i-1] != "lab" {
		return fmt.Errorf("it was begun by %.300q: want tenon lab %s", e.Command, cmd.Name())
	}
	if err := cmd.Flags().Parse(e.Command[i+1:]); err != nil {
		return err
	}
	return cmd.Flags().Set("out", dir)
}

// colocationHelp describes the experiment and its modes.
func colocationHelp() string {
	return `Run nginx (latency-sensitive) and ffmpeg (best-effort) on the same CPUs in
several modes, under the same load, and show what that did to nginx's latency.

` + harness.ModeHelp(run.AllModes) + `
Modes that pin one, if they are named and the node has it (see tenon lab
kernel-qos):

` + harness.ModeHelp(report.MechanismModes) + `
Another baseline and another control, if they are named:

` + harness.ModeHelp(run.NamedModes) + `
CPU requests of three sizes, if they are named or with --campaign:

` + harness.ModeHelp(run.SizedModes) + `
Modes without cgroups, if they are named:

` + harness.ModeHelp(report.SessionModes) + `
With --design switch, nginx and ffmpeg start twelve times, and in each start the
modes take turns of a second, in random order. It takes ten minutes, and on a
quiet machine decides differences of 5 to 10 % in P90. Before it, twenty seconds
show who else uses the machine, and what can be decided on it today. It is the
default if all modes can be switched while both run, and its default modes are

` + harness.ModeHelp(run.SwitchedModes) + `
With --design blocks, every mode runs once in each block, in random order, with
nginx restarted. Runs that something else disturbed are void and repeated. All
modes of the first list take 25 minutes. It is the default if --blocks or
--duration is given, and for modes that cannot be switched.

The results are a table here, and raw data, result.json and report.html in the
directory of --out. It needs root (for cgroups), nginx and ffmpeg, and two CPUs.

--service, --load and --batch name other workloads, also your own: a command that
starts the service, the URL where it listens, and commands of batch work. The
service starts anew for each run and gets SIGTERM at its end; with --keep-service
one process runs from the calibration to the end. --service self makes its own
load, so that no CPU is kept for a client and all CPUs are tested.

With --kubernetes, nginx and ffmpeg are pods of one node of a cluster that runs
Tenon, and the lab only sends the load. It needs kubectl. In turns, a process in
the pod of the node's tenond changes the modes and reads the counters, so the
lab needs the right to run commands there. In blocks, the lab counts from inside
the pods, and knows exclusive, exclusive-aa, exclusive-warm, default,
default-65, tenon, tenon-65, slo-aware and slo-aware-quota. While it runs,
entries named tenon-lab in Tenon's ConfigMap switch Tenon's strategies on the
tested node, and nowhere else. Pods and entries are taken away at the end, and
what a killed run left by the next.

With --batch-pods N, the cluster's scheduler places N batch pods in each mode of

` + harness.ModeHelp(run.BatchPodModes) + `
In default they have no requests, in burstable CPU requests, and in tenon they
request as much batch-cpu, of the default amounts. The report has how many of
them found room and what the scheduler counts for them, beside the latency.

--resume DIR runs the rest of an experiment in turns that was stopped, by Ctrl-C
or in another way, with the flags, the order and the load that it began with.`
}

// notZero maps flags to their accepted values. The default of these flags is not zero.
var notZero = map[string]string{
	"duration": "1s or more", "margin": "a ratio above 1, such as 1.03", "max-steal": testbed.VoidPercents, "connections": "1 or more",
	"be-processes": "1 or more", "be-threads": "1 or more", "load": "more than 0 and at most 90 percent", "self-threads": "1 to 1024",
	"self-memory": "4Ki to 1Ti for each thread", "work-regexp": "a regular expression", "blocks": "1 or more", "input": "a film",
	"batch-pods": "1 or more", "batch-pod-cpu": "an amount of CPU such as 500m", "starts": "1 or more", "start-length": "one round of all modes or more", "turn": "1s or more", "design": "switch or blocks",
}

func modeNames(modes []report.Mode) []string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return names
}

// workloadFlags adds the flags for the user's own workloads.
func (f Frame) workloadFlags(cmd *cobra.Command, w *work.Workloads) {
	flags := cmd.Flags()
	flags.StringVar(&w.Service, "service", "nginx", "the service: "+strings.Join(work.Services, ", ")+", or a command that starts it")
	flags.BoolVar(&w.Keep, "keep-service", false, "keep one process of the service for all runs, instead of starting it anew for each")
	flags.StringVar(&w.Ready, "ready", "", "command that ends with status 0 when a --service of your own is ready (default: the URL of --load answers)")
	flags.StringArrayVar(&w.Batch, "batch", nil, "the batch work: "+strings.Join(work.BatchWorks, ", ")+", or a command that runs again and again (default ffmpeg); several run at once")
	flags.StringVar(&w.WorkRegexp, "work-regexp", "", "lines in the output of a --batch command that say what has been done: a group is the amount so far, without one each line counts (default: CPU time)")
	flags.IntVar(&w.SelfThreads, "self-threads", 0, "threads of --service self, which drives itself (default: one for each tested CPU)")
	flags.Var((*labflag.Bytes)(&w.SelfMemory), "self-memory", "memory of each thread of --service self (default 8Mi)")
	cmdline.Complete(cmd, "service", work.Services...)
	cmdline.Complete(cmd, "batch", work.BatchWorks...)
}

// colocationFlags adds the flags of an experiment that runs nginx and ffmpeg.
func (f Frame) colocationFlags(cmd *cobra.Command, c *run.Config) {
	flags := cmd.Flags()
	flags.BoolVar(&c.UntilResolved, "until-resolved", false, "run until more blocks would not change a verdict")
	flags.Float64Var(&c.Margin, "margin", 1.03, "the P99 ratio to the baseline that must not be reached")
	flags.StringVar(&c.Client, "client", harness.ClientTenon, "load generator: tenon (open loop) or wrk (closed loop)")
	flags.IntVar(&c.Connections, "connections", 0, "connections of the client (default 256, or the number that suits the protocol; wrk: 54 scaled to the machine)")
	flags.IntVar(&c.BEProcesses, "be-processes", 0, "ffmpeg processes (default: 30 on 104 CPUs, scaled, at least enough to fill the CPUs)")
	flags.IntVar(&c.BEThreads, "be-threads", 0, "threads of each ffmpeg (default 2)")
	flags.StringVar(&c.Input, "input", "", "film to transcode (default: a clip that is rendered once and kept)")
	flags.IntVar(&c.Port, "port", 0, "port of nginx on 127.0.0.1 (default: a free one)")
	cmdline.Files(flags, "input")
	cmdline.Complete(cmd, "client", harness.ClientTenon, harness.ClientWrk)
}
