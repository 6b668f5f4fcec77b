// Package cmdline has what the command lines of Tenon's programs share: the
// version, the format of an answer, the flags of the log, the groups of the help,
// what a shell offers, and the errors of a wrong command line.
package cmdline

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Prepare gives the commands of a program what those of all programs have. It
// must be called when all commands and flags are there.
//
// The program gets --version and the command version. A command that only has
// commands below it prints its help, and refuses other arguments. An error of a
// flag names what is near to it. A shell offers files only for flags and commands
// that want them.
func Prepare(root *cobra.Command, version string) {
	addVersion(root, version)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(FlagError)
	setHelp(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return refuse(of, "command", rest)
				}
				of.InitDefaultHelpFlag()
				return of.Help()
			}
		case "completion":
			cmd.Args = nil // the library's error says less
		}
	}
	prepare(root)
}

// prepare is Prepare for a command and the commands below it.
func prepare(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		if cmd.Args == nil {
			cmd.Args = Known("command")
		}
	}
	if cmd.ValidArgsFunction == nil && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	offerNoFiles(cmd)
	for _, below := range cmd.Commands() {
		prepare(below)
	}
}

// Version returns the version of the program: that which the build has set, or
// else that of the main module.
func Version(set string) string {
	if set != "" {
		return set
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

// VersionLine returns the line that a program prints as its version.
func VersionLine(program, version string) string {
	return fmt.Sprintf("%s %s %s %s\n", program, version, runtime.Version(), platform)
}

// addVersion adds the flag --version and the command version to root. Both print
// one line: the program, its version, that of Go, and the platform.
func addVersion(root *cobra.Command, version string) {
	v := struct {
		Program  string `json:"program"`
		Version  string `json:"version"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{root.Name(), version, runtime.Version(), platform}
	line := VersionLine(v.Program, v.Version)
	root.Version = version
	root.SetVersionTemplate(line)
	var o Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  " + root.DisplayName() + " version -o json",
		Args:    NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.Print(cmd.OutOrStdout(), v, line) },
	}
	o.Add(cmd)
	root.AddCommand(cmd)
}
