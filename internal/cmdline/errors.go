package cmdline

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenon.sh/tenon/internal/agent/printable"
)

// These are the exit statuses that all programs have.
const (
	ExitFailure = 1
	ExitUsage   = 2
)

// A UsageError is an error in the command line.
type UsageError struct{ err error }

func (e UsageError) Error() string { return e.err.Error() }

func (e UsageError) Unwrap() error { return e.err }

// Usage returns err as an error in the command line.
func Usage(err error) error { return UsageError{err} }

// Usagef returns an error in the command line with this text. It takes what
// fmt.Errorf takes.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// End prints the error with which a program ends, and returns its exit status. It
// is 0 without an error.
func End(program string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, program+": "+OneLine(err))
	return ExitStatus(err)
}

// OneLine returns the text of an error. Joined errors are on one line, so that
// scripts and logs do not split them.
func OneLine(err error) string { return printable.Value(err.Error()) }

// ExitStatus returns the exit status after an error.
func ExitStatus(err error) int {
	if errors.As(err, new(UsageError)) {
		return ExitUsage
	}
	return ExitFailure
}

// NoArgs returns an error if there are arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := seeHelp(cmd)
	if near := nearCommands(cmd, args[0]); len(near) > 0 {
		hint = didYouMean(near)
	}
	return Usagef("%s takes no argument, got %q: %s", cmd.CommandPath(), args[0], hint)
}

// OneArg returns a check of arguments: there must be one. what says what it is.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return Usagef("%s wants one %s, got %d: %s", cmd.CommandPath(), what, len(args), seeHelp(cmd))
	}
}

// Known returns a check of arguments for a command that only has commands below
// it: an argument that is none of them is an error. kind is the word for such a
// command.
func Known(kind string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return refuse(cmd, kind, args) }
}

// maxListed is the number of commands that an error lists at most.
const maxListed = 10

// refuse returns an error if arguments are left: the first one is not the name of
// a command below cmd.
func refuse(cmd *cobra.Command, kind string, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() && below.Name() != "completion" {
			known = append(known, below.Name())
		}
	}
	hint := seeHelp(cmd)
	near := nearCommands(cmd, args[0])
	switch {
	case args[0] == "help" && cmd.HasParent():
		below := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().DisplayName()+" ")
		hint = "see " + strings.Join(append([]string{cmd.Root().DisplayName(), "help", below}, args[1:]...), " ")
	case len(near) > 0:
		hint = didYouMean(near)
	case len(known) > 0 && len(known) <= maxListed:
		hint = "want " + strings.Join(known, ", ")
	}
	return Usagef("unknown %s %q: %s", kind, args[0], hint)
}

func seeHelp(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }

func didYouMean(names []string) string { return "did you mean " + strings.Join(names, " or ") + "?" }

// Nearest returns the question whether a name was meant as one of the known ones, or "" if
// it resembles none.
func Nearest(name string, known []string) string {
	near := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !resembles(name, k) })
	if name == "" || len(near) == 0 {
		return ""
	}
	return didYouMean(near[:min(len(near), maxNear)])
}

// maxNear is the number of names after which an error asks at most.
const maxNear = 5

// nearCommands returns the commands below cmd whose names resemble a name.
func nearCommands(cmd *cobra.Command, name string) (near []string) {
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() && resembles(name, below.Name()) {
			near = append(near, below.Name())
		}
	}
	return near
}

// resembles reports whether name may be the beginning or a misspelling of a known
// name.
func resembles(name, known string) bool {
	name = strings.ToLower(name)
	if strings.HasPrefix(known, name) {
		return true
	}
	far := levenshtein.ComputeDistance(name, known)
	return far == 1 || far == 2 && (len(name) > 3 || sorted(name) == sorted(known))
}

// sorted returns the letters of a word in order: two words that have the same
// letters differ by letters that are swapped.
func sorted(word string) string {
	letters := []rune(word)
	slices.Sort(letters)
	return string(letters)
}

// accepted maps the types of flags to the accepted values. Other types tell these
// themselves.
var accepted = map[string]string{
	"bool": "true or false", "int": "a whole number", "uint64": "a whole number from 0", "float64": "a number", "duration": "a duration such as 1m30s",
}

// maxHolders is the number of commands with a flag that an error names at most.
const maxHolders = 3

// FlagError completes an error of a flag. For an unknown flag, it adds the names
// of similar flags, or of the commands that have this flag. For a wrong value, it
// adds the accepted values.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		hint := seeHelp(cmd)
		var near []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name := unknown.GetSpecifiedName(); len(name) > 1 && !f.Hidden && resembles(name, f.Name) {
				near = append(near, "--"+f.Name)
			}
		})
		if len(near) > 0 {
			hint = didYouMean(near)
		} else if holders := flagHolders(cmd.Root(), unknown); len(holders) == 1 {
			hint = holders[0] + " has it"
		} else if len(holders) > 1 && len(holders) <= maxHolders {
			hint = strings.Join(holders[:len(holders)-1], ", ") + " and " + holders[len(holders)-1] + " have it"
		}
		return Usagef("unknown flag: %s: %s", FlagName(unknown), hint)
	case errors.As(err, &invalid):
		if accepts := accepted[invalid.GetFlag().Value.Type()]; accepts != "" {
			return Usagef("invalid argument %q for \"--%s\" flag: want %s: %s", invalid.GetValue(), invalid.GetFlag().Name, accepts, seeHelp(cmd))
		}
	}
	return Usagef("%w: %s", err, seeHelp(cmd))
}

// FlagName returns an unknown flag as the user wrote it, such as -n or --name.
func FlagName(unknown *pflag.NotExistError) string {
	if unknown.GetSpecifiedShortnames() != "" {
		return "-" + unknown.GetSpecifiedName()
	}
	return "--" + unknown.GetSpecifiedName()
}

// flagHolders returns the commands, from cmd down, that have a flag.
func flagHolders(cmd *cobra.Command, unknown *pflag.NotExistError) (paths []string) {
	name := unknown.GetSpecifiedName()
	f := cmd.LocalFlags().Lookup(name)
	if unknown.GetSpecifiedShortnames() != "" {
		f = cmd.LocalFlags().ShorthandLookup(name)
	}
	if f != nil && !f.Hidden && !cmd.Hidden {
		paths = append(paths, cmd.CommandPath())
	}
	for _, below := range cmd.Commands() {
		paths = append(paths, flagHolders(below, unknown)...)
	}
	return paths
}
