package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/machine/journal"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// global holds the values of the flags that several commands share.
type global struct {
	output   cmdline.Output
	stateDir string // of commands that write or read the journal
	agentDir string // of commands that ask tenond
	log      cmdline.Log
}

func newRootCommand() *cobra.Command {
	g := &global{stateDir: defaultStateDir(), agentDir: journal.DefaultDir, log: cmdline.Log{Level: cmdline.LogLevel(slog.LevelWarn)}}
	root := &cobra.Command{
		Use:   "tenon",
		Short: "Fit batch work into the CPU that latency-sensitive services leave idle",
		Long: `Tenon fits batch work (BE, best-effort) into the CPU that latency-sensitive
services (LS) leave idle, and keeps their tail latency where it was.`,
		Example: `  tenon doctor                                    # what this machine can do
  sudo tenon run --qos BE -- ffmpeg -i in.mp4 out.mkv
  sudo tenon plan --be system.slice/backup.service # what would be written
  sudo tenon restore                              # put every kernel knob back`,
	}
	doctor, status, top, explain, plan, report := newDoctorCommand(g), newStatusCommand(g), newTopCommand(g), newExplainCommand(g), newPlanCommand(g), newReportCommand(g)
	run, restore, capture, replay := newRunCommand(g), newRestoreCommand(g), newCaptureCommand(g), newReplayCommand(g)
	g.stateDirFlag(doctor, plan, run, restore)
	g.agentFlag(status, top, explain, capture)
	g.output.Add(doctor, status, explain, plan, report, run, restore, capture, replay)
	g.log.Add(run)
	cmdline.AddGroups(root,
		cmdline.CommandGroup{Title: "Look", Commands: []*cobra.Command{doctor, status, top, explain, plan, report}},
		cmdline.CommandGroup{Title: "Run", Commands: []*cobra.Command{run, newSliceCommand(g), newIsolationCommand(g)}},
		cmdline.CommandGroup{Title: "Undo", Commands: []*cobra.Command{restore}},
		cmdline.CommandGroup{Title: "Debug", Commands: []*cobra.Command{capture, replay}},
		cmdline.CommandGroup{Title: "Measure", Commands: []*cobra.Command{newLabCommand(g)}})
	cmdline.Prepare(root, versionName())
	return root
}

// stateDirFlag adds the flag --state-dir to commands that work with the journal.
func (g *global) stateDirFlag(cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		cmd.Flags().StringVar(&g.stateDir, "state-dir", g.stateDir, "the directory of the journal of old values")
		cmdline.Dirs(cmd.Flags(), "state-dir")
	}
}

// agentFlag adds the flag --state-dir to commands that ask tenond. By default, all
// users ask the tenond of root.
func (g *global) agentFlag(cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		cmd.Flags().StringVar(&g.agentDir, "state-dir", g.agentDir, "the state directory of tenond")
		cmdline.Dirs(cmd.Flags(), "state-dir")
	}
}

// agent returns the client of tenond.
func (g *global) agent() *control.Client { return control.NewClient(g.agentDir) }

// defaultStateDir returns the state directory of the node, in which only root
// can write. For other users it returns a directory of their own.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return journal.DefaultDir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "tenon")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("tenon-%d", os.Getuid()))
}

// versionName returns the version of the build.
func versionName() string { return cmdline.Version(version) }
