package podpages

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/table"
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
		w.printGate(b)
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

// printGate prints who opens the gate of a batch pod.
func (w *Wait) printGate(b *strings.Builder) {
	switch {
	case !slices.Contains(w.Gates, kube.BatchGate):
	case w.NoManager != "":
		fmt.Fprintf(b, "Nothing removes %s now, because %s.\n", kube.BatchGate, w.NoManager)
	default:
		fmt.Fprintf(b, "tenon-manager removes %s when a node has batch room for the pod. After a minute, an event of the pod says why it waits.\n", kube.BatchGate)
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
	fmt.Fprintf(b, "It has no node; %s%d of %s would take it now.\n\n", atMost, fits, table.Count(len(p.Nodes), "node"))
	table.Write(b, "", answerColumns, p.Nodes)
	fmt.Fprintf(b, "\n%s\n", uncheckedText)
}

// answerColumns are what the page shows of the answer of a node.
var answerColumns = []table.Column[NodeAnswer]{
	{Name: "NODE", Text: func(n NodeAnswer) string { return n.Node }},
	{Name: "OPEN", Text: func(n NodeAnswer) string { return openText(n.Open, n.Online) }},
	{Name: "FITS", Text: func(n NodeAnswer) string { return map[bool]string{true: "yes", false: "no"}[n.Fits] }},
	{Name: "RATING", Text: func(n NodeAnswer) string { return ratingText(n.Rating) }},
	{Name: "CPUS", Text: func(n NodeAnswer) string { return table.OrDash(n.CPUs) }},
	{Name: "WHERE, OR WHY NOT", Text: func(n NodeAnswer) string {
		if n.Fits {
			return n.Where
		}
		return strings.Join(n.Why, "; ")
	}},
}

func ratingText(rating *int64) string {
	if rating == nil {
		return "-"
	}
	return fmt.Sprint(*rating)
}

// uncheckedText names the conditions that kubectl tenon does not check.
const uncheckedText = "Looked at: CPUs, requests, taints, node selectors and required node affinity. Not looked at: pod affinity,\ntopology spread, volumes and host ports. A rating from 0 to 100 is that of the CPUs alone."
