package cmdline

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Complete sets the values that a shell offers for a flag.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	CompleteFrom(cmd, flag, func(context.Context) []string { return values })
}

// CompleteFrom sets a function that finds the values that a shell offers for a
// flag.
func CompleteFrom(cmd *cobra.Command, flag string, values func(context.Context) []string) {
	complete(cmd, flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return values(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
}

// CompleteList sets the values that a shell offers for a flag with a list. After
// each comma, the shell offers the values that are not yet in the list.
func CompleteList(cmd *cobra.Command, flag string, values ...string) {
	CompleteListFrom(cmd, flag, func(context.Context) []string { return values })
}

// CompleteListFrom is CompleteList with a function that finds the values.
func CompleteListFrom(cmd *cobra.Command, flag string, values func(context.Context) []string) {
	complete(cmd, flag, func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		begun := text[:strings.LastIndexByte(text, ',')+1]
		has := strings.Split(begun, ",")
		var offers []string
		for _, v := range values(cmd.Context()) {
			if !slices.Contains(has, v) {
				offers = append(offers, begun+v)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	// An error means that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, values)
}

// Files makes a shell offer files for flags.
func Files(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = cobra.MarkFlagFilename(flags, name) // an error means that the flag does not exist
	}
}

// Dirs makes a shell offer directories for flags.
func Dirs(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = cobra.MarkFlagDirname(flags, name) // an error means that the flag does not exist
	}
}

// DirArg makes a shell offer directories for the one argument of a command.
func DirArg(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// offerNoFiles makes a shell offer nothing for the flags of a command that have
// no other completion. By default, it would offer files.
func offerNoFiles(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, files := f.Annotations[cobra.BashCompFilenameExt]
			_, dirs := f.Annotations[cobra.BashCompSubdirsInDir]
			if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && !files && !dirs && f.NoOptDefVal == "" {
				Complete(cmd, f.Name)
			}
		})
	}
}
