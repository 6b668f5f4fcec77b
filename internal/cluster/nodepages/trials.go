package nodepages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/trial"
	"tenon.sh/tenon/internal/table"
)

// trials prints the results of the trials of isolation mechanisms on one node.
func trials(b *strings.Builder, t *v1alpha1.Trials, now time.Time) {
	if t == nil {
		return
	}
	fmt.Fprintf(b, "\nIsolation by trials: %s", keptOf(t))
	if t.Since != nil {
		fmt.Fprintf(b, ", for %s", Duration(max(now.Sub(t.Since.Time), 0)))
	}
	if t.Why != "" {
		fmt.Fprintf(b, " (%s)", t.Why)
	}
	b.WriteString("\n")
	if len(t.Results) == 0 {
		return
	}
	columns := slices.Insert(slices.Clone(resultColumns), 1, column("AGAINST", func(r v1alpha1.TrialResult) string { return orFloor(r.Against) }))
	columns = append(columns, column("ENDED", func(r v1alpha1.TrialResult) string { return Duration(max(now.Sub(r.Ended.Time), 0)) + " ago" }))
	table.Write(b, "  ", columns, t.Results)
	for _, r := range t.Results {
		fmt.Fprintf(b, "  %s: %s", r.Candidate, r.Finding)
		if r.Why != "" {
			fmt.Fprintf(b, ", because %s", r.Why)
		}
		b.WriteString("\n")
		for _, s := range r.Services {
			fmt.Fprintf(b, "    %s: %s %s\n", s.Name, r.Candidate, anHour(s.Without.Duration, s.With.Duration))
		}
		if r.More > 0 {
			fmt.Fprintf(b, "    and %d more\n", r.More)
		}
	}
}

// resultColumns are what two pages show of a trial.
var resultColumns = []table.Column[v1alpha1.TrialResult]{
	column("TRIED", func(r v1alpha1.TrialResult) string { return r.Candidate }),
	column("FOUND", func(r v1alpha1.TrialResult) string { return r.Finding }),
	column("PAIRS", func(r v1alpha1.TrialResult) string { return fmt.Sprint(r.Pairs) }),
	column("WAIT WITHOUT", func(r v1alpha1.TrialResult) string { return wait(r.Without) }),
	column("WAIT WITH", func(r v1alpha1.TrialResult) string { return wait(r.With) }),
	column("RATIO", ratio),
}

func column[R any](name string, text func(R) string) table.Column[R] {
	return table.Column[R]{Name: name, Text: text}
}

// A tried is a trial on a node. result is nil if the node has had none yet.
type tried struct {
	node   Node
	result *v1alpha1.TrialResult
}

// Isolation prints the results of the trials of isolation mechanisms: one line
// for each trial of each node, and the sum for each mechanism.
func Isolation(nodes []Node, now time.Time) string {
	var sums []sum
	var rows []tried
	why := map[string][]string{}
	for _, n := range nodes {
		if n.Report == nil || n.Report.Status.Trials == nil {
			unknown := cmp.Or(n.Unread, "no report of trials")
			why[unknown] = append(why[unknown], n.Name)
			continue
		}
		t := n.Report.Status.Trials
		if len(t.Results) == 0 {
			rows = append(rows, tried{node: n})
			none := "no trial yet: " + table.OrDash(t.Why)
			why[none] = append(why[none], n.Name)
		}
		for i := range t.Results {
			rows = append(rows, tried{n, &t.Results[i]})
			sums = add(sums, t.Kept, t.Results[i])
		}
	}
	columns := []table.Column[tried]{
		column("NODE", func(r tried) string { return r.node.Name }),
		column("IN USE", func(r tried) string { return table.OrDash(r.node.Report.Status.Isolation) }),
		column("SINCE", func(r tried) string {
			since := r.node.Report.Status.Trials.Since
			if since == nil {
				return "-"
			}
			return Duration(max(now.Sub(since.Time), 0))
		}),
	}
	for _, c := range resultColumns {
		columns = append(columns, column(c.Name, func(r tried) string {
			if r.result == nil {
				return "-"
			}
			return c.Text(*r.result)
		}))
	}
	var b strings.Builder
	table.Write(&b, "", columns, rows)
	if len(sums) > 0 {
		b.WriteString("\nTogether\n")
	}
	for _, s := range sums {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	if len(why) > 0 {
		b.WriteString("\nWithout a result\n")
	}
	for _, text := range sorted(why) {
		fmt.Fprintf(&b, "  %s: %s\n", printNames(why[text]), text)
	}
	return b.String()
}

// A sum adds up the results of the trials of one mechanism on all nodes.
type sum struct {
	mechanism string
	found     map[string]int // number of nodes by finding
	nodes     int            // nodes that use the mechanism because a trial kept it
	more      int32          // services of these nodes that the reports omit
	// without and with are the times that the services of these nodes wait for a
	// CPU in an hour: without the mechanism, and with it.
	without, with time.Duration
}

// add adds the result of a trial. kept is the mechanism that the node uses.
func add(sums []sum, kept string, r v1alpha1.TrialResult) []sum {
	at := slices.IndexFunc(sums, func(s sum) bool { return s.mechanism == r.Candidate })
	if at < 0 {
		at = len(sums)
		sums = append(sums, sum{mechanism: r.Candidate, found: map[string]int{}})
	}
	s := &sums[at]
	s.found[r.Finding]++
	if r.Finding == string(trial.Kept) && kept == r.Candidate {
		s.nodes++
		s.more += r.More
		for _, service := range r.Services {
			s.without += service.Without.Duration
			s.with += service.With.Duration
		}
	}
	return sums
}

func (s sum) String() string {
	var found []string
	for _, f := range trial.Findings {
		if n := s.found[string(f)]; n > 0 {
			found = append(found, fmt.Sprintf("%s on %d", f, n))
		}
	}
	text := s.mechanism + ": " + strings.Join(found, ", ")
	if s.nodes > 0 {
		text += "; where it is in use, " + anHour(s.without, s.with)
	}
	if s.more > 0 {
		text += fmt.Sprintf("; %d more services are not counted", s.more)
	}
	return text
}

// anHour describes how much less or more services wait for a CPU in an hour
// because of a mechanism.
func anHour(without, with time.Duration) string {
	change, verb := without-with, "saves"
	if change < 0 {
		change, verb = -change, "costs"
	}
	return fmt.Sprintf("%s %v of waiting for a CPU an hour (%v instead of %v)", verb, change.Round(time.Millisecond), with.Round(time.Millisecond), without.Round(time.Millisecond))
}

func keptOf(t *v1alpha1.Trials) string {
	if t.Kept == "" {
		return "the floor, the least weight with long slices"
	}
	return t.Kept + ", which a trial kept"
}

func orFloor(mechanism string) string {
	if mechanism == "" {
		return "the floor"
	}
	return mechanism
}

// ratio prints the ratio of a trial and its bounds (trial.Result).
func ratio(r v1alpha1.TrialResult) string {
	if r.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", float64(r.Ratio)/1000, float64(r.Low)/1000, float64(r.High)/1000)
}

// wait prints the mean length of a wait.
func wait(d metav1.Duration) string {
	if d.Duration == 0 {
		return "-"
	}
	return d.Round(10 * time.Nanosecond).String()
}
