package node

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Batch is the amount of the node's CPU and memory that BE work may request.
// Its resources are Koordinator's kubernetes.io/batch-cpu and
// kubernetes.io/batch-memory. The zero Batch promises nothing, because
// colocation is off.
type Batch struct {
	CPU    Amount[unit.MilliCPU] `json:"cpu_mcpu,omitzero"`
	Memory Amount[unit.Bytes]    `json:"memory_bytes,omitzero"`
}

// An Amount is the promised amount of a resource, with its explanation.
type Amount[T unit.MilliCPU | unit.Bytes] struct {
	Value T `json:"value"`
	// Terms add up to Value. They are those of the time when it was found.
	Terms []Term[T] `json:"terms,omitempty"`
	// Policy is the formula; empty: the resource is not promised at all.
	Policy string `json:"policy,omitempty"`
	// Over is the time over which use was averaged.
	Over time.Duration `json:"over_ns,omitempty"`
	// Since is when Value was found, by the clock of the snapshots.
	Since time.Time `json:"since,omitzero"`
	// Formula is what the formula gives now, and Held says why that is not
	// promised yet; empty: it is.
	Formula T      `json:"formula"`
	Held    string `json:"held,omitempty"`
	// Degraded says which input is missing and what follows; empty: none is.
	Degraded string `json:"degraded,omitempty"`
}

// Unmeasured is why an Amount is degraded of which nothing has been found yet: its
// 0 is no finding.
const Unmeasured = "no use was measured yet: nothing is promised"

// A Term is one part of an Amount: above 0 what adds to it, below 0 what is
// taken away.
type Term[T unit.MilliCPU | unit.Bytes] struct {
	Name   TermName `json:"name"`
	Amount T        `json:"amount"`
	// Text goes on where the amount ends: "used by LS".
	Text string `json:"text"`
}

// TermName says what a Term is about. The terms that a class causes have the
// name of the class.
type TermName string

// The names of terms besides the classes.
const (
	TermCapacity TermName = "capacity" // the share of the node that is divided at all
	TermNode     TermName = "node"     // what the node uses beside the workloads
	TermReserved TermName = "reserved" // what is kept for the node, where that is more
	TermLimit    TermName = "limit"    // what is above the most that the owner promises
	TermFloor    TermName = "floor"    // what is missing up to nothing
)

// On reports whether batch work is promised anything, be it nothing.
func (b Batch) On() bool { return b.CPU.Policy != "" || b.Memory.Policy != "" }

// String prints both amounts, a line each.
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

// Readable prints CPU in thousandths and memory in MiB, rounded, so that people
// can add up what they read.
func Readable[T unit.MilliCPU | unit.Bytes](v T) string {
	if bytes, is := any(v).(unit.Bytes); is {
		return fmt.Sprintf("%dMi", (int64(bytes)+(1<<19))>>20)
	}
	return fmt.Sprint(v)
}
