package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// An IsolationFact is one property of a node with isolation mechanisms.
type IsolationFact struct {
	Name string
	// Needs returns why the fact does not apply to a node, or "" if it applies.
	Needs func(node.Snapshot) string
	Check func(*Bench) error
}

// IsolationFacts lists all facts about the knobs of the isolation mechanisms.
func IsolationFacts() []IsolationFact {
	return []IsolationFact{
		{Name: "a mark comes and goes without the weight", Needs: needsMarks, Check: markKeepsWeight},
		{Name: "a group is marked with each identity", Needs: needsMarks, Check: eachIdentity},
		{Name: "the scheduler comes and goes", Needs: needsOurScheduler, Check: schedulerComesAndGoes},
		{Name: "a second scheduler is refused", Needs: needsForeign, Check: secondIsRefused},
		{Name: "a refusal of the kernel is a mechanism failure", Needs: needsForeign, Check: failureIsReported},
		{Name: "orders end with the scheduler", Needs: needsOurScheduler, Check: ordersEnd},
		{Name: "a cgroup that does not exist gets no order", Needs: needsOurScheduler, Check: orderNeedsGroup},
		{Name: "a slot that does not exist is refused", Needs: needsOurScheduler, Check: orderIsValid},
		{Name: "a task that enters a group later is seen", Needs: needsThreads, Check: lateComers},
		{Name: "without siblings there are no cookies", Needs: needsNoSiblings, Check: noCookies},
	}
}

// RunIsolation opens a node with the function open, and checks every fact on
// it. The snapshots of the node must contain the knobs of isolation.
func RunIsolation(t *testing.T, root node.CgroupPath, open func(*testing.T) Node) {
	n := open(t)
	for _, f := range IsolationFacts() {
		t.Run(f.Name, func(t *testing.T) {
			why, err := f.Verify(t.Context(), n, root)
			switch {
			case err != nil:
				t.Error(err)
			case why != "" && os.Getenv("TENON_TEST_STRICT") == "":
				t.Skip(why)
			case why != "": // another test reports the features that this machine lacks
				t.Log("does not apply: " + why)
			}
		})
	}
}

// Verify checks the fact on node n. If the fact does not apply to n, Verify
// returns the reason.
func (f IsolationFact) Verify(ctx context.Context, n Node, root node.CgroupPath) (why string, err error) {
	s, err := n.Snapshot(ctx)
	if err != nil {
		return "", fmt.Errorf("read the node: %w", err)
	}
	if why = f.Needs(s); why != "" {
		return why, nil
	}
	return "", Fact{Check: f.Check}.Verify(ctx, n, root)
}

func needsMarks(s node.Snapshot) string {
	if s.Capabilities.CanMark() {
		return ""
	}
	return "the kernel has no marks"
}

func needsOurScheduler(s node.Snapshot) string {
	if s.Isolation.Foreign != "" {
		return s.Isolation.Foreign + " is loaded"
	}
	return needs(s, node.FeatureSchedExt)
}

func needsForeign(s node.Snapshot) string {
	if s.Isolation.Foreign == "" {
		return "no other scheduler is loaded"
	}
	return needs(s, node.FeatureSchedExt)
}

func needsThreads(s node.Snapshot) string {
	if s.Capabilities.Has(node.FeatureCoreSched) || s.Capabilities.Has(node.FeatureEEVDFSlice) {
		return ""
	}
	return needs(s, node.FeatureSchedExt)
}

func needsNoSiblings(s node.Snapshot) string {
	if s.Topology.SMT() {
		return "there is SMT"
	}
	return ""
}

func needs(s node.Snapshot, m node.Feature) string {
	if s.Capabilities.Has(m) {
		return ""
	}
	return s.Capabilities[m].Why
}

// markKeepsWeight checks that a mark does not change the weight. On some
// kernels, setting the mark sets cpu.idle, and removing the mark clears
// cpu.idle. The weight must come back then.
func markKeepsWeight(b *Bench) error {
	defer b.manage(b.cgroup)()
	weight, mark := node.Knob{Cgroup: b.cgroup, File: node.FileCPUWeight}, node.Knob{Cgroup: b.cgroup, File: node.FileIdentity}
	idle := node.CPUWeight{Idle: true}
	return firstOf(
		func() error { return b.want(plan.Want{Intent: plan.Set, Knob: weight, Value: idle}) },
		func() error { return b.want(plan.Want{Intent: plan.Set, Knob: mark, Value: node.IdentityBE}) },
		func() error { return b.checkSnapshot(weight, idle) },
		func() error { return b.checkSnapshot(mark, node.IdentityBE) },
		func() error { return b.want(plan.Want{Intent: plan.Release, Knob: mark}) },
		func() error { return b.checkSnapshot(mark, node.IdentityNone) },
		func() error { return b.checkSnapshot(weight, idle) },
		func() error { return b.want(plan.Want{Intent: plan.Release, Knob: weight}) },
	)
}

// eachIdentity checks that a snapshot shows the value of FileIdentity as Tenon wrote
// it, even if the kernel rounds it. Otherwise each tick would write the value again.
func eachIdentity(b *Bench) error {
	defer b.manage(b.cgroup)()
	mark := node.Knob{Cgroup: b.cgroup, File: node.FileIdentity}
	for _, v := range []node.Identity{node.IdentityHigh, node.IdentityExpels, node.IdentityBE} {
		err := firstOf(
			func() error { return b.want(plan.Want{Intent: plan.Set, Knob: mark, Value: v}) },
			func() error { return b.checkSnapshot(mark, v) },
		)
		if err != nil {
			return err
		}
	}
	return b.want(plan.Want{Intent: plan.Release, Knob: mark})
}

var (
	scheduler = node.Knob{File: node.FileScheduler}
	loaded    = node.Scheduler{Loaded: true, Hold: 200 * time.Microsecond, Headroom: node.SchedulerHeadroom}
)

func schedulerComesAndGoes(b *Bench) error {
	defer b.manage(b.cgroup)()
	return firstOf(
		func() error { return b.want(plan.Want{Intent: plan.Set, Knob: scheduler, Value: loaded}) },
		func() error { return b.checkSnapshot(scheduler, loaded) },
		func() error { return b.want(plan.Want{Intent: plan.Release, Knob: scheduler}) },
		func() error { return b.checkSnapshot(scheduler, node.Scheduler{}) },
	)
}

func secondIsRefused(b *Bench) error {
	return firstOf(
		func() error {
			return mustFail(b.Apply(b.ctx, plan.Step{Knob: scheduler, From: node.Scheduler{}, To: loaded}), syscall.EBUSY)
		},
		func() error { return b.checkSnapshot(scheduler, node.Scheduler{}) },
	)
}

func failureIsReported(b *Bench) error {
	if err := b.Apply(b.ctx, plan.Step{Knob: scheduler, From: node.Scheduler{}, To: loaded}); err == nil {
		return errors.New("a second scheduler was loaded")
	}
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	told := func(f node.Failure) bool {
		return f.Mechanism == node.MechanismSchedExt && f.Refused && f.Why != "" && !f.At.After(s.At)
	}
	if !slices.ContainsFunc(s.Isolation.Failures, told) {
		return fmt.Errorf("the failures are %+v, want a refused one of %s", s.Isolation.Failures, node.MechanismSchedExt)
	}
	return nil
}

// lateComers moves a process into a cgroup whose threads already have an
// attribute. The process must lack the attribute until the next step sets it.
func lateComers(b *Bench) error {
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	defer b.manage(b.cgroup)()
	for _, file := range node.FilesOf(node.CategoryThreads) {
		if !s.Capabilities.Has(file.Needs()) {
			continue
		}
		k := node.Knob{Cgroup: b.cgroup, File: file}
		be := plan.Want{Intent: plan.Set, Knob: k, Value: node.ThreadsBE}
		late := 0
		err := firstOf(
			func() error { _, err := b.task(b.cgroup, 0); return err },
			func() error { return b.want(be) },
			func() error { return b.checkSnapshot(k, node.ThreadsBE) },
			func() (err error) { late, err = b.task(b.cgroup, 0); return err },
			func() error { return b.checkSnapshot(k, node.ThreadsMixed) },
			func() error { return b.want(be) },
			func() error { return b.checkSnapshot(k, node.ThreadsBE) },
			func() error { return b.want(plan.Want{Intent: plan.Release, Knob: k}) },
			func() error { return b.Stop(late) },
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func noCookies(b *Bench) error {
	if _, err := b.task(b.cgroup, 0); err != nil {
		return err
	}
	k := node.Knob{Cgroup: b.cgroup, File: node.FileCookie}
	err := b.Apply(b.ctx, plan.Step{Knob: k, From: node.ThreadsNormal, To: node.ThreadsBE})
	if err == nil {
		return errors.New("threads have a cookie that the kernel ignores")
	}
	return nil
}
