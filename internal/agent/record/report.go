package record

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/table"
)

// A Report lists the differences between a replay and its record. Its JSON keys
// are stable.
type Report struct {
	Ticks int       `json:"ticks"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	// Stretches is the number of parts of the record without a gap. A gap is a
	// restart of tenond, or missing ticks. Each part of the replay starts from the
	// recorded state of the policies.
	Stretches int `json:"stretches"`
	// Skipped is the number of lines at the start that cannot be used, because
	// they depend on ticks that the record lacks.
	Skipped int `json:"skipped,omitempty"`
	// Foreign is the number of lines that were skipped because of their version of
	// the record. OtherVersion is the version of the last of them.
	Foreign      int `json:"foreign,omitempty"`
	OtherVersion int `json:"other_version,omitempty"`
	// Observed means that tenond only observed when it made the record: no step was
	// performed, and the knobs are virtual.
	Observed bool `json:"observed,omitempty"`
	// Torn means that the last line is incomplete.
	Torn bool `json:"torn,omitempty"`
	// Other means that the replay used another configuration than the record.
	Other bool `json:"other_config,omitempty"`
	// Differ is the number of ticks with a difference. Drifted is the number of
	// key lines whose recorded state differs from the replayed state.
	Differ  int `json:"differ"`
	Drifted int `json:"drifted,omitempty"`
	// RecordedSteps is the number of writes in the record. ReplayedSteps is the
	// number of writes in the replay.
	RecordedSteps int `json:"recorded_steps"`
	ReplayedSteps int `json:"replayed_steps"`
	// StepsOfPolicies has ReplayedSteps by policy. It is absent if Other is false.
	StepsOfPolicies map[plan.Owner]int64 `json:"steps_of_policies,omitempty"`
	Changes         []Change             `json:"changes,omitempty"`
}

// A Change is a knob for which the replay wants another value than the record.
type Change struct {
	node.Knob
	// Ticks is the number of ticks in which the wants for the knob differ. First
	// is the time of the first of them. The other fields describe that tick.
	Ticks    int       `json:"ticks"`
	First    time.Time `json:"first"`
	Recorded string    `json:"recorded"`
	Replayed string    `json:"replayed"`
	// Reason is the reason of the replayed want. It is empty if Recorded and
	// Replayed contain the reasons.
	Reason string `json:"reason,omitempty"`
}

// Identical reports whether the replay decided exactly what was recorded.
func (r Report) Identical() bool { return r.Differ == 0 && r.Drifted == 0 }

func (r *Report) add(t Tick, steps int) {
	if r.Ticks == 0 {
		r.From = t.Snapshot.At
	}
	r.To = t.Snapshot.At
	r.Ticks++
	r.RecordedSteps += len(t.Done)
	r.ReplayedSteps += steps
}

// String returns the report as tenon replay prints it.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Record: %s from %s to %s (%v), %s.\n", count(r.Ticks, "tick", "ticks"), clock(r.From), clock(r.To),
		r.To.Sub(r.From).Round(time.Second), count(r.RecordedSteps, "write", "writes"))
	if r.Stretches > 1 {
		fmt.Fprintf(&b, "It is of %d stretches: tenond was started again in between, or ticks are missing.\n", r.Stretches)
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&b, "%s skipped at the start, for lack of the ticks before.\n", count(r.Skipped, "line is", "lines are"))
	}
	if r.Foreign > 0 {
		fmt.Fprintf(&b, "%s left out, recorded by another release: the last is of version %d of the record, and this program reads version %d.\n",
			count(r.Foreign, "line is", "lines are"), r.OtherVersion, version)
	}
	if r.Observed {
		b.WriteString("tenond only observed: it performed none of these writes, and the values of knobs are what they would have become.\n")
	}
	if r.Torn {
		b.WriteString("Its last line is torn and left out.\n")
	}
	switch {
	case r.Identical() && r.Other:
		b.WriteString("With this configuration: every knob would have been asked to be the same.\n")
	case r.Identical():
		b.WriteString("Replay: every want and every step is the same.\n")
	case r.Other:
		fmt.Fprintf(&b, "With this configuration: %d of %d ticks differ, %d writes. What the workloads use is as recorded.\n",
			r.Differ, r.Ticks, r.ReplayedSteps)
	default:
		fmt.Fprintf(&b, "Replay: %d of %d ticks differ; at %d checkpoints the policies remember something else.\n",
			r.Differ, r.Ticks, r.Drifted)
	}
	if len(r.Changes) == 0 {
		return b.String()
	}
	b.WriteByte('\n')
	table.Write(&b, "", changeColumns, r.Changes)
	return b.String()
}

// changeColumns are what the report shows of a change.
var changeColumns = []table.Column[Change]{
	{Name: "KNOB", Text: func(c Change) string { return c.Knob.String() }},
	{Name: "TICKS", Text: func(c Change) string { return fmt.Sprint(c.Ticks) }},
	{Name: "FIRST AT", Text: func(c Change) string { return clock(c.First) }},
	{Name: "RECORDED", Text: func(c Change) string { return c.Recorded }},
	{Name: "REPLAYED", Text: func(c Change) string { return c.Replayed }},
	{Name: "WHY", Text: func(c Change) string { return c.Reason }},
}

func count(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }
