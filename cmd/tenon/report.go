package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/history"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/outlook"
)

// reportFlags are the values of the flags of tenon report.
type reportFlags struct {
	config, dir string
	since       time.Duration
	cpus        cpuFlag
	memory      memoryFlag
	batch       []string
	html        string
	price       float64
	fleet       fleetFlags
}

func newReportCommand(g *global) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Show how much batch work this machine could have run, at which hours and risk",
		Long: `Show how much CPU and memory this machine could have given to batch work, by hour of
the day; which share of jobs would have failed; how good a forecast would have been;
which services are hurt already, and by whom; and what could move there.

It reads what tenond has kept minute by minute, so tenond must have run with a
history (key history of its configuration) and with colocation-config enabled, which
computes the room for batch work. It asks nothing of tenond and changes nothing.

With --prometheus it shows the same of the nodes that a Prometheus server knows, and
with --csv of those of a table. Nothing of Tenon has to be installed on them.
docs/how-much.md explains each number.`,
		Example: `  sudo tenon report
  sudo tenon report --html report.html
  sudo tenon report --batch 'ci-*.service' --since 168h -o json
  tenon report --prometheus https://prometheus.example --sample 500 --html report.html
  tenon report --csv usage.csv --map time=ts,node=machine,cpu=cores,capacity=size`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd, g); err != nil {
				return err
			}
			if f.fleet.asked() {
				v, err := f.view(cmd, now())
				if err != nil {
					return err
				}
				return f.print(cmd, g, v)
			}
			n, err := f.read(cmd, now())
			if err != nil {
				return needRoot("report", err)
			}
			v := outlook.View{Of: "Node " + printable.Text(n.Name), Hints: machineHints, Fleet: prospect.Sum([]prospect.Outlook{prospect.Summarize(n)})}
			return f.print(cmd, g, v)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", defaultConfig, "the configuration file of tenond, which names the directory of the history, and has the rules of the room")
	flags.StringVar(&f.dir, "dir", "", "the directory of the history (default: that of the configuration)")
	flags.DurationVar(&f.since, "since", 4*7*24*time.Hour, "how far back to look")
	flags.Var(&f.cpus, "cpus", "the CPUs of the node, if the history is of another machine")
	flags.Var(&f.memory, "memory", "the memory of the node, if the history is of another machine")
	flags.StringArrayVar(&f.batch, "batch", nil, "a workload that could be batch work: its name or the last part of it, with * (repeatable)")
	flags.StringVar(&f.html, "html", "", "write the page with pictures to this file, too, or only to standard output (-)")
	flags.Float64Var(&f.price, "price", 0, "cost of a node for an hour")
	cmdline.Files(flags, "config", "html")
	cmdline.Dirs(flags, "dir")
	f.fleet.add(cmd)
	return cmd
}

// now is the time at which a report is made. Tests set it.
var now = time.Now

// defaultConfig is the configuration file of an installed tenond.
const defaultConfig = "/etc/tenon/tenon.yaml"

// machineHints say what to do about the gaps of one machine.
var machineHints = map[prospect.GapCode]string{
	prospect.GapRoomCPU: "tenond computes it with colocation-config: {enable: true} in its configuration.",
	prospect.GapBatch:   "tenon report --batch NAME names such work.",
}

func (f *reportFlags) check(cmd *cobra.Command, g *global) error {
	switch given := cmd.Flags().Changed; {
	case given("since") && f.since < time.Hour:
		return cmdline.Usagef("--since %v: want 1h or more", f.since)
	case given("price") && !(f.price > 0 && f.price <= math.MaxFloat64):
		return cmdline.Usagef("--price %v: want an amount above 0", f.price)
	case f.html == cmdline.Stdout && g.output != cmdline.Text:
		return cmdline.Usagef("want one of -o %s and --html -", g.output)
	case given("dir") && given("config"):
		return cmdline.Usagef("--config names the directory of the history, and --dir, too: leave out one of them")
	}
	for _, pattern := range f.batch {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return cmdline.Usagef("--batch %q: want a name, in which * is any part of it", pattern)
		}
	}
	if err := f.fleet.check(cmd); err != nil || !cmd.Flags().Changed("html") {
		return err
	}
	server := f.fleet.Server
	return cmdline.CheckFile("html", f.html, map[string]string{
		"csv": f.fleet.csv, "config": f.config,
		"prometheus-ca-file": server.CAFile, "prometheus-token-file": server.TokenFile, "prometheus-password-file": server.PasswordFile,
	})
}

// read returns the node of the history.
func (f *reportFlags) read(cmd *cobra.Command, now time.Time) (prospect.Node, error) {
	dir := f.dir
	if dir == "" {
		c, err := config.Load(f.config)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config")) {
			return prospect.Node{}, fmt.Errorf("find the history: %w (--config names the file, or --dir the directory of the history)", err)
		}
		// A tenond that observes has a history without the key, and its file may lie elsewhere. That
		// it was started with --observe, the file does not say.
		dir = cmp.Or(c.History.Directory, observersDir)
	}
	of, err := f.machine()
	if err != nil {
		return prospect.Node{}, err
	}
	var isBatch func(string) bool
	if len(f.batch) > 0 {
		isBatch = f.isBatch
	}
	n, damages, err := history.ReadNode(dir, now.Add(-f.since).Unix()/60, now.Unix()/60+1, of, isBatch)
	if errors.Is(err, fs.ErrNotExist) {
		return prospect.Node{}, fmt.Errorf("%s: there is no history: %s", dir, howToKeep)
	} else if err != nil {
		return prospect.Node{}, err
	}
	for _, d := range damages {
		cmd.PrintErrf("tenon: %s is damaged: the report lacks what its last %d bytes have\n", printable.Text(d.File), d.Bytes)
	}
	if n.UsedCPU == nil && n.RoomCPU == nil {
		return prospect.Node{}, fmt.Errorf("%s has no minute of the last %v: %s", dir, f.since, howToKeep)
	}
	return n, nil
}

// observersDir is the directory of a history that the configuration does not name. Tests
// set it.
var observersDir = config.HistoryDirectory

// howToKeep says how there will be a history.
const howToKeep = "tenond keeps one with --observe, or with history: {directory: " + config.HistoryDirectory + "} in its configuration. " +
	"With colocation-config: {enable: true} it has the room for batch work, too: come back after some hours"

// machine returns what the history does not say.
func (f *reportFlags) machine() (prospect.Node, error) {
	var n prospect.Node
	var err error
	if n.Name, err = os.Hostname(); err != nil {
		return n, fmt.Errorf("find the name of this machine: %w", err)
	}
	if cpus, given := f.cpus.Value(); given {
		n.CPU = cpus
	} else {
		online, err := proc.Default().OnlineCPUs()
		if err != nil {
			return n, fmt.Errorf("count the CPUs of this machine: %w", err)
		}
		n.CPU = unit.CPUs(online.Len())
	}
	if memory, given := f.memory.Value(); given {
		n.Memory = memory
	} else {
		info, err := proc.Default().MemInfo()
		if err != nil {
			return n, fmt.Errorf("find the memory of this machine: %w", err)
		}
		n.Memory = info.Total
	}
	n.Spare = n.Memory.Percent(prospect.SparePercent)
	return n, nil
}

// isBatch reports whether the user has named a workload.
func (f *reportFlags) isBatch(workload string) bool {
	for _, pattern := range f.batch {
		for _, name := range []string{workload, path.Base(workload)} {
			if is, err := path.Match(pattern, name); err == nil && is {
				return true
			}
		}
	}
	return false
}

// print prints the page of a view, and writes it to the file of --html.
func (f *reportFlags) print(cmd *cobra.Command, g *global, v outlook.View) error {
	for i := range v.Fleet.Hurt {
		h := &v.Fleet.Hurt[i]
		h.Service, h.By = printable.Text(h.Service), printable.Text(h.By)
	}
	if f.price > 0 {
		v.Price = node.Some(f.price)
	}
	p := v.Page()
	if f.html != "" {
		var page bytes.Buffer
		if err := p.WriteHTML(&page); err != nil {
			return err
		}
		if err := cmdline.WriteFile(cmd, f.html, page.Bytes()); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if f.html == cmdline.Stdout {
			return nil
		}
	}
	var text strings.Builder
	if err := p.WriteText(&text); err != nil {
		return err
	}
	return g.output.Print(cmd.OutOrStdout(), v.Fleet, text.String())
}
