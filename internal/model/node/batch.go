package node

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Batch is the CPU and memory of the node that BE work may request
// (kubernetes.io/batch-cpu and kubernetes.io/batch-memory). The zero Batch
// means that colocation is off and BE may request nothing.
type Batch struct {
	CPU    Amount[unit.MilliCPU] `json:"cpu_mcpu,omitzero"`
	Memory Amount[unit.Bytes]    `json:"memory_bytes,omitzero"`
}

// An Amount is the published amount of one resource, with its explanation.
type Amount[T unit.MilliCPU | unit.Bytes] struct {
	Value T `json:"value"`
	// The sum of Terms is Value. Both are from the same computation.
	Terms []Term[T] `json:"terms,omitempty"`
	// Policy is the name of the formula. If it is empty, the resource is not published.
	Policy string `json:"policy,omitempty"`
	// Over is the time over which usage was averaged.
	Over time.Duration `json:"over_ns,omitempty"`
	// Since is the time at which Value was set, on the clock of Snapshot.At.
	Since time.Time `json:"since,omitzero"`
	// Formula is the result of the formula now. If Held is empty, Value equals
	// Formula. Otherwise Value is an earlier result, and Held gives the reason.
	Formula T      `json:"formula"`
	Held    string `json:"held,omitempty"`
	// Degraded says which input is missing, and how this changes the amount. It
	// is empty if no input is missing.
	Degraded string `json:"degraded,omitempty"`
}

// Unmeasured is the text of Amount.Degraded before the first measurement. Until
// then Value is 0. The node may still have room.
const Unmeasured = "no use was measured yet: nothing is promised"

// A Term is one summand of an Amount. A negative term is printed as a subtraction.
type Term[T unit.MilliCPU | unit.Bytes] struct {
	Name   TermName `json:"name"`
	Amount T        `json:"amount"`
	// Text is printed after the amount of the term, such as "used by LS".
	Text string `json:"text"`
}

// TermName identifies a Term. The term of a class has the name of the class.
type TermName string

// The names of the terms that belong to no class.
const (
	TermCapacity TermName = "capacity" // the part of the node's capacity that Tenon divides
	TermNode     TermName = "node"     // the use of the node outside the workloads
	TermReserved TermName = "reserved" // the reservation of the node, if it exceeds TermNode
	TermLimit    TermName = "limit"    // the part above the configured maximum
	TermFloor    TermName = "floor"    // raises a negative sum to 0
	TermUnneeded TermName = "unneeded" // all that is left of a node that services hardly use
)

// Enabled reports whether colocation is on, even if both amounts are 0.
func (b Batch) Enabled() bool { return b.CPU.Policy != "" || b.Memory.Policy != "" }

// String prints the two amounts, one on each line.
func (b Batch) String() string {
	return "batch-cpu " + b.CPU.String() + "\nbatch-memory " + b.Memory.String()
}

// String prints the amount as the sum of its terms:
//
//	5200m = 65% of 16000m - 800m used by the system - 4400m used by LS
func (a Amount[T]) String() string {
	var b strings.Builder
	b.WriteString(Readable(a.Value))
	for i, t := range a.Terms {
		switch {
		case i == 0:
			fmt.Fprintf(&b, " = %s", t.Text)
		case t.Amount > 0:
			fmt.Fprintf(&b, " + %s %s", Readable(t.Amount), t.Text)
		default:
			fmt.Fprintf(&b, " - %s %s", Readable(-t.Amount), t.Text)
		}
	}
	if a.Held != "" {
		fmt.Fprintf(&b, "; the formula gives %s now: %s", Readable(a.Formula), a.Held)
	}
	if a.Degraded != "" {
		fmt.Fprintf(&b, "; %s", a.Degraded)
	}
	return b.String()
}

// Readable prints CPU in thousandths of a CPU, and memory in whole MiB.
func Readable[T unit.MilliCPU | unit.Bytes](v T) string {
	if bytes, is := any(v).(unit.Bytes); is {
		return fmt.Sprintf("%dMi", (int64(bytes)+(1<<19))>>20)
	}
	return fmt.Sprint(v)
}

// Explain prints the amount of a resource with its name and its terms, a line for
// each. since says since when the amount is offered, or is empty.
func (a Amount[T]) Explain(name, since string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: what batch work may count on, by %s", name, Readable(a.Value), a.Policy)
	if a.Over > 0 {
		fmt.Fprintf(&b, " over %v", a.Over)
	}
	if since != "" {
		b.WriteString(", " + since)
	}
	b.WriteByte('\n')
	var sum T
	for i, t := range a.Terms {
		sum += t.Amount
		amount, sign, text := t.Amount, " ", t.Text
		switch {
		case i > 0 && amount > 0:
			sign = "+"
		case i > 0:
			amount, sign = -amount, "-"
		}
		if text == "" {
			text = string(t.Name)
		}
		fmt.Fprintf(&b, "  %s %10s  %s\n", sign, Readable(amount), text)
	}
	if len(a.Terms) > 0 {
		fmt.Fprintf(&b, "  = %10s\n", Readable(a.Value))
	}
	if len(a.Terms) > 0 && sum != a.Value {
		fmt.Fprintf(&b, "  wrong   the terms add up to %s\n", Readable(sum))
	}
	if a.Held != "" {
		fmt.Fprintf(&b, "  now     the formula gives %s: %s\n", Readable(a.Formula), a.Held)
	}
	if a.Degraded != "" {
		fmt.Fprintf(&b, "  because %s\n", a.Degraded)
	}
	return b.String()
}
