// Package jobcmd has the commands of tenon about batch jobs and their CPUs: tenon
// lab concurrency, tenon lab pinning and tenon lab advise.
package jobcmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/jobfiles"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// A Frame contains the functions of the program that the commands of this
// package call.
type Frame struct {
	Version string
	// Print writes v as JSON if the user asked for JSON, otherwise it writes text.
	Print func(cmd *cobra.Command, v any, text string) error
	// Findings prints the result of an experiment.
	Findings func(*cobra.Command, report.Findings) error
	// Prepare fills in the settings that have no flag.
	Prepare func(*testbed.Setting) error
	// Experiment runs an experiment until it ends or the user interrupts it, and
	// prints its results.
	Experiment func(*cobra.Command, func(context.Context) (harness.Outcome, error)) error
}

func newImport(f Frame) *cobra.Command {
	var e concurrency.Experiment
	var out, strategy string
	cmd := &cobra.Command{
		Use:   "import PATH... --out DIR [flags]",
		Short: "Make an experiment from a table of jobs, or from the logs of containers",
		Long: `Read jobs that ran elsewhere and make the directory of an experiment, which tenon
lab report and tenon lab advise read. PATH is a table (CSV) with the columns of the
published transcoding experiment, with or without a dash in the type of a job;
or a folder: a node's /var/log/containers, or one with links.txt and the logs of
Docker. The name of the folder is the name of the node. Nothing but --out is
written, and no file there is replaced. docs/lab-concurrency.md has the columns and
the names of logs. --strategy, --node-cpus and --node-cores let tenon lab advise predict for
machines of other sizes.`,
		Example: `  tenon lab concurrency import db-aws.csv --node-cpus 16 --node-cores 8 --out published
  tenon lab concurrency import node00/ node01/ --out published`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmdline.Usagef("import wants a table or a folder with logs: see tenon lab concurrency import --help")
			}
			if err := checkNode(e.Node); err != nil {
				return cmdline.Usage(err)
			}
			if strategy != "" && !slices.Contains(strategyNames(), strategy) {
				return cmdline.Usagef("--strategy %q: want one of %s", strategy, strings.Join(strategyNames(), ", "))
			}
			in, err := jobfiles.ReadPaths(args)
			if err != nil {
				return err
			}
			for i := range in.Jobs {
				in.Jobs[i].Extra.Strategy = cmp.Or(in.Jobs[i].Extra.Strategy, strategy)
			}
			if out == "" {
				out = "tenon-lab-" + time.Now().Format("20060102-150405")
			}
			e.Started, e.Command, e.Version, e.Imported, e.Blocks = in.Begun(), os.Args, f.Version, args, in.Blocks()
			e.ImportedJobs = len(in.Jobs)
			findings, err := concurrency.Create(out, e, in.Jobs)
			if err != nil {
				return err
			}
			if err := f.Findings(cmd, findings); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s from %s and %s\n", textlayout.Plural(len(in.Jobs), "job", "jobs"), textlayout.Plural(in.Tables, "table", "tables"), textlayout.Plural(in.Logs, "log", "logs"))
			for _, text := range in.PassedTexts() {
				fmt.Fprintln(cmd.ErrOrStderr(), text)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "report: "+filepath.Join(out, "report.html"))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "directory of the results (default ./tenon-lab-TIME)")
	flags.StringVar(&strategy, "strategy", "", "how the CPUs were divided among these jobs, if the files do not say: "+strings.Join(strategyNames(), ", "))
	flags.IntVar(&e.Node.CPUs, "node-cpus", 0, "CPUs of a node, with sibling threads (default: not known)")
	flags.IntVar(&e.Node.Cores, "node-cores", 0, "cores of a node (default: not known)")
	cmdline.Dirs(flags, "out")
	cmdline.Complete(cmd, "strategy", strategyNames()...)
	return cmd
}

// These are the bounds of a node. A kernel has at most 8,192 CPUs
// (CONFIG_NR_CPUS), and a core has at most eight threads (POWER).
const (
	maxCPUs    = 8192
	maxThreads = 8
)

// checkNode returns an error for a node that cannot exist.
func checkNode(n concurrency.Node) error {
	switch {
	case n.CPUs < 0 || n.CPUs > maxCPUs || n.Cores < 0:
		return fmt.Errorf("--node-cpus %d, --node-cores %d: want numbers from 0, and at most %d CPUs", n.CPUs, n.Cores, maxCPUs)
	case n.CPUs == 0 && n.Cores > 0:
		return fmt.Errorf("--node-cores %d needs --node-cpus: the number of CPUs, with sibling threads", n.Cores)
	case n.Cores > n.CPUs:
		return fmt.Errorf("--node-cpus %d, --node-cores %d: want no more cores than CPUs", n.CPUs, n.Cores)
	case n.Cores > 0 && n.CPUs > 2*n.Cores && (n.CPUs%n.Cores != 0 || n.CPUs/n.Cores > maxThreads):
		// If there are at most twice as many CPUs as cores, some CPUs may lack a sibling.
		return fmt.Errorf("--node-cpus %d, --node-cores %d: want at most %d CPUs on a core, and above 2 as many on each", n.CPUs, n.Cores, maxThreads)
	}
	return nil
}
