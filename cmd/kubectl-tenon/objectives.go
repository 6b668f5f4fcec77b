package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cluster/objectivetext"
	"tenon.sh/tenon/internal/cmdline"
)

// services is the page of kubectl tenon objectives.
type services struct {
	Services []objectivetext.Service `json:"services"`
}

// Text returns the page.
func (s services) Text() string { return objectivetext.Table(s.Services) }

func objectivesCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:   "objectives",
		Short: "Print whether the services keep their objectives, a line for each service over all nodes",
		Long: `Prints a line for each service with an objective that a node has reported: the
pods of one controller with one objective, on all nodes. REQUESTS and MEASURED are
of the last windows of all pods: their histograms are added up, and percentiles are
not averaged. Services that miss their objective come first: FOR is the time of the
longest miss, up to the last report of its node, and CULPRIT names the work that is
most to blame, and the work that alone has less CPU for the service (bounded).
kubectl tenon explain pod says more about one pod.`,
		Example: `  kubectl tenon objectives
  kubectl tenon objectives -o json`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.cluster(cmd.Context(), cmd.ErrOrStderr(), "", "", now())
			if err != nil {
				return err
			}
			for _, text := range append(c.NotLookedAt(), c.Uncounted()...) {
				fmt.Fprintf(cmd.ErrOrStderr(), "not looked at: %s\n", text)
			}
			return a.print(cmd, services{c.Services()})
		},
	}
}
