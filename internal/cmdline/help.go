package cmdline

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// columns is the width of the help.
const columns = 100

// A CommandGroup is a part of the commands of a program in its help.
type CommandGroup struct {
	Title    string
	Commands []*cobra.Command
}

// AddGroups adds commands below a command. The help prints them in groups, in this
// order.
func AddGroups(cmd *cobra.Command, groups ...CommandGroup) {
	for _, g := range groups {
		cmd.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title + ":"})
		for _, below := range g.Commands {
			below.GroupID = g.Title
		}
		cmd.AddCommand(g.Commands...)
	}
}

// A FlagGroup is a part of the flags of a command in its help.
type FlagGroup struct {
	Title string
	Flags []string
}

// groupKey is the annotation of a flag with its group: the number of the group,
// and its title.
const groupKey = "tenon.sh/group"

// GroupFlags makes the help print flags in groups, in this order. The first group
// also has the flags that no group names. Flags that are added later, such as
// --help, come last.
func GroupFlags(flags *pflag.FlagSet, groups ...FlagGroup) {
	flags.VisitAll(func(f *pflag.Flag) {
		of := max(0, slices.IndexFunc(groups, func(g FlagGroup) bool { return slices.Contains(g.Flags, f.Name) }))
		_ = flags.SetAnnotation(f.Name, groupKey, []string{strconv.Itoa(of) + groups[of].Title}) // cannot fail: the flag exists
	})
}

// setHelp makes the help of a program print the flags in their groups, and wrap
// their texts. The rest of the help is that of the library.
func setHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("flagGroups", flagGroups)
	root.SetUsageTemplate(strings.NewReplacer(
		"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", `{{flagGroups "Global Flags" .InheritedFlags}}`,
		"Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", `{{flagGroups "Flags" .LocalFlags}}`,
	).Replace(root.UsageTemplate()))
}

// flagGroups returns the help of flags. title is that of flags without groups.
func flagGroups(title string, all *pflag.FlagSet) string {
	sets := map[string]*pflag.FlagSet{}
	add := func(group string, f *pflag.Flag) {
		if sets[group] == nil {
			sets[group] = pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		sets[group].AddFlag(f)
	}
	var without []*pflag.Flag
	all.VisitAll(func(f *pflag.Flag) {
		switch group := f.Annotations[groupKey]; {
		case f.Hidden:
		case len(group) == 1:
			add(group[0], f)
		default:
			without = append(without, f)
		}
	})
	rest := "9Help"
	if len(sets) == 0 {
		rest = "9" + title
	}
	for _, f := range without {
		add(rest, f)
	}
	var parts []string
	for _, group := range slices.Sorted(maps.Keys(sets)) {
		parts = append(parts, group[1:]+":\n"+strings.TrimRight(sets[group].FlagUsagesWrapped(columns), "\n"))
	}
	return strings.Join(parts, "\n\n")
}
