package main

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cmdline"
)

func newExplainCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "explain WORKLOAD | CGROUP | CGROUP FILE | isolation | batch",
		Short: "Say what was decided about a workload or a knob, why, and since when",
		Long: `Say what was decided about a workload, a cgroup or one knob: what it uses, which
rule gave it its class, and for each knob its value now and before Tenon, what
its policy wants, why, and since when. The last part of a workload's name will
do if no other has it. With batch (or batch-cpu, batch-memory): what batch work
may count on, term by term. A job that is called batch is
explained by its cgroup, such as tenon-be/batch. FILE may also be an order for the BE scheduler:
scheduler and scheduler.cap of the root cgroup /, scheduler.group of another.
tenond must run.`,
		Example: `  sudo tenon explain nginx.service
  sudo tenon explain batch.slice
  sudo tenon explain batch.slice cpu.max
  sudo tenon explain / scheduler.cap
  sudo tenon explain isolation
  sudo tenon explain batch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words := strings.Fields(strings.Join(args, " "))
			if len(words) != 1 && len(words) != 2 {
				return cmdline.Usagef("explain wants a workload, or a cgroup and a file such as batch.slice cpu.max: tenon status and tenon top list them")
			}
			agent := g.agent()
			var e control.Explanation
			var err error
			if len(words) == 2 {
				e, err = agent.ExplainKnob(cmd.Context(), strings.Join(words, " "))
			} else {
				e, err = agent.ExplainWorkload(cmd.Context(), words[0])
			}
			if err != nil {
				return needRoot("explain", suggest(err))
			}
			return g.output.Print(cmd.OutOrStdout(), e, e.String())
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			s, err := g.agent().Status(cmd.Context())
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := []string{"batch", "isolation"}
			for _, w := range s.Workloads {
				names = append(names, string(w.ID))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// suggest adds similar names to an error about an unknown name.
func suggest(err error) error {
	var unknown *control.Unknown
	if !errors.As(err, &unknown) {
		return err
	}
	const most = 5
	var near []string
	for _, known := range unknown.Known {
		if resembles(unknown.Name, known) && len(near) < most {
			near = append(near, printable.Text(known))
		}
	}
	if len(near) == 0 {
		return fmt.Errorf("%w: tenon status -o json lists the workloads", err)
	}
	return fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
}

// resembles reports whether name may be a part or a misspelling of an existing
// name (known), or of the last element of that name.
func resembles(name, known string) bool {
	name, known = strings.ToLower(name), strings.ToLower(known)
	if name == "" {
		return false
	}
	last := path.Base(known)
	unit := strings.TrimSuffix(strings.TrimSuffix(last, ".service"), ".slice")
	far := min(max(len(name)/4, 1), 2)
	misspelt := func(word string) bool { return levenshtein.ComputeDistance(name, word) <= far }
	return strings.Contains(known, name) || misspelt(last) || misspelt(unit) || misspelt(known)
}
