// Package turns changes the mode of a service and of batch work that run, in an
// experiment whose modes take turns. It does so on this machine, or on a node of a
// cluster by a process in the pod of the node's tenond.
package turns

import (
	"context"
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Switcher changes the mode, and reads the counters at the changes. Whatever ends
// the lab, nothing stays frozen.
type Switcher interface {
	// Enter leaves the mode in force and enters another. Before the first call,
	// the batch work runs as in mode default.
	Enter(ctx context.Context, mode report.Mode) error
	// Reading reads the counters once.
	Reading() (Reading, error)
	// Close leaves the mode in force and ends the switcher.
	Close() error
	// Report returns what Tenon's policies wrote, and their faults. It is called
	// after Close.
	Report() (writes, faults []string)
}

// A Reading is a reading of the counters while a mode is in force.
type Reading struct {
	harness.Reading
	NoPSI bool // the kernel does not measure the pressure on the CPU
	// Undone is what another program changed of the mode in force; empty: nothing.
	Undone string
}

// Groups are the cgroups of a service and of batch work that run.
type Groups struct {
	Workloads []node.Workload   // the service and the batch work, as Tenon sees them
	Weighted  []node.CgroupPath // get the weight of the CPU request of the batch pod
	Frozen    node.CgroupPath   // of the batch work
	Tested    unit.CPUSet
	Request   unit.MilliCPU // of the service
}

// Local is the switcher of this machine.
type Local struct {
	site     *testbed.Site
	counters *harness.Sampler
	groups   Groups
	before   []cgroup.CPUWeight // of groups.Weighted
	weighted *cgroup.CPUWeight  // what they have instead; nil: nothing
	freezer  *testbed.Freezer
	agent    *testbed.AgentRunner
	now      report.ModeSpec
}

// NewLocal returns the switcher for cgroups of this machine, whose batch work runs as
// in mode default.
func NewLocal(site *testbed.Site, counters *harness.Sampler, groups Groups) (*Local, error) {
	l := &Local{site: site, counters: counters, groups: groups, now: report.Default.Spec()}
	for _, path := range groups.Weighted {
		w, err := site.Tree.ReadCPUWeight(string(path))
		if err != nil {
			return nil, err
		}
		l.before = append(l.before, w)
	}
	var err error
	if l.freezer, err = site.NewFreezer(groups.Frozen); err != nil {
		return nil, err
	}
	l.agent = site.TakeTurns(groups.Workloads)
	return l, nil
}

// Enter changes the mode.
func (l *Local) Enter(ctx context.Context, mode report.Mode) error {
	t, was := mode.Spec(), l.now
	l.now = t
	if was.Frozen && !t.Frozen {
		if err := l.freezer.Freeze(false); err != nil {
			return err
		}
	}
	if was.Tenon {
		if err := l.agent.Turn(ctx, policy.Config{}); err != nil {
			return err
		}
	}
	if was.Eighths != t.Eighths {
		if err := l.weigh(t.BatchRequest(l.groups.Request)); err != nil {
			return err
		}
	}
	switch {
	case t.Tenon:
		return l.agent.Turn(ctx, policy.Config{CPUQOS: testbed.IsolationOf(t), NodeCPUs: facts.NodeCPUs{CPUs: l.groups.Tested}})
	case t.Frozen && !was.Frozen: // what is frozen does not run for a moment in between
		return l.freezer.Freeze(true)
	}
	return nil
}

// weigh gives the running batch pod the weights of a pod with a CPU request; 0: those
// that it had. The pod stays in the cgroup of its class. If it is the only one there,
// service and batch work divide the CPU as if the two pods had one parent.
func (l *Local) weigh(request unit.MilliCPU) error {
	tree := l.site.Tree
	if request > 0 {
		w := testbed.WeightOfRequest(request, tree.Version())
		l.weighted = &w
	}
	for i, path := range l.groups.Weighted {
		w := l.before[i]
		if request > 0 {
			w = *l.weighted
		}
		if err := tree.WriteCPUWeight(string(path), w); err != nil {
			return err
		}
	}
	if request == 0 {
		l.weighted = nil
	}
	return nil
}

// Reading reads the counters, and whether the weights are still those of the mode: a
// kubelet writes that of a class each minute.
func (l *Local) Reading() (r Reading, err error) {
	if r.Reading, err = l.counters.Reading(); err != nil {
		return r, err
	}
	r.NoPSI = l.counters.NoPSI
	if l.weighted == nil {
		return r, nil
	}
	for _, path := range l.groups.Weighted {
		w, err := l.site.Tree.ReadCPUWeight(string(path))
		if err != nil {
			return r, err
		}
		if w != *l.weighted {
			r.Undone = fmt.Sprintf("another program wrote the CPU weight of %s", path)
		}
	}
	return r, nil
}

// Close leaves the mode in force. Cgroups that have gone have nothing to leave.
func (l *Local) Close() error {
	errs := []error{l.freezer.Freeze(false)}
	if l.weighted != nil {
		errs = append(errs, l.weigh(0))
	}
	errs = append(errs, l.agent.Stop(), l.freezer.Close())
	for i, err := range errs {
		if errors.Is(err, cgroup.ErrGone) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

// Report returns the writes and the faults of Tenon's policies.
func (l *Local) Report() (writes, faults []string) { return l.agent.Report() }
