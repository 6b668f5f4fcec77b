package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// addsUp checks that the terms add up to the amount, and that the amount is
// within its bounds. It returns what is wrong, or "".
func addsUp[T unit.MilliCPU | unit.Bytes](a node.Amount[T], capacity T, r overcommit.Reclaim) string {
	var sum T
	for _, term := range a.Terms {
		sum += term.Amount
	}
	switch {
	case sum != a.Value:
		return fmt.Sprintf("the terms add up to %v", sum)
	case a.Value < 0:
		return "it is below 0"
	case a.Value > capacity*T(r.ThresholdPercent)/100:
		return "it is above the threshold"
	}
	return ""
}

// TestPromisesHoldTheirBounds simulates random workloads with random use. In
// some snapshots, the usage of a workload is missing. The terms must add up, and
// an amount must be between 0 and its threshold. The offer must never exceed the
// present result of the formula. It may grow only at intervals of Look.
func TestPromisesHoldTheirBounds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 32))
	for range 60 {
		n := anyScene(rnd, 48, 2)
		n.config.Suppress.Enable = false
		n.config.Overcommit = anyCrew(rnd).config
		if rnd.IntN(3) == 0 {
			n.config.Overcommit.Peak = overcommit.PeakPrediction{Enable: true, MarginPercent: 10, ColdStart: 5 * time.Minute}
		}
		n.memory = map[node.WorkloadID]unit.Bytes{"node": 64 * gi}
		for range 150 {
			for _, w := range n.snap.Workloads {
				if n.memory[w.ID] = unit.Bytes(rnd.IntN(8192)) << 20; rnd.IntN(40) == 0 {
					delete(n.memory, w.ID)
				}
			}
			p := n.anySpell(rnd)
			p.every = time.Duration(rnd.IntN(6000)) * time.Millisecond
			before := n.state
			n.pass(p)
			n.decide(t)
			sinceLook := before.Batch.Looked + before.Batch.Demand.Waited + p.every
			was, is := before.Batch.Offer, n.state.Batch.Offer
			if why := addsUp(is.CPU, unit.CPUs(len(n.snap.Topology.CPUs)), n.config.Overcommit.CPU); why != "" {
				t.Fatalf("batch-cpu %v: %s", is.CPU, why)
			}
			if why := addsUp(is.Memory, 64*gi, n.config.Overcommit.Memory); why != "" {
				t.Fatalf("batch-memory %v: %s", is.Memory, why)
			}
			if is.CPU.Value > is.CPU.Formula || is.Memory.Value > is.Memory.Formula {
				t.Fatalf("more is promised than the formula gives: %v", is)
			}
			if is.CPU.Value > was.CPU.Value || is.Memory.Value > was.Memory.Value {
				if sinceLook < n.config.Overcommit.Look && was.Enabled() {
					t.Fatalf("more is promised %v after the last look: %v", sinceLook, is)
				}
				if is.CPU.Degraded != "" && is.CPU.Value > was.CPU.Value {
					t.Fatalf("more is promised with an input missing: %v", is)
				}
			}
			checkState(t, n.state)
		}
	}
}

// checkState checks that the state is the same after it was written as JSON and
// read back.
func checkState(t *testing.T, st State) {
	t.Helper()
	text, err := json.Marshal(st.Batch)
	var back overcommit.State
	if err != nil || json.Unmarshal(text, &back) != nil {
		t.Fatalf("%s: %v", text, err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(text) {
		t.Fatalf("%v\n%s", err, cmp.Diff(string(text), string(again)))
	}
}

// TestMoreUseNeverPromisesMore increases the use, the request or the memory of
// one of the workloads from anyCrew. The offer must not grow.
func TestMoreUseNeverPromisesMore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 42))
	for range 200 {
		c := anyCrew(rnd)
		if len(c.work) == 0 {
			continue
		}
		less := c.promise(t)
		c.work = append([]crewMember(nil), c.work...)
		h := &c.work[rnd.IntN(len(c.work))]
		switch k := rnd.IntN(4); {
		case k == 0 && h.used >= 0:
			h.used += unit.MilliCPU(rnd.IntN(500))
		case k == 1:
			h.asked += unit.MilliCPU(rnd.IntN(500))
		case k == 2 && h.has >= 0:
			h.has += unit.Bytes(rnd.IntN(1<<10)) << 20
		default:
			h.wants += unit.Bytes(rnd.IntN(1<<10)) << 20
		}
		more := c.promise(t)
		if more.CPU.Value > less.CPU.Value+1 || more.Memory.Value > less.Memory.Value+1<<10 {
			t.Fatalf("with more use or request of %+v\n%v\nbecame\n%v", *h, less, more)
		}
	}
}

// TestLessIsPromisedAtOnce checks that two seconds of higher use reduce the offer
// in full, for any content of the window.
func TestLessIsPromisedAtOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(51, 52))
	for range 30 {
		n := newScene(machine(16, 1, 1, 1), 2)
		n.config.Overcommit = colocation()
		n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "web", ContentionRoot: "web"})
		p := spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"web": unit.MilliCPU(rnd.IntN(4000))}}
		for range 61 + rnd.IntN(300) {
			n.pass(p)
			n.decide(t)
		}
		p.use["web"] += unit.MilliCPU(1 + rnd.IntN(9000))
		for range 2 {
			n.pass(p)
			n.decide(t)
		}
		if got, most := n.state.Batch.Offer.CPU.Value, max(9600-p.use["web"], 0); got > most+1 {
			t.Errorf("with %v in use for 2 s, %v are promised; want at most %v", p.use["web"], got, most)
		}
	}
}
