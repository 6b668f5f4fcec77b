package main

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/cluster/past/pull"
	"tenon.sh/tenon/internal/cluster/past/trace"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/outlook"
)

// A fleetFlags has the flags of a report about many nodes: from a Prometheus server or
// from a table.
type fleetFlags struct {
	pull.Options
	every        time.Duration // the step
	csv, mapping string
}

// The environment has the secrets that are in no file.
const (
	envToken    = "TENON_PROMETHEUS_TOKEN"
	envPassword = "TENON_PROMETHEUS_PASSWORD"
)

// Flags of one source alone.
var (
	machineFlags    = []string{"dir", "since", "cpus", "memory", "batch"}
	prometheusFlags = []string{"keep", "days", "sample", "seed", "match", "node-label", "pool-label", "nodes-at-once", "query-timeout", "anonymous"}
	serverFlags     = []string{"prometheus", "prometheus-ca-file", "prometheus-header", "prometheus-password-file", "prometheus-token-file", "prometheus-user"}
	tableFlags      = []string{"csv", "map"}
)

func (f *fleetFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Server.URL, "prometheus", "", "report on the nodes that this Prometheus server knows: http:// or https://, a host, and the path before /api/v1")
	flags.StringVar(&f.Server.CAFile, "prometheus-ca-file", "", "the file of the authorities that may sign its certificate, in PEM (default: those of the system)")
	flags.StringVar(&f.Server.TokenFile, "prometheus-token-file", "", "the file of a bearer token for it (or $"+envToken+")")
	flags.StringVar(&f.Server.User, "prometheus-user", "", "the user for it, with a password in the file or in $"+envPassword)
	flags.StringVar(&f.Server.PasswordFile, "prometheus-password-file", "", "the file of the password")
	flags.StringToStringVar(&f.Server.Headers, "prometheus-header", nil, "headers of each request to it, as NAME=VALUE, such as X-Scope-OrgID=team")
	flags.StringVar(&f.Dir, "keep", "", "the directory of what was read, where a report that was broken off goes on (default: tenon-past-DATE)")
	flags.Int64Var(&f.Days, "days", 7, "the number of whole days, in UTC, that end at the last midnight")
	flags.DurationVar(&f.every, "step", 5*time.Minute, "the time between two values")
	flags.IntVar(&f.Sample, "sample", 0, "read this number of nodes, drawn by pool and size; 0: all")
	flags.Uint64Var(&f.Seed, "seed", 1, "what the drawing begins with")
	flags.StringToStringVar(&f.Match, "match", nil, "labels that all series must have, as NAME=VALUE, such as cluster=prod")
	flags.StringVar(&f.NodeLabel, "node-label", "", "the label of container_cpu_usage_seconds_total with the name of the node (default: found)")
	flags.StringVar(&f.PoolLabel, "pool-label", "", "the label of kube_node_labels with the pool, such as label_agentpool (default: found)")
	flags.IntVar(&f.AtOnce, "nodes-at-once", 50, "the most nodes of one query")
	flags.DurationVar(&f.Patience, "query-timeout", 2*time.Minute, "the time for one query")
	flags.BoolVar(&f.Anonymous, "anonymous", false, "print numbers in place of the names of nodes, pools and services")
	flags.StringVar(&f.csv, "csv", "", "report on the nodes of this table of comma-separated values (- is the standard input)")
	flags.StringVar(&f.mapping, "map", "", "which columns of the table have what: time=COLUMN,node=COLUMN,cpu=COLUMN,capacity=COLUMN,memory=…,memory-capacity=…,pool=…")
	cmdline.Files(flags, "prometheus-ca-file", "prometheus-token-file", "prometheus-password-file", "csv")
	cmdline.Dirs(flags, "keep")
	cmdline.GroupFlags(flags, cmdline.FlagGroup{Title: "Report"}, cmdline.FlagGroup{Title: "Of this machine", Flags: machineFlags},
		cmdline.FlagGroup{Title: "Of a Prometheus server", Flags: slices.Concat(serverFlags, prometheusFlags)}, cmdline.FlagGroup{Title: "Of a table", Flags: tableFlags})
}

// asked reports whether the report is about many nodes.
func (f *fleetFlags) asked() bool { return f.Server.URL != "" || f.csv != "" }

// check refuses flags of another source.
func (f *fleetFlags) check(cmd *cobra.Command) error {
	refuse := func(names []string, why string) error {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return cmdline.Usagef("--%s %s", name, why)
			}
		}
		return nil
	}
	f.Server.Token, f.Server.Password, f.Server.Proxy = "", "", true
	var err error
	switch given := cmd.Flags().Changed; {
	case given("prometheus") && f.Server.URL == "":
		return cmdline.Usagef(`--prometheus "": want the address of a server`)
	case given("csv") && f.csv == "":
		return cmdline.Usagef(`--csv "": want a file, or - for the standard input`)
	case f.Server.URL != "" && f.csv != "":
		return cmdline.Usagef("want --prometheus or --csv, not both")
	case f.Server.URL != "":
		if f.Server.TokenFile == "" && f.Server.User == "" {
			f.Server.Token = promapi.Secret(os.Getenv(envToken))
		}
		if f.Server.PasswordFile == "" && f.Server.User != "" {
			f.Server.Password = promapi.Secret(os.Getenv(envPassword))
		}
		err = refuse(slices.Concat(machineFlags, tableFlags), "does not go with --prometheus")
		if err == nil {
			if err = f.Server.Check("--prometheus"); err != nil {
				err = cmdline.Usage(err)
			}
		}
	case f.csv != "":
		err = refuse(slices.Concat(machineFlags, prometheusFlags, serverFlags), "does not go with --csv")
		if err == nil {
			err = refuse([]string{"price"}, "has no effect with --csv: a table does not say which work could be batch work, so no saving is counted")
		}
		if err == nil && f.mapping == "" {
			err = cmdline.Usagef("--csv %q: --map says which columns have what, such as time=ts,node=machine,cpu=cores,capacity=size", f.csv)
		}
	default:
		if err = refuse(slices.Concat(prometheusFlags, serverFlags), "has no effect without --prometheus"); err == nil {
			err = refuse(tableFlags, "has no effect without --csv")
		}
		if err == nil {
			err = refuse([]string{"step"}, "has no effect without --prometheus or --csv")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Match)) {
		if err == nil && !config.IsLabelName(name) {
			err = cmdline.Usagef("--match %q: want the name of a label of Prometheus", name)
		}
	}
	for flag, name := range map[string]string{"node-label": f.NodeLabel, "pool-label": f.PoolLabel} {
		if err == nil && name != "" && !config.IsLabelName(name) {
			err = cmdline.Usagef("--%s %q: want the name of a label of Prometheus", flag, name)
		}
	}
	if err == nil && f.asked() && (f.every%time.Minute != 0 || f.every < time.Minute || time.Hour%f.every != 0) {
		err = cmdline.Usagef("--step %v: want whole minutes that are a part of an hour", f.every)
	}
	if err == nil && (f.Days < 1 || f.Days > 400 || f.Sample < 0 || f.AtOnce < 1 || f.Patience < time.Second) {
		err = cmdline.Usagef("want 1 to 400 --days, a --sample of at least 0, at least 1 of --nodes-at-once, and a --query-timeout of at least 1s")
	}
	return err
}

// rules returns the rules of the room: those of the configuration file, if it is given,
// or else the defaults of colocation-config.
func (f *reportFlags) rules(cmd *cobra.Command) (overcommit.Config, error) {
	if !cmd.Flags().Changed("config") {
		cluster, _ := config.ParseConfigMap(map[string]string{"colocation-config": `{"enable": true}`}) // it has no fault
		of, _ := cluster.Node(nil, nil)
		return of.Policy.Overcommit, nil
	}
	c, err := config.Load(f.config)
	if err == nil && !c.Policy.Overcommit.Enable {
		err = fmt.Errorf("%s: colocation-config is not enabled, so batch work has no room", f.config)
	}
	return c.Policy.Overcommit, err
}

// view returns the page about the nodes of a server or a table.
func (f *reportFlags) view(cmd *cobra.Command, now time.Time) (outlook.View, error) {
	rules, err := f.rules(cmd)
	if err != nil {
		return outlook.View{}, err
	}
	if f.fleet.csv != "" {
		return f.fleet.ofTable(cmd, rules)
	}
	return f.fleet.ofPrometheus(cmd, rules, now)
}

// outlooks summarizes nodes one by one.
func outlooks(nodes iter.Seq2[prospect.Node, error]) (all []prospect.Outlook, err error) {
	for n, err := range nodes {
		if err != nil {
			return nil, err
		}
		n.Name, n.Pool = printable.Text(n.Name), printable.Text(n.Pool)
		all = append(all, prospect.Summarize(n))
	}
	return all, nil
}

func (f *fleetFlags) ofTable(cmd *cobra.Command, rules overcommit.Config) (v outlook.View, err error) {
	m, err := trace.ParseMapping(f.mapping)
	if err != nil {
		return v, cmdline.Usagef("--map: %w", err)
	}
	in := cmd.InOrStdin()
	if f.csv != "-" {
		file, err := os.Open(f.csv)
		if err != nil {
			return v, fmt.Errorf("read the table: %w", err)
		}
		defer file.Close()
		in = file
	}
	table, err := trace.Read(in, trace.Options{Mapping: m, Rules: rules, Step: int64(f.every / time.Minute)})
	if err != nil {
		return v, fmt.Errorf("read the table %s: %w", printable.Text(f.csv), err)
	}
	all, err := outlooks(table.Nodes)
	if err != nil {
		return v, err
	}
	v.Of, v.Fleet = nodesOf(len(all), "of "+printable.Text(filepath.Base(f.csv))), prospect.Sum(all)
	v.Notes = []string{"The table does not say which use is that of services: all use counts as theirs."}
	if fits := table.FittingStep(); fits > int64(f.every/time.Minute) {
		v.Notes = append(v.Notes, fmt.Sprintf("The lines are farther apart than the step of %d minutes, so steps have no value: --step %dm fits.", f.every/time.Minute, fits))
	}
	if n := table.Resized(); n > 0 {
		v.Notes = append(v.Notes, textlayout.Plural(n, "node has lines with several capacities", "nodes have lines with several capacities")+": the latest one is said here, and a line gives no more room than its own or the latest one does.")
	}
	return v, nil
}

// nodesOf names a number of nodes as the subject of a sentence.
func nodesOf(n int, what string) string {
	if n == 1 {
		return "The node " + what
	}
	return fmt.Sprintf("The %d nodes %s", n, what)
}

func (f *fleetFlags) ofPrometheus(cmd *cobra.Command, rules overcommit.Config, now time.Time) (v outlook.View, err error) {
	if f.Dir == "" {
		f.Dir = "tenon-past-" + now.UTC().AddDate(0, 0, -int(f.Days)).Format(time.DateOnly)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	f.Rules, f.Step, f.Now, f.Report = rules, int64(f.every/time.Minute), now, sayProgress(cmd)
	p, err := pull.Read(ctx, f.Options)
	stop() // what follows keeps nothing: a signal ends it
	for cause, hint := range pullHints {
		if errors.Is(err, cause) {
			return v, fmt.Errorf("%w: %s", err, hint)
		}
	}
	if err != nil {
		return v, err
	}
	all, err := outlooks(p.Nodes())
	if err != nil {
		return v, err
	}
	s := p.Summary()
	return outlook.View{Of: subjectOf(s), Fleet: prospect.Sum(all), Hints: prometheusHints, Notes: notesOf(s)}, nil
}

// subjectOf names the nodes that were read as the subject of a sentence.
func subjectOf(s pull.Summary) string {
	if s.Drawn() {
		return nodesOf(s.Read, fmt.Sprintf("drawn of the %d that Prometheus knows", s.Known))
	}
	return nodesOf(s.Read, "that Prometheus knows")
}

// pullHints say what to do about an error.
var pullHints = map[error]string{
	pull.ErrClusters:   "--match cluster=NAME",
	pull.ErrNoLabel:    "--node-label NAME",
	pull.ErrOther:      "--keep DIR",
	pull.ErrNoManifest: "--keep DIR, or delete the parts",
}

// prometheusHints say what to do about the gaps of nodes that Prometheus knows.
var prometheusHints = map[prospect.GapCode]string{
	prospect.GapBatch: "kube_pod_owner of kube-state-metrics would say it.",
	prospect.GapHoles: "Prometheus, or what it reads, was away.",
}

// notesOf says what the series of the server do not tell.
func notesOf(s pull.Summary) []string {
	has := s.Sources
	notes := []string{fmt.Sprintf("CPU is a mean over %s. An agent sees shorter peaks, and offers less.", textlayout.Plural(int(max(s.Window.Step, has.Rate/60)), "minute", "minutes"))}
	add := func(is bool, note string) {
		if is {
			notes = append(notes, note)
		}
	}
	add(s.Drawn(), fmt.Sprintf("All sums are of the drawn nodes. All %d nodes have about %.1f times as much.", s.Known, float64(s.Known-s.Unsized)/float64(s.Read)))
	add(s.Gone > 0, textlayout.Plural(s.Gone, "node was gone at the end and is left out", "nodes were gone at the end and are left out")+": others may have taken their place.")
	add(s.Unsized > 0, fmt.Sprintf("%d nodes are left out, because no series has their size.", s.Unsized))
	add(has.CPU == past.PodsOnly || has.Memory == past.PodsOnly, "No series says what nodes used beside their pods, so there is less room than this page says. node_exporter would say it.")
	add(has.Label == "", "No series says what pods used: all use counts as that of services.")
	add(has.Label != "" && (has.Owners != has.QoS), "Only Jobs, or only pods of class BestEffort, count as work that could be batch work: kube-state-metrics lacks kube_pod_owner or kube_pod_status_qos_class.")
	add(!has.Held, "No series says which services their own CPU limits held back (container_cpu_cfs_throttled_periods_total).")
	add(has.Held && !has.HeldTime, "For how long services were held back is not known (container_cpu_cfs_throttled_seconds_total).")
	return append(notes, "Who waits for whom is not known: only an agent on the node measures it.")
}

// sayEvery is the time between two lines about the progress.
const sayEvery = 10 * time.Second

// sayProgress returns a function that prints the progress of long work.
func sayProgress(cmd *cobra.Command) func(pull.Progress) {
	last := time.Now()
	return func(p pull.Progress) {
		switch {
		case p.Err != nil:
			cmd.PrintErrf("tenon: %s; again in %v\n", printable.Text(strings.TrimSpace(p.Err.Error())), p.Wait)
		case time.Since(last) >= sayEvery:
			cmd.PrintErrf("tenon: %d of %d parts are read, with %d queries\n", p.Done, p.Of, p.Queries)
		default:
			return
		}
		last = time.Now()
	}
}
