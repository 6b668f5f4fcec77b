package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/machine/journal"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// global holds the values of the flags that all commands share.
type global struct {
	output   cmdline.Output
	stateDir string // of commands that write or read the journal
	agentDir string // of commands that ask tenond
	log      cmdline.Log
}

func newRootCommand() *cobra.Command {
	g := &global{output: cmdline.Text, stateDir: defaultStateDir(), agentDir: journal.DefaultDir, log: cmdline.Log{Level: cmdline.LogLevel(slog.LevelWarn)}}
	root := &cobra.Command{
		Use:   "tenon",
		Short: "Fit batch work into the CPU that latency-sensitive services leave idle",
		Long: `Tenon fits batch work (BE, best-effort) into the CPU that latency-sensitive
services (LS) leave idle, and keeps their tail latency where it was.`,
		Example: `  tenon doctor                                    # what this machine can do
  sudo tenon run --qos BE -- ffmpeg -i in.mp4 out.mkv
  sudo tenon plan --be system.slice/backup.service # what would be written
  sudo tenon restore                              # put every kernel knob back`,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{explainFlag(cmd, err)} })
	g.output.Add(root, root.PersistentFlags())
	for _, part := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Look", []*cobra.Command{newDoctorCommand(g), g.agentFlag(newStatusCommand(g)), g.agentFlag(newTopCommand(g)), g.agentFlag(newExplainCommand(g)), newPlanCommand(g)}},
		{"Run", []*cobra.Command{newRunCommand(g), g.agentFlag(newSliceCommand(g)), g.agentFlag(newIsolationCommand(g))}},
		{"Undo", []*cobra.Command{newRestoreCommand(g)}},
		{"Debug", []*cobra.Command{g.agentFlag(newCaptureCommand(g)), newReplayCommand(g)}},
		{"Measure", []*cobra.Command{newLabCommand(g)}},
	} {
		root.AddGroup(&cobra.Group{ID: part.title, Title: part.title + ":"})
		for _, cmd := range part.commands {
			cmd.GroupID = part.title
		}
		root.AddCommand(part.commands...)
	}
	cmdline.AddVersion(root, versionName(), noArgs)
	refuseMore(root)
	return root
}

// stateDirFlag adds the flag --state-dir to commands that work with the journal.
func (g *global) stateDirFlag(cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		cmd.Flags().StringVar(&g.stateDir, "state-dir", g.stateDir, "the directory of the journal of old values")
	}
}

// agentFlag adds the flag --state-dir to a command that asks tenond, and to the
// commands below it. By default, all users ask the tenond of root.
func (g *global) agentFlag(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVar(&g.agentDir, "state-dir", g.agentDir, "the state directory of tenond")
	return cmd
}

// agent returns the client of tenond.
func (g *global) agent() *control.Client { return control.NewClient(g.agentDir) }

// refuseMore makes the commands of the library refuse the same arguments as other
// commands. A shell then offers no files for commands without arguments.
func refuseMore(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return refuseUnknown(of, "command", rest)
				}
				of.InitDefaultHelpFlag()
				return of.Help()
			}
		case "completion":
			cmd.Args, cmd.SuggestionsMinimumDistance = knownCommand, 2
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		offerNoFiles(cmd)
	}
}

// offerNoFiles makes a shell offer no files for commands that take no arguments:
// cmd and the commands below it.
func offerNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		offerNoFiles(below)
	}
}

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

// knownCommand returns an error if the first argument is no command.
func knownCommand(cmd *cobra.Command, args []string) error {
	return refuseUnknown(cmd, "command", args)
}

// refuseUnknown returns an error if arguments are left: the first one is not the
// name of a command below cmd. kind is the word for such a command.
func refuseUnknown(cmd *cobra.Command, kind string, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if args[0] == "help" && cmd.HasParent() {
		below := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		hint = "see " + strings.Join(append([]string{cmd.Root().Name(), "help", below}, args[1:]...), " ")
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{fmt.Errorf("unknown %s %q: %s", kind, args[0], hint)}
}

// noArgs returns an error if there are arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no argument, got %q: see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())}
	}
	return nil
}

// accepted maps the types of flags to the accepted values. Other types tell these themselves.
var accepted = map[string]string{
	"bool": "true or false", "int": "a whole number", "uint64": "a whole number from 0", "float64": "a number", "duration": "a duration such as 1m30s",
}

// explainFlag completes an error of a flag. For an unknown flag, it adds the names
// of similar flags. For a wrong value, it adds the accepted values.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	hint := "see " + cmd.CommandPath() + " --help"
	if errors.As(err, &unknown) {
		var near []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name := unknown.GetSpecifiedName(); len(name) > 1 && !f.Hidden && (levenshtein.ComputeDistance(name, f.Name) <= 2 || strings.HasPrefix(f.Name, name)) {
				near = append(near, "--"+f.Name)
			}
		})
		if len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	if errors.As(err, &invalid) {
		if accepts := accepted[invalid.GetFlag().Value.Type()]; accepts != "" {
			return fmt.Errorf("invalid argument %q for \"--%s\" flag: want %s: %s", invalid.GetValue(), invalid.GetFlag().Name, accepts, hint)
		}
	}
	return fmt.Errorf("%w: %s", err, hint)
}
