package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/jobcmd"
	"tenon.sh/tenon/cmd/tenon/labcmd"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/published"
	"tenon.sh/tenon/internal/lab/report"
)

// A publication is the experiment of a published document.
type publication struct {
	name     string // of the command
	document string // of package published
	makes    func(g *global, show showFindings) *cobra.Command
	settings [][2]string // flags of that command that have the document's value by default
	note     string      // what the settings stand for
	example  string
}

func colocationCommand(g *global, show showFindings) *cobra.Command {
	return labcmd.NewColocation(labFrame(g, show))
}

// colocationSettings are those of both editions: modes at equal CPU use, 60 s a run.
var colocationSettings = [][2]string{{"modes", "published"}, {"duration", "60s"}, {"max-time", "60m"}}

const colocationNote = `The modes are those of the document: nginx alone (twice, to show what this machine can
tell apart), beside ffmpeg as Kubernetes runs it at equal CPU use, and beside ffmpeg
with all features of its third mode. With --kubernetes, they run in pods of a cluster
that has Tenon. --client wrk is the closed loop of the document.`

var publications = []publication{
	{
		name: "colocation", document: "colocation", makes: colocationCommand, settings: colocationSettings, note: colocationNote,
		example: `  sudo tenon lab published colocation
  sudo tenon lab published colocation --blocks 2 --duration 3s
  tenon lab published colocation --kubernetes --node worker-1
  tenon lab published colocation --kubernetes --node worker-1 --client wrk --modes exclusive,default,slo-aware
  tenon lab published colocation --from tenon-lab-20260102-150405`,
	},
	{
		name: "ack", document: "colocation-zh", makes: colocationCommand, settings: colocationSettings,
		note: "It is the Chinese edition of the document of tenon lab published colocation, with the same\nexperiment and the same figures.\n\n" + colocationNote,
		example: `  sudo tenon lab published ack
  tenon lab published ack --kubernetes --node worker-1`,
	},
	{
		name: "scheduling", document: "scheduling",
		makes: func(g *global, show showFindings) *cobra.Command { return jobcmd.NewPinning(jobFrame(g, show)) },
		settings: [][2]string{
			{"modes", "shared,shared-aa,pinned-quota,static-burst"}, {"duration", "60s"}, {"blocks", "12"}, {"max-time", "60m"},
		},
		note: `The modes are those of the document: without an annotation (twice, to show what this
machine can tell apart), with cpuset-scheduler, and with static-burst. With
--kubernetes, its manifests run on a node of a cluster.`,
		example: `  sudo tenon lab published scheduling
  sudo tenon lab published scheduling --parts pi --blocks 8
  tenon lab published scheduling --kubernetes --node worker-1 --client-cpus 32-45`,
	},
	{
		name: "concurrency", document: "concurrency",
		makes: func(g *global, show showFindings) *cobra.Command {
			return withoutImport(jobcmd.NewConcurrency(jobFrame(g, show)))
		},
		settings: [][2]string{{"preset", "published"}, {"max-time", "60m"}},
		note: `The grid is that of the document: limits below and around one CPU for its heat map,
and 1 to 7 jobs in each setup of its curves. Cells that exceed the machine are left
out and named. --preset published-quick is a small part of it.`,
		example: `  sudo tenon lab published concurrency
  sudo tenon lab published concurrency --preset published-quick --blocks 1
  tenon lab published concurrency --kubernetes --node worker-1`,
	},
	{
		name: "kernel-qos", document: "kernel-qos",
		makes:    func(g *global, show showFindings) *cobra.Command { return labcmd.NewKernelQOS(labFrame(g, show)) },
		settings: [][2]string{{"modes", "published"}, {"duration", "60s"}, {"max-time", "60m"}},
		note: `The groups are those of the document: nginx alone (twice, to show what this machine
can tell apart), beside ffmpeg with a CPU request and without priorities, and beside
ffmpeg with each mechanism of this kernel that gives priorities.`,
		example: `  sudo tenon lab published kernel-qos
  sudo tenon lab published kernel-qos --blocks 2 --duration 3s`,
	},
}

// withoutImport removes the commands below a command.
func withoutImport(cmd *cobra.Command) *cobra.Command {
	cmd.RemoveCommand(cmd.Commands()...)
	return cmd
}

// newPublishedCommand returns the command tenon lab published, and the experiments
// below it.
func newPublishedCommand(g *global) (cmd *cobra.Command, experiments []*cobra.Command) {
	cmd = &cobra.Command{
		Use:   "published",
		Short: "Repeat the experiment of a published document, and show its figures beside yours",
		Long: `Run the experiment of one of the five published documents with its settings, and
print the table of the document: its figures, those of this run, and their changes with
intervals. docs/published.md says why they differ.`,
		Example: "  sudo tenon lab published colocation\n  tenon lab published colocation --kubernetes --node worker-1\n  sudo tenon lab published kernel-qos",
		Args:    cmdline.Known("document"),
	}
	data := published.Read()
	for _, p := range publications {
		experiments = append(experiments, p.command(g, data))
	}
	cmd.AddCommand(experiments...)
	return cmd, experiments
}

// command returns the command of the experiment, with the settings of the document,
// and with the table of the document at the end.
func (p publication) command(g *global, data published.Dataset) *cobra.Command {
	doc, _ := data.Document(p.document) // a test finds each of them
	show := func(cmd *cobra.Command, f report.Findings) error { return printPublished(cmd, g, data, doc, f) }
	cmd := p.makes(g, show)
	inner := cmd.Name()
	cmd.Use, cmd.Example = p.name+" [flags]", p.example
	cmd.Short = "Repeat: " + doc.Title
	cmd.Long = fmt.Sprintf("Repeat the experiment of a published document, and print its table:\n\n  %s\n  %s\n\n%s\n\n"+
		"It is tenon lab %s with other defaults, and has all its flags. --from shows the\ntable of an experiment that has ended.", doc.Title, doc.Address, p.note, inner)
	for _, s := range p.settings {
		cmd.Flags().Lookup(s[0]).DefValue = s[1]
	}
	var from string
	cmd.Flags().StringVar(&from, "from", "", "show the table of the experiment in this directory, and run nothing")
	cmdline.Dirs(cmd.Flags(), "from")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if from != "" {
			return p.showAgain(cmd, doc, from, show)
		}
		for _, s := range p.settings {
			if cmd.Flags().Changed(s[0]) {
				continue
			}
			if err := cmd.Flags().Set(s[0], s[1]); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
	return cmd
}

// showAgain shows the table of an experiment that has ended.
func (p publication) showAgain(cmd *cobra.Command, doc published.Document, dir string, show showFindings) error {
	kind, err := report.KindOf(dir)
	if err != nil {
		return err
	}
	if kind != doc.Kind {
		return fmt.Errorf("show %s: it is an experiment of the kind %q, and this document has the kind %q", dir, kind, doc.Kind)
	}
	f, err := lab.Kinds[kind](dir)
	if err != nil {
		return err
	}
	return show(cmd, f)
}

// A publishedResult is an experiment beside a document, for -o json.
type publishedResult struct {
	Document string           `json:"document"`
	Title    string           `json:"title"`
	Address  string           `json:"address"`
	Tables   []published.Grid `json:"tables"`
	Result   any              `json:"result"`
}

// printPublished prints the result of an experiment, and then the tables of the
// document.
func printPublished(cmd *cobra.Command, g *global, data published.Dataset, doc published.Document, f report.Findings) error {
	text, err := json.Marshal(f.Result())
	if err != nil {
		return fmt.Errorf("compare with the document: %w", err)
	}
	result, err := published.Decode(text)
	if err != nil {
		return fmt.Errorf("compare with the document: %w", err)
	}
	tables := data.Beside(doc, result)
	if g.output != cmdline.Text {
		return g.output.Print(cmd.OutOrStdout(), publishedResult{doc.Name, doc.Title, doc.Address, tables, f.Result()}, "")
	}
	if err := printFindings(cmd, g, f); err != nil {
		return err
	}
	return published.WriteText(cmd.OutOrStdout(), doc, tables)
}
