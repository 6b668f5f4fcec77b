package node

import (
	"cmp"
	"fmt"
	"slices"
)

// Run is how the processes of a group may run. In a snapshot it is Running,
// Frozen or Ended; a group that was asked to end shows Running until it has.
type Run string

// The values of Run.
const (
	Running Run = "running"
	// Frozen stands still until it is Running again, and keeps its memory
	// (cgroup.freeze, Linux 5.2; v1 freezer.state).
	Frozen Run = "frozen"
	// AskedToEnd: every process gets SIGTERM, and runs to act on it.
	AskedToEnd Run = "asked to end"
	// Ended has no process: SIGKILL was sent (cgroup.kill, Linux 5.14).
	Ended Run = "ended"
)

// runs lists the values of Run from the narrowest to the widest.
var runs = []Run{Ended, AskedToEnd, Frozen, Running}

// EndsProcesses reports whether v ends processes, which nothing can undo.
func (v Run) EndsProcesses() bool { return v == AskedToEnd || v == Ended }

// String prints "running", "frozen", "asked to end" or "ended".
func (v Run) String() string { return string(v) }

// Rounded returns v.
func (v Run) Rounded(Kernel) Value { return v }

// Narrower orders by what is left of the work.
func (v Run) Narrower(o Value) int {
	return against(o, func(w Run) int { return cmp.Compare(slices.Index(runs, v), slices.Index(runs, w)) })
}

func parseRun(text string) (Value, error) {
	if v := Run(text); slices.Contains(runs, v) {
		return v, nil
	}
	return nil, fmt.Errorf("run %q: want one of %q", text, runs)
}
