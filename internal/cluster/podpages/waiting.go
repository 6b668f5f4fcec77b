package podpages

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"tenon.sh/tenon/internal/cluster/nodepages"
)

// unheardAfter is the age above which a pod without an answer from a scheduler
// gets a line.
const unheardAfter = 5 * time.Second

// print prints why a pod still waits, if its scheduler does not run, if this may
// not be read, or if it has not answered yet.
func (w *Wait) print(b *strings.Builder, scheduler string, now time.Time) {
	age := now.Sub(w.Created)
	if len(w.Gates) > 0 {
		fmt.Fprintf(b, "No scheduler looks at it until its scheduling gates are removed: %s.\n", strings.Join(w.Gates, ", "))
		return
	}
	if w.Message != "" {
		fmt.Fprintf(b, "Its scheduler says: %s\n", w.Message)
	}
	unheard := !w.Answered && age >= unheardAfter && w.SchedulerState != ""
	if unheard || w.unknown || w.SchedulerState.IsAbsence(scheduler) {
		fmt.Fprintf(b, "It waits for scheduler %s, which %s.\n", scheduler, w.SchedulerText)
	}
	switch {
	case unheard && w.EventsUnread == "":
		fmt.Fprintf(b, "No scheduler has looked at it since it was created %s ago: it has no condition and no event of one.\n", nodepages.Duration(age))
	case unheard:
		fmt.Fprintf(b, "No scheduler has set a condition on it since it was created %s ago. Not looked at: its events (%s).\n", nodepages.Duration(age), w.EventsUnread)
	}
}

// printNodes prints what each node answers to a pod that has no node yet.
func (p *PodPage) printNodes(b *strings.Builder) {
	if len(p.Nodes) == 0 && len(p.NotLookedAt) > 0 {
		fmt.Fprint(b, "It has no node, and which nodes would take it is not known.\n")
		return
	}
	fits := 0
	for _, n := range p.Nodes {
		if n.Fits {
			fits++
		}
	}
	atMost := ""
	if p.lacks.Pods != "" {
		atMost = "at most "
	}
	fmt.Fprintf(b, "It has no node; %s%d of %s would take it now.\n\n", atMost, fits, plural(len(p.Nodes), "node"))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tOPEN\tFITS\tRATING\tCPUS\tWHERE, OR WHY NOT")
	for _, n := range p.Nodes {
		fits, where := "yes", n.Where
		if !n.Fits {
			fits, where = "no", strings.Join(n.Why, "; ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Node, openText(n.Open, n.Online), fits, ratingText(n.Rating), orDash(n.CPUs), where)
	}
	w.Flush() // writes to memory and cannot fail
	fmt.Fprintf(b, "\n%s\n", uncheckedText)
}

func ratingText(rating *int64) string {
	if rating == nil {
		return "-"
	}
	return fmt.Sprint(*rating)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// uncheckedText names the conditions that kubectl tenon does not check.
const uncheckedText = "Looked at: CPUs, requests, taints, node selectors and required node affinity. Not looked at: pod affinity,\ntopology spread, volumes and host ports. A rating from 0 to 100 is that of the CPUs alone."
