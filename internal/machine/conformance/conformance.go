package conformance

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Host has the methods of a node that the agent uses.
type Host interface {
	Snapshot(context.Context) (node.Snapshot, error)
	Apply(context.Context, plan.Step) error
}

// Workloads adds workloads to the snapshots of a Host and removes them.
type Workloads interface {
	Manage(node.Workload)
	Forget(node.WorkloadID)
}

// Groups creates cgroups with their missing ancestors, and removes them. To
// remove a cgroup that does not exist is no error.
type Groups interface {
	MakeGroup(node.CgroupPath) error
	RemoveGroup(node.CgroupPath) error
	Attach(node.CgroupPath, int) error
}

// Files reads and writes single kernel files of a cgroup. The file names and
// texts are those of the node's cgroup version.
type Files interface {
	ReadFile(p node.CgroupPath, file string) (string, error)
	WriteFile(p node.CgroupPath, file, text string) error
}

// Tasks runs sleeping processes. Start starts a process in a cgroup, with the
// given amount of memory that the kernel cannot reclaim. Fork makes the process
// start a child that ends at once. Stop kills and reaps the process.
type Tasks interface {
	Start(p node.CgroupPath, memory unit.Bytes) (pid int, err error)
	Fork(pid int) error
	Stop(pid int) error
	// Signal sends a signal that the task does not handle. Alive reports
	// whether the task still runs.
	Signal(pid int, s syscall.Signal) error
	Alive(pid int) bool
}

// A Node has all methods that the suite needs.
type Node interface {
	Host
	Workloads
	Groups
	Files
	Tasks
}

// A Fact is one property of a node, such as a refusal, a rounding or a derived
// value. For each of these the simulator has a rule with the name of the fact.
type Fact struct {
	Name string
	// Version is the cgroup version on which the fact holds: 1, 2, or 0 for both.
	Version int
	// Needs is a capability that the fact requires, or "".
	Needs node.Feature
	// Check returns an error if the node does not have the property.
	Check func(*Bench) error
}

// Facts lists all facts that hold on the given cgroup version.
func Facts(version int) []Fact {
	var all []Fact
	for _, topic := range [][]Fact{
		weightFacts(), maxFacts(), cpusetFacts(), memsFacts(), memoryFacts(), pidsFacts(), groupFacts(), ioFacts(), contractFacts(), runFacts(),
	} {
		all = append(all, topic...)
	}
	return slices.DeleteFunc(all, func(f Fact) bool { return f.Version != 0 && f.Version != version })
}

// errNewer means that this kernel behaves differently, because it is newer than
// the kernels that the simulator imitates.
var errNewer = errors.New("the fact does not apply to this newer kernel")

// Run opens a node with the function open, and checks every fact on it. Each
// check gets a new cgroup below root, and removes it.
func Run(t *testing.T, root node.CgroupPath, open func(*testing.T) Node) {
	n := open(t)
	s, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatalf("read the node: %v", err)
	}
	for _, f := range Facts(s.Knobs.Kernel.CgroupVersion) {
		t.Run(f.Name, func(t *testing.T) {
			if f.Needs != "" && !s.Capabilities.Has(f.Needs) {
				// A machine may lack a capability. But with TENON_TEST_STRICT, "not
				// known" is a failure.
				if s.Capabilities[f.Needs].Verdict != node.No && os.Getenv("TENON_TEST_STRICT") != "" {
					t.Fatalf("cannot tell whether this node has %s: %s", f.Needs, s.Capabilities[f.Needs].Why)
				}
				t.Skipf("this node has no %s: %s", f.Needs, s.Capabilities[f.Needs].Why)
			}
			err := f.Verify(t.Context(), n, root)
			if errors.Is(err, errNewer) {
				t.Skip(err)
			}
			if errors.Is(err, errNoDisk) && os.Getenv("TENON_TEST_STRICT") == "" {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
