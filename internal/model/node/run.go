package node

import (
	"cmp"
	"fmt"
	"slices"
)

// Run is the run state of the processes of a cgroup. A snapshot has Running,
// Frozen or Ended. A cgroup whose processes were asked to end is Running until
// they have ended.
type Run string

// The values of Run.
const (
	Running Run = "running"
	// Frozen: the processes do not run until the state is Running again, and
	// keep their memory (cgroup.freeze, Linux 5.2; v1 freezer.state).
	Frozen Run = "frozen"
	// AskedToEnd: every process got SIGTERM and still runs, to exit.
	AskedToEnd Run = "asked to end"
	// Ended: no process is left after SIGKILL (cgroup.kill, Linux 5.14).
	Ended Run = "ended"
)

// runs lists the values of Run from the narrowest to the widest.
var runs = []Run{Ended, AskedToEnd, Frozen, Running}

// EndsProcesses reports whether v ends processes, which cannot be undone.
func (v Run) EndsProcesses() bool { return v == AskedToEnd || v == Ended }

// String prints "running", "frozen", "asked to end" or "ended".
func (v Run) String() string { return string(v) }

// Rounded returns v.
func (v Run) Rounded(Kernel) Value { return v }

// Narrower orders the states from Ended to Running.
func (v Run) Narrower(o Value) int {
	return against(o, func(w Run) int { return cmp.Compare(slices.Index(runs, v), slices.Index(runs, w)) })
}

func parseRun(text string) (Value, error) {
	if v := Run(text); slices.Contains(runs, v) {
		return v, nil
	}
	return nil, fmt.Errorf("run %q: want one of %q", text, runs)
}
