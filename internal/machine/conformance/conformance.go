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

// A Host is a node that can be read and changed, as the agent sees it.
type Host interface {
	Snapshot(context.Context) (node.Snapshot, error)
	Apply(context.Context, plan.Step) error
}

// Workloads chooses what a Host's snapshots show.
type Workloads interface {
	Manage(node.Workload)
	Forget(node.WorkloadID)
}

// Groups makes and removes cgroups, with the ancestors that are missing.
// Removing what does not exist is no error.
type Groups interface {
	MakeGroup(node.CgroupPath) error
	RemoveGroup(node.CgroupPath) error
	Attach(node.CgroupPath, int) error
}

// Files reads and writes single kernel files of a cgroup, under the names
// that the node's cgroup version gives them. The text is written as it is.
type Files interface {
	ReadFile(p node.CgroupPath, file string) (string, error)
	WriteFile(p node.CgroupPath, file, text string) error
}

// Tasks runs sleeping processes. Start puts one in a cgroup, holding the
// given amount of memory that cannot be reclaimed; Fork has it start a child
// that ends at once; Stop kills it, after which its pid is dead.
type Tasks interface {
	Start(p node.CgroupPath, memory unit.Bytes) (pid int, err error)
	Fork(pid int) error
	Stop(pid int) error
	// Signal sends a task a signal that it does nothing about, and Alive
	// reports whether it has not ended.
	Signal(pid int, s syscall.Signal) error
	Alive(pid int) bool
}

// A Node is what the suite needs of a node.
type Node interface {
	Host
	Workloads
	Groups
	Files
	Tasks
}

// A Fact is one thing that a node does. The names of refusals, roundings and
// derived values are the names of the simulator's rules.
type Fact struct {
	Name string
	// Version is the cgroup version that has the fact: 1, 2, or 0 for both.
	Version int
	// Needs is a mechanism without which the fact has no meaning; "" if none.
	Needs node.Feature
	// Check returns what speaks against the fact.
	Check func(*Bench) error
}

// Facts lists all facts of the given cgroup version.
func Facts(version int) []Fact {
	var all []Fact
	for _, topic := range [][]Fact{
		weightFacts(), maxFacts(), cpusetFacts(), memsFacts(), memoryFacts(), pidsFacts(), groupFacts(), ioFacts(), contractFacts(), runFacts(),
	} {
		all = append(all, topic...)
	}
	return slices.DeleteFunc(all, func(f Fact) bool { return f.Version != 0 && f.Version != version })
}

// errNewer says that newer kernels than those that the simulator imitates do
// not have the fact.
var errNewer = errors.New("this kernel is newer than the fact")

// Run checks every fact on the node that open returns, each on a
// fresh cgroup below root, which it removes.
func Run(t *testing.T, root node.CgroupPath, open func(*testing.T) Node) {
	n := open(t)
	s, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatalf("read the node: %v", err)
	}
	for _, f := range Facts(s.Knobs.Kernel.CgroupVersion) {
		t.Run(f.Name, func(t *testing.T) {
			if f.Needs != "" && !s.Capabilities.Can(f.Needs) {
				// A clear no is the machine's; not being able to tell is ours.
				if s.Capabilities[f.Needs].Verdict != node.No && os.Getenv("TENON_TEST_STRICT") != "" {
					t.Fatalf("cannot tell whether this node has %s: %s", f.Needs, s.Capabilities[f.Needs].Why)
				}
				t.Skipf("this node has no %s: %s", f.Needs, s.Capabilities[f.Needs].Why)
			}
			err := f.On(t.Context(), n, root)
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
