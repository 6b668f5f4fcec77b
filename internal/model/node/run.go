package node

import (
	"cmp"
	"fmt"
	"slices"
)

// Run says whether the processes of a cgroup run. A snapshot holds Running, Frozen
// or Ended. A process that got SIGTERM still runs, so it counts as Running.
type Run string

// The values of Run.
const (
	Running Run = "running"
	// Frozen means that the kernel stops the processes, but keeps their memory,
	// until they are Running again (cgroup.freeze, Linux 5.2; v1 freezer.state).
	Frozen Run = "frozen"
	// AskedToEnd means that every process got SIGTERM. The processes still run,
	// so that they can exit.
	AskedToEnd Run = "asked to end"
	// Ended means that no process is left after SIGKILL (cgroup.kill, Linux 5.14).
	Ended Run = "ended"
)

// runs lists the values of Run from the narrowest (no process runs) to the
// widest (all processes run).
var runs = []Run{Ended, AskedToEnd, Frozen, Running}

// EndsProcesses reports whether v ends processes. That cannot be undone.
func (v Run) EndsProcesses() bool { return v == AskedToEnd || v == Ended }

// String prints "running", "frozen", "asked to end" or "ended".
func (v Run) String() string { return string(v) }

func (v Run) Round(Kernel) Value { return v }

// CompareWidth orders the states from Ended to Running.
func (v Run) CompareWidth(o Value) int {
	return compareWith(o, func(w Run) int { return cmp.Compare(slices.Index(runs, v), slices.Index(runs, w)) })
}

func parseRun(text string) (Value, error) {
	if v := Run(text); slices.Contains(runs, v) {
		return v, nil
	}
	return nil, fmt.Errorf("run %q: want one of %q", text, runs)
}
