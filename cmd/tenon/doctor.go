package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/unsupported"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/machine/capability"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/table"
)

// A diagnosis is the output of tenon doctor. Its JSON keys are stable.
type diagnosis struct {
	Kernel         string         `json:"kernel"`
	Cgroups        string         `json:"cgroups"`
	CgroupVersions map[string]int `json:"cgroup_versions"` // by controller
	// Unread lists the mounts of cgroups that cannot be read, and the first cgroup.
	Unread    []string `json:"unread_mounts,omitempty"`
	CPUs      int      `json:"cpus"`
	CPUModel  string   `json:"cpu_model"`
	SMT       bool     `json:"smt"`
	Sockets   int      `json:"sockets"`
	NUMANodes int      `json:"numa_nodes"`
	// Virtualization is "virtual machine", "none seen" or "unknown: WHY".
	Virtualization string `json:"virtualization"`
	// Isolation describes the mechanism that would isolate best-effort work.
	// Selection lists all isolation mechanisms, the strongest first.
	Isolation  string          `json:"isolation"`
	Selection  []mechanismLine `json:"selection"`
	Mechanisms []mechanism     `json:"mechanisms"`
	// Pods says that the cgroups of pods show two cgroup drivers. It is absent if they
	// do not.
	Pods *podCgroups `json:"pods,omitempty"`
	// Troubles lists what a running tenond reports about itself. It is absent if no
	// tenond answers within agentPatience.
	Troubles []health.Trouble `json:"troubles,omitempty"`
	// Unmet lists the settings of --config that this node cannot carry out.
	Unmet []unsupported.Setting `json:"unmet,omitempty"`

	all bool // print also the mechanisms that are available
}

type mechanism struct {
	Name      node.Feature `json:"name"`
	Available node.Verdict `json:"available"`
	Why       string       `json:"why"`
	// Instead describes what Tenon uses in place of a missing mechanism.
	Instead string `json:"instead,omitempty"`
}

// agentPatience is the time that a tenond may take to name its troubles.
const agentPatience = 2 * time.Second

func newDoctorCommand(g *global) *cobra.Command {
	try, all, file := false, false, ""
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what the kernel and the hardware of this machine lack, and what Tenon uses",
		Long: `Show which mechanisms the kernel and the hardware of this machine lack, how Tenon
knows, and what it uses instead. Everything is probed, nothing is guessed from a
version. Without root some answers are "unknown". For the problems of a cluster,
see kubectl tenon doctor.

It writes nothing. Where no cgroup shows whether the kernel has a file, the answer
is "unknown" unless --try is given: that makes a cgroup, and may turn a controller
on for it, for a moment. --config adds the settings of a configuration of tenond
that this node cannot carry out.`,
		Example: `  sudo tenon doctor
  sudo tenon doctor --config /etc/tenon/tenon.yaml
  tenon doctor -o json | jq -r '.mechanisms[] | select(.available == "no") | .name'`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var c config.Config
			var err error
			if file != "" {
				if c, err = config.Load(file); err != nil {
					return err
				}
			}
			d := diagnose(cmd.Context(), proc.Default(), g.stateDir, try, c.Policy)
			d.all = all
			ctx, stop := context.WithTimeout(cmd.Context(), agentPatience)
			defer stop()
			if s, err := control.NewClient(g.stateDir).Status(ctx); err == nil { // without an agent, there is no trouble to name
				d.Troubles = s.Troubles
			}
			return g.output.Print(cmd.OutOrStdout(), d, d.String())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "list the settings of this configuration file of tenond that the node cannot carry out")
	cmdline.Files(cmd.Flags(), "config")
	cmd.Flags().BoolVar(&all, "all", false, "print also the mechanisms that are available")
	cmd.Flags().BoolVar(&try, "try", false, "make a cgroup for a moment where no existing one shows what the kernel has")
	return cmd
}

// controllers lists the cgroup controllers that Tenon uses.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "io"}

// diagnose examines the node. If a value cannot be read, the result contains an
// error text instead.
func diagnose(ctx context.Context, fs proc.FS, stateDir string, try bool, asked policy.Config) diagnosis {
	d := diagnosis{Kernel: "unknown", Cgroups: "none found", CgroupVersions: map[string]int{}}
	if release, err := fs.KernelRelease(); err == nil {
		d.Kernel = release
	}
	if info, err := fs.CPUInfo(); err != nil {
		d.CPUModel, d.Virtualization = "unknown", "unknown: "+err.Error()
	} else {
		d.CPUModel, d.Virtualization = info.Model, "none seen"
		if info.Virtual() {
			d.Virtualization = "virtual machine"
		}
	}
	d.countCPUs(fs)
	tree, err := cgroup.Detect(fs.Proc)
	if err != nil {
		d.Cgroups = "unknown: " + err.Error()
	} else {
		d.sortControllers(tree)
		for _, passed := range tree.PassedOver {
			d.Unread = append(d.Unread, passed.Error())
		}
		paths, err := tree.Paths()
		if err != nil {
			d.Unread = append(d.Unread, err.Error())
		}
		d.Pods = findPodCgroups(paths)
	}
	h, err := host.Open(host.Options{Tree: tree, FS: fs, JournalDir: stateDir, Try: try})
	if err != nil {
		d.Isolation = "unknown: " + err.Error()
		return d
	}
	defer h.Close()
	can := h.Capabilities()
	var seen node.Isolation
	if s, err := h.Snapshot(ctx); err == nil {
		seen = s.Isolation
	}
	d.isolation(can, seen)
	d.Unmet = unsupported.Settings(asked, can)
	for _, name := range slices.Sorted(maps.Keys(can)) {
		m := mechanism{Name: name, Available: can[name].Verdict, Why: can[name].Why}
		if m.Available != node.Yes {
			m.Instead = capability.Fallback(name)
		}
		d.Mechanisms = append(d.Mechanisms, m)
	}
	return d
}

func (d *diagnosis) countCPUs(fs proc.FS) {
	cpus, err := fs.Topology()
	if err != nil {
		return
	}
	sockets, nodes := map[int]bool{}, map[int]bool{}
	for _, c := range cpus {
		sockets[c.Socket], nodes[c.NUMA] = true, true
		d.SMT = d.SMT || c.Siblings.Len() > 1
	}
	d.CPUs, d.Sockets, d.NUMANodes = len(cpus), len(sockets), len(nodes)
}

// sortControllers finds the cgroup version of each controller.
func (d *diagnosis) sortControllers(tree *cgroup.Tree) {
	on := map[int][]string{}
	for _, c := range controllers {
		if v := tree.VersionOf(c); v != 0 {
			d.CgroupVersions[c] = v
			on[v] = append(on[v], c)
		}
	}
	var parts []string
	for _, v := range []int{1, 2} {
		if len(on[v]) > 0 {
			parts = append(parts, fmt.Sprintf("v%d (%s)", v, strings.Join(on[v], ", ")))
		}
	}
	if len(on[1]) > 0 && len(on[2]) > 0 {
		parts = append(parts, "hybrid")
	}
	if len(parts) > 0 {
		d.Cgroups = strings.Join(parts, ", ")
	}
}

// String prints the header and the table.
func (d diagnosis) String() string {
	var b strings.Builder
	smt := "no SMT"
	if d.SMT {
		smt = "SMT"
	}
	head := func(name, value string) {
		fmt.Fprintf(&b, "%-14s  %s\n", name, fold(value, max(len(name), 14)+2))
	}
	head("kernel", d.Kernel)
	head("cgroups", d.Cgroups)
	for _, passed := range d.Unread {
		head("", passed)
	}
	head("CPUs", fmt.Sprintf("%d, %s, %s, %s: %s", d.CPUs, smt, table.Count(d.Sockets, "socket"), table.Count(d.NUMANodes, "NUMA node"), d.CPUModel))
	head("virtualization", d.Virtualization)
	head("isolation", d.Isolation)
	for _, text := range d.Pods.lines() {
		head("TROUBLE (pods)", text)
	}
	for _, t := range d.Troubles {
		head("TROUBLE ("+string(t.Kind)+")", t.Text)
	}
	b.WriteByte('\n')
	d.printSelection(&b)
	d.printMechanisms(&b)
	for i, s := range d.Unmet {
		if i == 0 {
			b.WriteString("\nCONFIGURED, NOT POSSIBLE HERE\n")
		}
		fmt.Fprintf(&b, "%s: %s\n", s.Key, fold(s.Why, len(s.Key)+2))
	}
	return b.String()
}

// printMechanisms prints what this kernel and hardware lack and what Tenon uses
// instead. With --all, it also prints what they have.
func (d diagnosis) printMechanisms(b *strings.Builder) {
	const row, indent = "%-22s  %-9s  %s\n", 22 + 2 + 9 + 2
	fmt.Fprintf(b, row, "MECHANISM", "AVAILABLE", "WHY, AND WHAT TENON USES INSTEAD")
	shown := 0
	for _, m := range d.Mechanisms {
		if m.Available == node.Yes && !d.all {
			continue
		}
		shown++
		fmt.Fprintf(b, row, m.Name, m.Available, fold(m.Why, indent))
		if m.Instead != "" {
			fmt.Fprintf(b, row, "", "", fold("instead: "+m.Instead, indent))
		}
	}
	if more := len(d.Mechanisms) - shown; more > 0 {
		fmt.Fprintf(b, "%d more are available: tenon doctor --all lists them.\n", more)
	}
}

// fold breaks a text into lines that end within 100 columns. It begins at the
// column after indent.
func fold(text string, indent int) string {
	return strings.Join(textlayout.Wrap(text, max(textlayout.Width-indent, 20)), "\n"+strings.Repeat(" ", indent))
}
