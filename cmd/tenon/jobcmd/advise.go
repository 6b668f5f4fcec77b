package jobcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/concurrency/run"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// NewAdvise returns the command tenon lab advise.
func NewAdvise(f Frame) *cobra.Command {
	var g jobs.Goal
	var price float64
	var patch string
	var size nodeSize
	cmd := &cobra.Command{
		Use:   "advise DIR [flags]",
		Short: "Say how many jobs to run at once and with which CPU limit",
		Long: `Say how many jobs to run at once on a node and with which CPU limit, from an
experiment of tenon lab concurrency. Without --cores, the advice is one of the
ways that were measured. Of ways that the measurement cannot tell apart it names
the simplest: no limit before a limit, fewer jobs before more.

With --cores it is for a machine of that size and the same kind, and a model of
the measured machine predicts the time of a job. Printed with it is the error with
which the model, fitted to the other cells, predicts the cells with the most jobs.
What is too far from the measurement is refused, with the reason. The experiment
must know the size of its machine: import --node-cpus and --node-cores.`,
		Example: `  tenon lab advise published
  tenon lab advise published --shortest
  tenon lab advise published --deadline 30s
  tenon lab advise published --jobs 200 --within 2h --price 0.80
  tenon lab advise published --patch transcoder
  tenon lab advise published --cores 16 --threads-per-core 2`,
		Args:              cmdline.OneArg("directory"),
		ValidArgsFunction: cmdline.DirArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkAdvise(cmd, g, price, size, patch); err != nil {
				return cmdline.Usage(err)
			}
			e, all, err := loadJobs(args[0])
			if err != nil {
				return err
			}
			r := concurrency.Analyse(e, all)
			p := run.Patch{Node: e.Node, Container: patch, Burst: burstMax(e.Command)}
			v, text, err := adviseFrom(r, g, price, size, &p)
			if err != nil {
				return fmt.Errorf("advise %s: %w", args[0], err)
			}
			for _, w := range r.Warnings {
				text += w + "\n"
			}
			if patch != "" {
				if err := p.CheckUse(); err != nil {
					return fmt.Errorf("advise %s: %w", args[0], err)
				}
				text = patchText(p, text)
				switch v := v.(type) {
				case *concurrency.Forecast:
					v.Patch = text
				case *concurrency.Advice:
					v.Patch = text
				}
			}
			return f.Print(cmd, v, text)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&g.Shortest, "shortest", false, "want the shortest job instead of the most jobs an hour")
	flags.DurationVar(&g.Deadline, "deadline", 0, "longest time that a job may take, such as 30s")
	flags.IntVar(&g.Jobs, "jobs", 0, "number of jobs that have to end; needs --within")
	flags.DurationVar(&g.Within, "within", 0, "time in which --jobs have to end on one node")
	flags.Float64Var(&price, "price", 0, "cost of a node for an hour")
	flags.IntVar(&size.cores, "cores", 0, "cores of another machine that the advice is for")
	flags.IntVar(&size.threads, "threads-per-core", 0, "CPUs on each of the --cores (default: as measured)")
	flags.StringVar(&patch, "patch", "", "print a patch for a Job whose container has this name")
	return cmd
}

// adviseFrom returns the advice as a value for JSON and as sentences. It completes p.
func adviseFrom(r concurrency.Result, g jobs.Goal, price float64, size nodeSize, p *run.Patch) (v any, text string, err error) {
	if size.cores == 0 {
		advice, err := r.Advise(g, price)
		if err != nil {
			return nil, "", err
		}
		p.Advice = advice
		return &advice, advice.Text(), nil
	}
	p.Node = size.machine(p.Node)
	forecast, err := r.Forecast(p.Node, g, price)
	if err != nil {
		return nil, "", err
	}
	p.Advice = forecast.Advice
	return &forecast, forecast.Text(), nil
}

// patchText returns a patch for a Job. Its comment contains the advice, and the
// limits of the advice.
func patchText(p run.Patch, advice string) string {
	patch, notes := p.Text()
	notes = append(strings.Split(strings.TrimSpace(advice), "\n"), append(notes,
		"Apply it to a manifest before the Job is created: later the pod template cannot be changed, except in a suspended Job.")...)
	var b strings.Builder
	for _, note := range notes {
		for _, line := range textlayout.Wrap(note, textlayout.Width-2) {
			b.WriteString("# " + line + "\n")
		}
	}
	return b.String() + patch
}

// checkAdvise returns an error about the flags of tenon lab advise.
func checkAdvise(cmd *cobra.Command, g jobs.Goal, price float64, size nodeSize, container string) error {
	given := cmd.Flags().Changed
	switch {
	case given("price") && !(price > 0 && price <= math.MaxFloat64):
		return fmt.Errorf("--price %g: want the cost of a node for an hour, a number above 0", price)
	case given("deadline") && g.Deadline <= 0:
		return fmt.Errorf("--deadline %v: want a time above 0, such as 30s", g.Deadline)
	case given("within") && g.Within <= 0:
		return fmt.Errorf("--within %v: want a time above 0, such as 2h", g.Within)
	case given("jobs") && g.Jobs < 1:
		return fmt.Errorf("--jobs %d: want a number of jobs from 1", g.Jobs)
	case given("jobs") && !given("within"):
		return errors.New("--jobs needs --within: the time in which the jobs have to end")
	case given("within") && !given("jobs"):
		return errors.New("--within needs --jobs: the number of jobs that have to end in this time")
	case given("patch"):
		if err := (run.Patch{Container: container}).Check(); err != nil {
			return fmt.Errorf("--patch %w", err)
		}
	}
	return size.check(cmd)
}

// loadJobs reads an experiment of tenon lab concurrency. For other tables and
// folders, the error says what to do.
func loadJobs(path string) (concurrency.Experiment, []jobs.Job, error) {
	e, all, err := concurrency.Load(path)
	if err == nil {
		return e, all, nil
	}
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return e, nil, fmt.Errorf("advise %s: there is no such directory", path)
	case statErr == nil && !info.IsDir() && strings.EqualFold(filepath.Ext(path), ".csv"):
		return e, nil, fmt.Errorf("advise %s: this is a table, not an experiment of tenon lab concurrency: import it first, with tenon lab concurrency import %[1]s --out DIR", path)
	case e.Schema > 0 && e.Kind != concurrency.Kind:
		return e, nil, fmt.Errorf("advise %s: this is another experiment, not one of tenon lab concurrency", path)
	case e.Kind != concurrency.Kind:
		return e, nil, fmt.Errorf("advise %s: this is not an experiment of tenon lab concurrency: import a table or logs first (tenon lab concurrency import): %w", path, err)
	}
	return e, nil, err
}

// burstMax returns the value of --burst-max in the command that ran the
// experiment, or the default.
func burstMax(command []string) unit.MilliCPU {
	const flag, usual = "--burst-max", 8000
	for i, word := range command {
		value, has := strings.CutPrefix(word, flag+"=")
		if word == flag && i+1 < len(command) {
			value, has = command[i+1], true
		}
		if m, err := unit.ParseMilliCPU(value); has && err == nil && m > 0 {
			return m
		}
	}
	return usual
}

// A nodeSize is the size of the machine for which the user wants advice.
type nodeSize struct{ cores, threads int }

func (s nodeSize) check(cmd *cobra.Command) error {
	switch given := cmd.Flags().Changed; {
	case given("cores") && s.cores < 1:
		return fmt.Errorf("--cores %d: want a number of cores from 1", s.cores)
	case given("threads-per-core") && (s.threads < 1 || s.threads > 8):
		return fmt.Errorf("--threads-per-core %d: want a number of CPUs on each core from 1 to 8", s.threads)
	case given("threads-per-core") && !given("cores"):
		return errors.New("--threads-per-core needs --cores")
	}
	return nil
}

// machine returns the machine of the user. If the number of CPUs on a core is
// not given, it is that of the measured machine.
func (s nodeSize) machine(measured concurrency.Node) concurrency.Node {
	threads := s.threads
	if threads == 0 {
		threads = max(1, measured.CPUs/max(measured.Cores, 1))
	}
	return concurrency.Node{CPUs: s.cores * threads, Cores: s.cores}
}
