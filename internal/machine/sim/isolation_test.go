package sim_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/sim"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// isolators lists kernels with different isolation mechanisms.
var isolators = map[string]sim.Options{
	"mainline":       {Topology: conformance.Topology(1, 4, 2), Isolation: &sim.Isolation{Features: sim.ThreadFeatures()}},
	"scheduler busy": {Topology: conformance.Topology(1, 4, 2), Isolation: &sim.Isolation{Features: withoutSlices, Foreign: "scx_other"}},
	"without SMT":    {Topology: conformance.Flat(4), Isolation: &sim.Isolation{Features: sim.ThreadFeatures()}},
	"Group Identity": {Version: 1, Topology: conformance.Topology(1, 4, 2), Isolation: &sim.Isolation{Marks: node.FeatureGroupIdentity, Features: coreSched}},
	"its successor":  {Topology: conformance.Topology(1, 4, 2), Isolation: &sim.Isolation{Marks: node.FeatureGroupPriority, Features: coreSched}},
	"QoS levels":     {Topology: conformance.Topology(1, 4, 2), Isolation: &sim.Isolation{Marks: node.FeatureQOSLevel}},
}

var (
	coreSched     = []node.Feature{node.FeatureCoreSched}
	withoutSlices = []node.Feature{node.FeatureSchedExt, node.FeatureCoreSched}
)

// TestEveryVendorMarkIsSimulated checks that the suite runs on each kind of
// vendor's kernel.
func TestEveryVendorMarkIsSimulated(t *testing.T) {
	simulated := map[node.Feature]bool{}
	for _, o := range isolators {
		simulated[o.Isolation.Marks] = true
	}
	for _, v := range node.VendorMarks {
		if !simulated[v.Can] {
			t.Errorf("no simulated kernel has %s", v.Can)
		}
	}
}

func TestIsolationConformance(t *testing.T) {
	for name, o := range isolators {
		t.Run(name, func(t *testing.T) {
			conformance.RunIsolation(t, "tenon-test", func(*testing.T) conformance.Node { return sim.New(o) })
		})
	}
}

// TestEveryRuleOfIsolationIsNeeded removes one rule after the other and runs
// the suite. The fact with the name of the removed rule must fail on at least
// one kernel.
func TestEveryRuleOfIsolationIsNeeded(t *testing.T) {
	facts := conformance.IsolationFacts()
	for _, rule := range sim.IsolationRules() {
		t.Run(rule, func(t *testing.T) {
			i := slices.IndexFunc(facts, func(f conformance.IsolationFact) bool { return f.Name == rule })
			if i < 0 {
				t.Fatalf("no fact of the suite is named %q", rule)
			}
			for _, o := range isolators {
				o.Without = []string{rule}
				if why, err := facts[i].Verify(t.Context(), sim.New(o), "tenon-test"); err != nil && why == "" {
					return
				}
			}
			t.Errorf("the suite passes on a simulator without the rule %q", rule)
		})
	}
}

// TestAFullTableTakesNoMoreOrders fills the table of the BE scheduler. Existing
// entries must stay. The tick must report a cgroup that does not fit.
func TestAFullTableTakesNoMoreOrders(t *testing.T) {
	o := isolators["mainline"]
	few := *o.Isolation
	few.Room, o.Isolation = 2, &few
	n := sim.New(o)
	run(t, n, "ls/web", 1500)
	run(t, n, "be/job", 8000)
	n.Manage(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
	n.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
	a := &loop.Agent{Host: n, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
	for range 2 {
		done, err := a.Step(t.Context())
		if err == nil || !strings.Contains(err.Error(), "table of 2") {
			t.Errorf("the tick reports %v", err)
		}
		failed := 0
		for _, o := range done.Done {
			if o.Err != nil {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d steps failed, want 1: the table has no room", failed)
		}
	}
}

// TestOrdersFollowLimitsInTheSameTick checks that threads in the BE scheduler
// never have a larger quota than their cgroup, not even for one tick.
func TestOrdersFollowLimitsInTheSameTick(t *testing.T) {
	n, a := runningAgent(t, isolators["mainline"])
	a.Config.Suppress = suppress.Config{Enable: true, ThresholdPercent: 65}
	n.Advance(time.Second)
	tickNumber(t, a)
	quota, _ := value(t, n, "be", node.FileCPUMax).(node.CPUMax)
	want := node.SchedulerCap{Most: unit.MilliCPU(quota.Cores() * 1000)}
	if got := value(t, n, "", node.FileSchedulerCap); got != node.Value(want) || want.Most == 0 {
		t.Errorf("the cap is %v beside a quota of %v", got, quota)
	}
	n.Eject("runnable task stall")
	if got := value(t, n, "be/job", node.FileSchedulerGroup); got != node.Value(node.SchedulerGroup{}) {
		t.Errorf("the order is %v after the scheduler was ejected", got)
	}
}

// runningAgent returns a simulated node with a service and a job, and an agent
// that has made one tick on this node.
func runningAgent(t *testing.T, o sim.Options) (*sim.Node, *loop.Agent) {
	t.Helper()
	n := sim.New(o)
	run(t, n, "ls/web", 1500)
	run(t, n, "be/job", 8000)
	n.Manage(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
	n.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
	a := &loop.Agent{Host: n, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
	tickNumber(t, a)
	return n, a
}

func tickNumber(t *testing.T, a *loop.Agent) {
	t.Helper()
	if _, err := a.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// value returns the present value of a knob.
func value(t *testing.T, n *sim.Node, p node.CgroupPath, f node.File) node.Value {
	t.Helper()
	s, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Knobs.Now[node.Knob{Cgroup: p, File: f}]
}

// TestTheSelectionGoesDownAndUp runs a stock kernel. Its scheduler is loaded,
// ejected, replaced by another one and loaded again. The selected mechanism
// must change accordingly, and cpu.idle must stay set all the time.
func TestTheSelectionGoesDownAndUp(t *testing.T) {
	n, a := runningAgent(t, isolators["mainline"])
	expect := func(when string, mechanism node.Mechanism, loaded bool, policy, cookie node.Threads) {
		t.Helper()
		if got := a.State().Selector.Status; got.Mechanism != mechanism {
			t.Errorf("%s: the mechanism is %s (%s), want %s", when, got.Mechanism, got.Why, mechanism)
		}
		if s, _ := value(t, n, "", node.FileScheduler).(node.Scheduler); s.Loaded != loaded || s.Siblings != loaded {
			t.Errorf("%s: the scheduler is %v", when, s)
		}
		if p, c := value(t, n, "be", node.FilePolicy), value(t, n, "be", node.FileCookie); p != node.Value(policy) || c != node.Value(cookie) {
			t.Errorf("%s: the threads of BE have the policy %v and the cookie %v, want %v and %v", when, p, c, policy, cookie)
		}
		if p := value(t, n, "ls", node.FilePolicy); p != node.Value(node.ThreadsNormal) {
			t.Errorf("%s: the threads of LS have the policy %v", when, p)
		}
		if w := value(t, n, "be", node.FileCPUWeight); w != node.Value(node.CPUWeight{Idle: true}) {
			t.Errorf("%s: BE has the weight %v", when, w)
		}
	}
	const be, normal = node.ThreadsBE, node.ThreadsNormal
	expect("at first", node.MechanismSchedExt, true, be, normal)

	run(t, n, "be/job", 100) // a process that moves into the group
	expect("with a stray", node.MechanismSchedExt, true, node.ThreadsMixed, normal)
	tickNumber(t, a)
	expect("after a turn", node.MechanismSchedExt, true, be, normal)

	n.Advance(time.Second)
	n.Eject("runnable task stall")
	tickNumber(t, a)
	expect("ejected", node.MechanismCoreSched, false, normal, normal)
	tickNumber(t, a)
	expect("replaced", node.MechanismCoreSched, false, normal, be)
	n.Advance(time.Minute)
	tickNumber(t, a)
	tickNumber(t, a)
	expect("loaded again", node.MechanismSchedExt, true, be, normal)

	n.Load("scx_other") // the other scheduler has replaced ours
	n.Eject("replaced by scx_other")
	tickNumber(t, a)
	tickNumber(t, a)
	expect("beside another", node.MechanismCoreSched, false, normal, be)

	a.Config = policy.Config{}
	tickNumber(t, a)
	if s, _ := n.Snapshot(t.Context()); len(s.Knobs.Before) != 0 {
		t.Errorf("a disabled policy has not released %v", s.Knobs.Before)
	}
}

// TestARaceForTheSchedulerIsAMechanismFailure loads another scheduler between
// the snapshot and the step. The step must fail. The next tick must use the
// next mechanism in the preference order, and give the reason.
func TestARaceForTheSchedulerIsAMechanismFailure(t *testing.T) {
	n := sim.New(isolators["mainline"])
	run(t, n, "be/job", 8000)
	n.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
	a := &loop.Agent{Host: racedNode{n}, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
	if _, err := a.Step(t.Context()); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Fatalf("error %v, want EBUSY", err)
	}
	tickNumber(t, a)
	if got := a.State().Selector.Status; got.Mechanism != node.MechanismCoreSched || !strings.Contains(got.Why, "busy") || got.Mechanisms[1].Failures != 1 {
		t.Errorf("the mechanism is %s (%s) after %+v", got.Mechanism, got.Why, got.Failures)
	}
}

// A racedNode is a node on which another scheduler is loaded, but its snapshots
// do not show this.
type racedNode struct{ *sim.Node }

func (r racedNode) Snapshot(ctx context.Context) (node.Snapshot, error) {
	r.Load("scx_other")
	s, err := r.Node.Snapshot(ctx)
	s.Isolation.Foreign = ""
	return s, err
}

func TestMarksAreRefusedWhileTheirSwitchIsOff(t *testing.T) {
	o := isolators["its successor"]
	o.Isolation = &sim.Isolation{Marks: node.FeatureGroupPriority, MarksOff: true}
	n := sim.New(o)
	run(t, n, "be/job", 8000)
	n.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
	a := &loop.Agent{Host: n, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
	if _, err := a.Step(t.Context()); err == nil || !strings.Contains(err.Error(), "invalid argument") {
		t.Errorf("error %v, want a refused mark", err)
	}
	tickNumber(t, a)
	if got := a.State().Selector.Status; got.Mechanism != node.MechanismIdle || got.Mechanisms[0].Failures == 0 {
		t.Errorf("the mechanism is %s (%s)", got.Mechanism, got.Why)
	}
}

// TestMarksAndCookiesHangTheMachine checks that the simulator returns an error
// if marks and cookies are in use at the same time. The policies must never use
// both.
func TestMarksAndCookiesHangTheMachine(t *testing.T) {
	n, a := runningAgent(t, isolators["Group Identity"])
	if v := value(t, n, "be", node.FileIdentity); v != node.Value(node.IdentityBE) {
		t.Fatalf("BE is marked %v", v)
	}
	err := n.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: "be", File: node.FileCookie}, From: node.ThreadsNormal, To: node.ThreadsBE})
	if err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("error %v, want a hanging machine", err)
	}
	a.Config.CPUQOS.Mechanism = node.MechanismCoreSched
	n.Advance(2 * time.Hour) // so that the mechanism failure has expired
	tickNumber(t, a)
	tickNumber(t, a)
	if m, c := value(t, n, "be", node.FileIdentity), value(t, n, "be", node.FileCookie); m != node.Value(node.IdentityNone) || c != node.Value(node.ThreadsBE) {
		t.Errorf("BE is marked %v and has the cookie %v", m, c)
	}
	a.Config.CPUQOS.Mechanism = ""
	tickNumber(t, a)
	tickNumber(t, a)
	if m, c := value(t, n, "be", node.FileIdentity), value(t, n, "be", node.FileCookie); m != node.Value(node.IdentityBE) || c != node.Value(node.ThreadsNormal) {
		t.Errorf("BE is marked %v and has the cookie %v", m, c)
	}
}
