package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenon.sh/tenon/cmd/tenon/jobcmd"
	"tenon.sh/tenon/internal/machine/journal"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// global holds the values of the flags that all commands share.
type global struct {
	output   output
	stateDir string
	verbose  bool
}

func newRootCommand() *cobra.Command {
	g := &global{output: text, stateDir: defaultStateDir()}
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
	flags := root.PersistentFlags()
	flags.VarP(&g.output, "output", "o", "how to print: text or json")
	flags.StringVar(&g.stateDir, "state-dir", g.stateDir, "directory of the journal of old values")
	flags.BoolVar(&g.verbose, "verbose", false, "log to stderr what is done")
	complete(root, "output", "text", "json")

	root.AddCommand(
		newRunCommand(g),
		newPlanCommand(g),
		newRestoreCommand(g),
		newStatusCommand(g),
		newExplainCommand(g),
		newTopCommand(g),
		newQOSCommand(g),
		newSliceCommand(g),
		newCaptureCommand(g),
		newReplayCommand(g),
		newDoctorCommand(g),
		newLabCommand(g),
		jobcmd.NewAdvise(jobFrame(g)),
		newVersionCommand(g),
	)
	refuseMore(root)
	return root
}

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

func newVersionCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  tenon version -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{versionName(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return g.output.print(cmd.OutOrStdout(), v, fmt.Sprintf("tenon %s %s %s\n", v.Version, v.Go, v.Platform))
		},
	}
}

// versionName returns the version of the build. The Makefile or go install sets
// it.
func versionName() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

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
