package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/turn"
)

// anyIsolation makes a random change to one input of the choice of a mechanism:
// capabilities, failures, the configuration, or the request of the operator.
func (n *scene) anyIsolation(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	mechanism := node.Mechanisms[rnd.IntN(len(node.Mechanisms))]
	switch rnd.IntN(12) {
	case 0:
		n.failure(mechanism, "it fell", rnd.IntN(2) == 0)
	case 1:
		n.snap.Isolation.Foreign = []string{"", "scx_other"}[rnd.IntN(2)]
	case 2:
		n.snap.Isolation.Cookies = rnd.IntN(2)
	case 3:
		n.snap.Isolation.Request = node.Request{At: n.snap.At, Mechanism: []node.Mechanism{"", mechanism}[rnd.IntN(2)]}
	case 4:
		n.config.CPUQOS.Mechanism = []node.Mechanism{"", mechanism}[rnd.IntN(2)]
	case 5:
		n.config.CPUQOS.Enable = rnd.IntN(4) > 0
	case 6:
		n.config.CPUQOS.Identity = map[node.Class]node.Identity{node.LS: node.Identity(rnd.IntN(3)), node.BE: node.Identity(rnd.IntN(2) - 1)}
	case 7:
		all := append(isolationFeatures(), node.FeatureCPUIdle)
		m := all[rnd.IntN(len(all))]
		n.snap.Capabilities[m] = node.Answer{Verdict: []node.Verdict{node.Yes, node.Yes, node.No, node.Unknown}[rnd.IntN(4)], Why: "it is so"}
		n.showIsolation()
	case 8:
		if n.snap.Isolation.LSOn == nil {
			n.snap.Isolation.LSOn = map[unit.CPU]time.Duration{}
		} else {
			n.snap.Isolation.LSOn = nil
		}
	case 9: // new LS work anywhere, also in cgroups of BE work
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint("guest", len(n.snap.Workloads))), Class: node.LS}
		host := n.snap.Workloads[rnd.IntN(len(n.snap.Workloads))]
		w.Cgroup = host.Cgroup.Join(string(w.ID))
		if w.ContentionRoot = w.Cgroup; rnd.IntN(3) == 0 { // or new BE work with an unknown contention root
			w.Class, w.ContentionRoot = node.BE, ""
		}
		n.add(w)
	}
}

// TestOneMechanismAtATime runs random nodes whose mechanisms fail at random.
// After every tick the scene checks three things: at most one mechanism is
// active, no LS work is in a cgroup that Tenon changed for BE work, and BE work
// keeps cpu.idle. The test itself checks the wants. In a second run every third
// step fails. Each commit runs other seeds beside the fixed ones, and make soak 200.
func TestOneMechanismAtATime(t *testing.T) {
	var used sync.Map // node.Mechanism
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range turn.Seeds([]uint64{2, 45, 198}, 2, 200) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				oneMechanism(t, seed, &used)
			})
		}
	})
	for _, m := range node.Mechanisms {
		if _, is := used.Load(m); !is {
			t.Errorf("the mechanism %s was never in use", m)
		}
	}
}

func oneMechanism(t *testing.T, seed uint64, used *sync.Map) {
	rnd := rand.New(rand.NewPCG(71, seed))
	for try := range 60 {
		n := anyScene(rnd, 48, 1+try%2)
		if try%2 == 0 { // another component manages the weights of the parents
			for i, w := range n.snap.Workloads {
				n.snap.Workloads[i].IdleCgroup = w.Cgroup
			}
		}
		n.config.CPUQOS.Enable, n.config.CPUQOS.Measured = true, try%5 == 1
		n.snap.Capabilities[node.FeatureHardwareSMT] = node.Answer{Verdict: node.No}
		if n.snap.Topology.SMT() {
			n.snap.Capabilities[node.FeatureHardwareSMT] = node.Answer{Verdict: node.Yes}
		}
		for _, m := range isolationFeatures() {
			n.snap.Capabilities[m] = node.Answer{Verdict: []node.Verdict{node.Yes, node.No}[rnd.IntN(2)]}
		}
		n.snap.Capabilities[node.FeatureEEVDFSlice] = node.Answer{Verdict: node.Yes}
		n.showIsolation()
		if try%3 == 0 {
			chance := rand.New(rand.NewPCG(67, uint64(try)))
			n.fails = func(s plan.Step) bool { return node.MechanismOf(s.Knob.File) != "" && chance.IntN(3) == 0 }
		}
		for range 40 {
			n.anyIsolation(t, rnd)
			p := n.anySpell(rnd)
			if rnd.IntN(10) == 0 {
				p.every = time.Duration(rnd.IntN(40)) * time.Minute
			}
			n.pass(p)
			n.checkWants(t)
			n.decide(t)
			used.Store(n.state.Selector.Status.Mechanism, true)
			if n.config.CPUQOS.Enable == (n.state.Selector.Status.Mechanism == "") {
				t.Fatalf("CPU QoS is on: %v, and in use is the mechanism %q", n.config.CPUQOS.Enable, n.state.Selector.Status.Mechanism)
			}
			n.checkIsolationWants(t)
			n.checkStatus(t)
			if t.Failed() {
				t.Fatalf("try %d: %+v", try, n.state.Selector.Status)
			}
		}
	}
}

// checkIsolationWants checks that no want for BE work is for a cgroup that also
// holds other work. It also checks that all wants belong to one mechanism.
func (n *scene) checkIsolationWants(t *testing.T) {
	t.Helper()
	for _, w := range n.wants {
		r := node.MechanismOf(w.Knob.File)
		if r == "" || w.Intent != plan.Set {
			continue
		}
		if r != n.state.Selector.Status.Mechanism {
			t.Errorf("%v is to be %v on the mechanism %q", w.Knob, w.Value, n.state.Selector.Status.Mechanism)
		}
		for _, x := range n.snap.Workloads {
			if w.Knob.File != node.FileScheduler && w.Knob.Cgroup.Contains(x.Cgroup) && (x.Class == node.BE) != (w.Value.CompareWidth(zeroOf(w.Value)) < 0) {
				t.Errorf("%v is to be %v with the %s work %s in it", w.Knob, w.Value, x.Class, x.ID)
			}
		}
	}
}

// zeroOf returns the value that an isolation knob has if Tenon has not changed
// it.
func zeroOf(v node.Value) node.Value {
	if _, is := v.(node.Identity); is {
		return node.IdentityNone
	}
	return node.ThreadsNormal
}

// checkStatus checks that the status has each mechanism, in the preference order.
// The scenarios print only some of them.
func (n *scene) checkStatus(t *testing.T) {
	t.Helper()
	if !n.config.CPUQOS.Enable {
		return
	}
	var listed []node.Mechanism
	for _, m := range n.state.Selector.Status.Mechanisms {
		listed = append(listed, m.Mechanism)
	}
	if !slices.Equal(listed, node.Mechanisms) {
		t.Errorf("the status lists the mechanisms %v, want %v", listed, node.Mechanisms)
	}
}

// TestBEKeepsOffSiblings checks MechanismSiblings with all settings of CPU
// suppress. BE work must not have the siblings of CPUs of LS work, unless it
// has only its minimum. It must always have at least one CPU.
func TestBEKeepsOffSiblings(t *testing.T) {
	rnd := rand.New(rand.NewPCG(63, 64))
	kept := 0
	for try := range 60 {
		n := newScene(machine(8<<rnd.IntN(4), 2, 2, 1), 1+try%2)
		n.config = Config{CPUQOS: isolation.Config{Enable: true, Mechanism: node.MechanismSiblings}, Suppress: suppress.Config{
			Enable: rnd.IntN(3) > 0, ThresholdPercent: 65, MinPercent: unit.Percent(rnd.IntN(50)),
			Policy: []suppress.Policy{suppress.ByQuota, suppress.ByCPUSet, ""}[rnd.IntN(3)],
		}}
		for _, m := range []node.Feature{node.FeatureHardwareSMT, node.FeatureCPUSets, node.FeatureBPF} {
			n.snap.Capabilities[m] = node.Answer{Verdict: node.Yes}
		}
		n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
		n.add(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
		n.snap.Isolation.LSOn = map[unit.CPU]time.Duration{}
		all := n.snap.Topology.All()
		var on unit.CPUSet
		for turn := range 20 {
			if turn%6 == 0 {
				on = anySet(rnd, all)
			}
			n.pass(spell{
				every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"web": unit.CPUs(on.Len()).Percent(20), "job": 1000},
				on: map[node.WorkloadID]unit.CPUSet{"web": on},
			})
			n.decide(t)
			if turn%6 < 4 || n.state.Selector.Status.Mechanism != node.MechanismSiblings {
				continue // earlier sightings count too, and v1 needs two ticks
			}
			var beside unit.CPUSet
			for _, c := range n.snap.Topology.CPUs {
				if s := n.snap.Topology.Siblings(c.ID).Minus(unit.CPUSetOf(c.ID)); !s.Intersect(on).Empty() {
					beside = beside.With(c.ID)
				}
			}
			set := n.snap.Knobs.Now[node.Knob{Cgroup: "be", File: node.FileCPUs}].(node.CPUs).Set
			if set.Empty() {
				set = all
			}
			least := 1
			if n.config.Suppress.Enable {
				least = max(int((unit.CPUs(all.Len()).Percent(n.config.Suppress.MinPercent)+999)/1000), 1)
			}
			if bad := set.Intersect(beside); !bad.Empty() && set.Len() > least {
				t.Fatalf("try %d, tick %d, %+v: BE has %v, LS ran on %v, and %v is beside it", try, turn, n.config.Suppress, set, on, bad)
			}
			if !beside.Empty() {
				kept++
			}
		}
	}
	if kept < 50 {
		t.Errorf("LS work had a sibling in %d ticks only", kept)
	}
}

// TestTheSelectionIsRememberedOverARestart writes the state as JSON and reads
// it back. An agent that restarts with this state must make the same decisions
// as before.
func TestTheSelectionIsRememberedOverARestart(t *testing.T) {
	rnd := rand.New(rand.NewPCG(65, 66))
	for range 40 {
		n := anyScene(rnd, 16, 2)
		n.config.CPUQOS.Enable = true
		for _, m := range []node.Feature{node.FeatureHardwareSMT, node.FeatureSchedExt, node.FeatureCoreSched, node.FeatureCPUSets, node.FeatureBPF} {
			n.snap.Capabilities[m] = node.Answer{Verdict: node.Yes}
		}
		n.showIsolation()
		for range 10 {
			n.anyIsolation(t, rnd)
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
		text, err := json.Marshal(n.state)
		if err != nil {
			t.Fatal(err)
		}
		var back State
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		s := n.snap
		s.At = s.At.Add(time.Minute)
		s.Isolation.Failures = nil // the host reports them only once
		_, want := Decide(n.config, n.state, s)
		_, got := Decide(n.config, back, s)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b plan.Want) bool { return a == b })); diff != "" {
			t.Fatalf("the restored state gives another decision:\n%s", diff)
		}
	}
}
