package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/launch"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/runtimes/inventory"
	"tenon.sh/tenon/internal/table"
)

// ratePause is the time between two snapshots, from which CPU suppress computes
// the CPU usage.
const ratePause = time.Second

type planFlags struct {
	command  commandFlags
	be, ls   []string
	suppress int64
	config   string
}

func newPlanCommand(g *global) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [flags] [-- CMD [ARG...]]",
		Short: "Show what would be written and why, and write nothing",
		Long: `Show what would be written and why, and write nothing.

Without flags: for the commands that tenon run has started. --be and --ls name
cgroups that are there already (below /sys/fs/cgroup/, or below a controller's
directory there), to be treated as best-effort and latency-sensitive. --qos
shows what tenon run would write for a new command. --config shows what tenond
would write with that configuration.`,
		Example: `  tenon plan
  tenon plan --ls system.slice/nginx.service --be system.slice/backup.service --suppress 65
  tenon plan --config /etc/tenon/tenon.yaml
  tenon plan --qos BE --cpus 1.5 --memory 2Gi -- make -j8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, other := range []string{"be", "ls", "suppress", "qos", "cpus", "memory", "name"} {
				if f.config != "" && cmd.Flags().Changed(other) {
					return cmdline.Usagef("--config %s is for the workloads of that configuration: leave out --config or --%s", f.config, other)
				}
			}
			t, err := dryRun(cmd.Context(), g, f, args)
			if err != nil {
				return needRoot("plan", err)
			}
			p := planOf(t)
			p.rules = f.config != ""
			return g.output.Print(cmd.OutOrStdout(), p, p.String())
		},
	}
	f.command.add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.be, "be", nil, "treat this cgroup as best-effort (repeatable)")
	flags.StringArrayVar(&f.ls, "ls", nil, "treat this cgroup as latency-sensitive (repeatable)")
	flags.Int64Var(&f.suppress, "suppress", 0, "bound best-effort work so that all together use at most this percentage of the CPUs")
	flags.StringVar(&f.config, "config", "", "apply this configuration file of tenond")
	cmdline.Complete(cmd, "suppress", "65")
	cmdline.CompleteFrom(cmd, "be", cgroups)
	cmdline.CompleteFrom(cmd, "ls", cgroups)
	cmdline.Files(flags, "config")
	return cmd
}

// cgroups returns the cgroups of this machine for a shell, which has no place for
// an error: a cgroup that cannot be read is not offered.
func cgroups(context.Context) []string {
	tree, err := cgroup.Detect(proc.Default().Proc)
	if err != nil {
		return nil
	}
	paths, _ := tree.Paths() //nolint:errcheck // a cgroup that cannot be read is not offered
	return paths
}

// dryRun runs ticks of the loop that write nothing.
func dryRun(ctx context.Context, g *global, f planFlags, args []string) (tick.Tick, error) {
	var none tick.Tick
	if f.suppress < 0 || f.suppress > 100 {
		return none, cmdline.Usagef("--suppress %d: want a percentage from 1 to 100", f.suppress)
	}
	if f.config != "" && len(args) > 0 {
		return none, cmdline.Usagef("--config %s is for the workloads of that configuration: leave out %s, or give --qos without --config", f.config, args[0])
	}
	fs := proc.Default()
	tree, err := cgroup.Detect(fs.Proc)
	if err != nil {
		return none, err
	}
	root, err := launchRoot(tree, fs)
	if err != nil {
		fmt.Fprintf(os.Stderr, "tenon: as this user tenon run would write nothing (%v); this is for root\n", err)
	}
	workloads, c, err := f.readFlags(ctx, tree, root, args)
	if err != nil {
		return none, err
	}
	h, err := host.Open(host.Options{Tree: tree, FS: fs, JournalDir: g.stateDir})
	if err != nil {
		return none, err
	}
	defer h.Close()
	for _, w := range workloads {
		h.Manage(w)
	}
	h.Show(policy.Files(c, workloads))
	a := &loop.Agent{Host: h, DryRun: true, Config: c}
	if c.Suppress.Enable {
		if _, err := a.Step(ctx); err != nil {
			return none, err
		}
		time.Sleep(ratePause)
	}
	return a.Step(ctx)
}

// readFlags returns the workloads and the policies that the flags select.
func (f planFlags) readFlags(ctx context.Context, tree *cgroup.Tree, root node.CgroupPath, args []string) ([]node.Workload, policy.Config, error) {
	if f.config == "" {
		all, err := f.workloads(tree, root, args)
		return all, policy.Config{
			CPUQOS:   isolation.Config{Enable: true},
			Suppress: suppress.Config{Enable: f.suppress > 0, ThresholdPercent: unit.Percent(f.suppress)},
		}, err
	}
	c, err := config.Load(f.config)
	if err != nil {
		return nil, policy.Config{}, err
	}
	paths, missed := tree.Paths()
	if missed != nil && !partial.Is(missed) {
		return nil, policy.Config{}, missed
	}
	groups, err := inventory.ListOnce(ctx, c.Rules, c.ContainerSockets, paths, tree.Direct)
	if err != nil {
		return nil, policy.Config{}, err
	}
	all, remarks := launch.Workloads(c.Rules, groups)
	if missed != nil {
		remarks = append(remarks, missed.Error())
	}
	for _, r := range append(c.Notices, remarks...) {
		fmt.Fprintln(os.Stderr, "tenon: "+printable.Text(r))
	}
	return all, c.Policy, nil
}

// workloads returns the workloads that the flags select. Without such flags,
// these are the running commands of tenon run.
func (f planFlags) workloads(tree *cgroup.Tree, root node.CgroupPath, args []string) ([]node.Workload, error) {
	var all []node.Workload
	for _, side := range []struct {
		class node.Class
		paths []string
	}{{node.LS, f.ls}, {node.BE, f.be}} {
		for _, p := range side.paths {
			w, err := existingWorkload(tree, side.class, strings.Trim(p, "/"))
			if err != nil {
				return nil, err
			}
			all = append(all, w)
		}
	}
	switch c := f.command.command(args); {
	case c.Class != "":
		if len(args) == 0 { // w stands for any command
			c.Args, c.Name = []string{"any"}, cmp.Or(c.Name, "NAME")
		}
		if err := c.Check(); err != nil {
			return nil, cmdline.Usage(err)
		}
		all = append(all, c.Workload(root))
	case c.CPULimit.Known() || c.MemoryLimit.Known() || c.Name != "" || len(args) > 0:
		return nil, cmdline.Usagef("--cpus, --memory, --name and CMD are for a new command: add --qos, such as --qos BE")
	}
	if len(all) > 0 {
		return all, nil
	}
	return launched(tree, root), nil
}

// existingWorkload returns an existing cgroup as a workload of the given class.
func existingWorkload(tree *cgroup.Tree, class node.Class, path string) (node.Workload, error) {
	if path == "" {
		return node.Workload{}, cmdline.Usagef("the root cgroup holds everything: name a cgroup below it, such as system.slice/backup.service")
	}
	if !tree.Exists(path) {
		return node.Workload{}, fmt.Errorf("no cgroup %q: give its path below the root of the hierarchy, as in /proc/PID/cgroup", path)
	}
	p := node.CgroupPath(path)
	return withLimits(tree, node.Workload{ID: node.WorkloadID(path), Class: class, Cgroup: p, ContentionRoot: p}), nil
}

// launched returns the workloads of the running commands of tenon run.
func launched(tree *cgroup.Tree, root node.CgroupPath) []node.Workload {
	var all []node.Workload
	for _, class := range []node.Class{node.LS, node.BE} {
		above := launch.Command{Class: class}.Workload(root).ContentionRoot
		names, err := tree.Children(string(above))
		if err != nil {
			continue // the group does not exist: no command of this class runs
		}
		for _, name := range names {
			all = append(all, withLimits(tree, launch.Command{Class: class, Name: name}.Workload(root)))
		}
	}
	return all
}

// withLimits returns w with the present limits of its cgroup. Tenon treats them
// like limits from the owner.
func withLimits(tree *cgroup.Tree, w node.Workload) node.Workload {
	if v, err := tree.ReadCPUMax(string(w.Cgroup)); err == nil && v.Quota != cgroup.NoQuota {
		w.CPULimit = node.Some(unit.MilliCPU(node.CPUMax(v).Cores() * 1000))
	}
	if v, err := tree.ReadMemory(string(w.Cgroup)); err == nil && v.Max != unit.MaxBytes {
		w.MemoryLimit = node.Some(v.Max)
	}
	return w
}

// launchedBE returns the workload of a BE command of tenon run, as an example.
func launchedBE() node.Workload {
	return launch.Command{Class: node.BE, Name: "command"}.Workload("")
}

// A planned is the output of tenon plan. Its JSON keys are stable.
type planned struct {
	Workloads []node.Workload `json:"workloads"`
	Steps     []plannedStep   `json:"steps"`

	rules bool // the workloads come from a configuration
}

type plannedStep struct {
	Cgroup node.CgroupPath `json:"cgroup"`
	File   node.File       `json:"file"`
	// Control is a control group of resctrl. It is empty for a knob of a cgroup.
	Control string  `json:"resctrl,omitempty"`
	From    *string `json:"from"` // null: the cgroup does not exist yet, or cannot be read
	To      string  `json:"to"`
	Policy  string  `json:"policy"`
	Reason  string  `json:"reason"`

	line string
}

func planOf(t tick.Tick) planned {
	p := planned{Workloads: t.Snapshot.Workloads, Steps: []plannedStep{}}
	for _, o := range t.Done {
		s := plannedStep{
			Cgroup: o.Step.Knob.Cgroup, File: o.Step.Knob.File, Control: o.Step.Knob.ControlGroup, To: o.Step.To.String(),
			Policy: o.Step.Owner.String(), Reason: o.Step.Reason, line: o.Step.String(),
		}
		if o.Step.From != nil {
			from := o.Step.From.String()
			s.From = &from
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

// String prints one line for each step. If there are no steps, it prints why.
func (p planned) String() string {
	switch {
	case len(p.Workloads) == 0 && p.rules:
		return "Nothing would be written: no cgroup matches a rule of the configuration.\n"
	case len(p.Workloads) == 0:
		return "Nothing would be written: tenon run has started nothing here. Name cgroups with --be and --ls, or a new command with --qos.\n"
	case len(p.Steps) == 0:
		return fmt.Sprintf("Nothing would be written: every knob of %s is as it should be.\n", table.Count(len(p.Workloads), "workload"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Would be written, for %s (nothing has been):\n", table.Count(len(p.Workloads), "workload"))
	for _, s := range p.Steps {
		fmt.Fprintln(&b, printable.Text(s.line))
	}
	return b.String()
}
