// Package rollouts reads and writes the ConfigMap with the state of a rollout, and says
// in words what the rollout found.
package rollouts

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/rollout"
	"tenon.sh/tenon/internal/table"
)

// Name is the name of the ConfigMap, which is in the namespace of the manager.
const Name = "tenon-rollout"

const key = "state.json"

// Read returns the state in a ConfigMap. It refuses one that no rollout can have made.
func Read(m *corev1.ConfigMap) (rollout.State, error) {
	text, has := m.Data[key]
	if !has {
		return rollout.State{}, nil
	}
	var s rollout.State
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return rollout.State{}, fmt.Errorf("read the state of the rollout: %w", err)
	}
	if err := s.Check(); err != nil {
		return rollout.State{}, fmt.Errorf("read the state of the rollout: it cannot be one: %w", err)
	}
	return s, nil
}

// Data returns the data of a ConfigMap with the state.
func Data(s rollout.State) (map[string]string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the state of the rollout: %w", err)
	}
	return map[string]string{key: string(text)}, nil
}

// percent prints by how much a ratio is above or below 1.
func percent(ratio float64) string {
	return fmt.Sprintf("%+.1f %%", math.Round((ratio-1)*1000)/10+0) // + 0: there is no -0.0
}

// Sentence says what a rollout does after a look, and why.
func Sentence(c rollout.Config, v rollout.Verdict) string {
	switch v.Code {
	case rollout.Begins:
		return fmt.Sprintf("Batch work comes to %v of the nodes first. Services may wait %v longer for a CPU.", v.Share, c.Margin)
	case rollout.Price:
		return fmt.Sprintf("Batch work is off on all nodes: service %s has waited longer by %.0f %% of what the margin of %v allows it in a day.", v.Service, v.Spent*100, c.Margin)
	}
	found := fmt.Sprintf("Where batch work is on, the time that services wait for a CPU changes by %s", percent(v.Ratio))
	if v.Upper > 0 {
		found += fmt.Sprintf(" (%s to %s)", percent(v.Lower), percent(v.Upper))
	}
	found += fmt.Sprintf(": %d pairs of nodes in %d blocks of %d nodes", v.Logs, v.Blocks, v.Nodes)
	switch v.Code {
	case rollout.Harm:
		return fmt.Sprintf("Batch work is off on all nodes. %s. The margin is %v.", found, c.Margin)
	case rollout.GivesUp:
		return fmt.Sprintf("Batch work is off on all nodes, undecided. %s. This stage asked for less than %s.", found, percent(v.Allowed))
	case rollout.Finishes:
		return fmt.Sprintf("Batch work is on on all nodes. %s. The margin is %v.", found, c.Margin)
	case rollout.Advances:
		return fmt.Sprintf("The next stage begins. %s. This stage asked for less than %s.", found, percent(v.Allowed))
	}
	wait := "no end is in sight at this noise"
	if v.Decides > 0 {
		wait = fmt.Sprintf("%s more at this noise", hours(v.Decides))
	}
	return fmt.Sprintf("Undecided, %s. %s. This stage asks for less than %s.", wait, found, percent(v.Allowed))
}

func hours(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	}
	return fmt.Sprintf("%.0f hours", d.Hours())
}

// Text returns the page about a rollout: what it does now, and the numbers of each look.
func Text(s rollout.State, now time.Time) string {
	if s.Phase == "" {
		return "There is no rollout.\n"
	}
	var b strings.Builder
	last := s.Verdicts[len(s.Verdicts)-1]
	fmt.Fprintln(&b, Sentence(s.Config, last))
	if s.Phase == rollout.Compares {
		fmt.Fprintf(&b, "Stage %d of %d began %s ago: %v of the nodes, %d pairs, %d blocks so far.", s.Stage+1, len(s.Config.Shares), ago(now, s.Since), s.Config.Shares[s.Stage], len(s.Pairs), s.Blocks)
		switch {
		case s.Drawn == 0:
			fmt.Fprintf(&b, " No node is on yet: the manager reads what is usual, on at least two nodes for %s.", minutes(s.Config.Epoch/2))
		case len(s.Pairs) == 0:
			fmt.Fprint(&b, " There are fewer than two nodes with a service that counts and whose waits are known.")
		default:
			fmt.Fprintf(&b, " The nodes of each pair swap each %s, last %s ago.", minutes(s.Config.Epoch), ago(now, s.Swapped))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintln(&b)
	table.Write(&b, "", columns, s.Verdicts)
	return b.String()
}

// columns are those of a look.
var columns = []table.Column[rollout.Verdict]{
	{Name: "AT", Text: func(v rollout.Verdict) string { return v.At.UTC().Format("01-02 15:04") }},
	{Name: "STAGE", Text: func(v rollout.Verdict) string { return fmt.Sprint(v.Stage + 1) }},
	{Name: "NODES", Text: func(v rollout.Verdict) string { return fmt.Sprint(v.Nodes) }},
	{Name: "BLOCKS", Text: func(v rollout.Verdict) string { return fmt.Sprint(v.Blocks) }},
	{Name: "PAIRS", Text: func(v rollout.Verdict) string { return fmt.Sprint(v.Logs) }},
	{Name: "LONGER", Text: func(v rollout.Verdict) string { return unlessZero(v.Ratio) }},
	{Name: "BOUNDS", Text: bounds},
	{Name: "ASKED", Text: func(v rollout.Verdict) string { return unlessZero(v.Allowed) }},
	{Name: "TOTAL", Text: func(v rollout.Verdict) string { return unlessZero(v.Total) }},
	{Name: "NOISE", Text: noise},
	{Name: "THEN", Text: func(v rollout.Verdict) string { return string(v.Code) }},
}

func bounds(v rollout.Verdict) string {
	if v.Upper == 0 {
		return "–"
	}
	return percent(v.Lower) + " to " + percent(v.Upper)
}

func unlessZero(ratio float64) string {
	if ratio == 0 {
		return "–"
	}
	return percent(ratio)
}

func noise(v rollout.Verdict) string {
	if v.Noise == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", v.Noise)
}

func ago(now, then time.Time) string { return minutes(now.Sub(then)) }

// minutes prints a time without seconds: 1h30m. It is below 0 if the clock is behind that of
// the manager, which shows then.
func minutes(d time.Duration) string {
	if d.Abs() < time.Minute {
		return "less than a minute"
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}
