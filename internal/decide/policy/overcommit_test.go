package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A crew is the work on a node. Each workload has a request and a constant use.
type crew struct {
	cpus         int
	memory       unit.Bytes
	config       overcommit.Config
	counted      unit.CPUSet
	system       unit.MilliCPU
	systemMemory unit.Bytes
	work         []crewMember
	wantCPU      unit.MilliCPU
	wantMemory   unit.Bytes
}

// A crewMember is one workload of a crew. A negative request or use is absent.
type crewMember struct {
	class       node.Class
	asked, used unit.MilliCPU
	wants, has  unit.Bytes
}

// promise runs the crew for slightly longer than a window and returns the batch
// resources.
func (c crew) promise(t testing.TB) node.Batch {
	t.Helper()
	n := newScene(machine(c.cpus, 1, 1, 1), 2)
	n.config.Overcommit, n.config.NodeCPUs = c.config, facts.NodeCPUs{CPUs: c.counted, LendLSR: true}
	n.snap.MemoryTotal = node.Some(c.memory)
	n.memory = map[node.WorkloadID]unit.Bytes{"node": c.systemMemory}
	p := spell{every: 20 * time.Second, use: map[node.WorkloadID]unit.MilliCPU{}, missing: map[node.WorkloadID]bool{}, system: c.system}
	for i, h := range c.work {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint(i)), Class: h.class, ContentionRoot: node.CgroupPath(h.class)}
		w.Cgroup = w.ContentionRoot.Join(string(w.ID))
		if h.asked >= 0 {
			w.CPURequest = node.Some(h.asked)
		}
		if h.wants >= 0 {
			w.MemoryRequest = node.Some(h.wants)
		}
		if p.use[w.ID] = h.used; h.used < 0 {
			p.use[w.ID], p.missing[w.ID] = 0, true
		}
		if h.has >= 0 {
			n.memory[w.ID] = h.has
			n.memory["node"] += h.has
		}
		n.add(w)
	}
	for range 20 {
		n.pass(p)
		n.decide(t)
	}
	return n.state.Batch.Offer
}

func changed(change func(*overcommit.Config)) overcommit.Config {
	c := colocation()
	change(&c)
	return c
}

const gi = unit.Bytes(1 << 30)

// TestAmountsWorkedByHand compares the amounts with values that were computed
// by hand. The node has 16 CPUs and 64 GiB. The thresholds are 60 % of the CPUs
// and 65 % of the memory, unless a case has others.
func TestAmountsWorkedByHand(t *testing.T) {
	for name, c := range map[string]crew{
		"an empty node": { // 9600; 65 % of 65536 Mi
			config: colocation(), wantCPU: 9600, wantMemory: 64 * gi * 65 / 100,
		},
		"use": { // 9600 − 500 − 2000 − 1000; 44666644889 − 1 Gi − 4 Gi − 2 Gi
			config: colocation(), system: 500, systemMemory: gi,
			work:    []crewMember{{node.LS, 4000, 2000, 8 * gi, 4 * gi}, {node.System, 0, 1000, 0, 2 * gi}, {node.BE, 0, 7000, 0, 20 * gi}},
			wantCPU: 6100, wantMemory: 64*gi*65/100 - 7*gi,
		},
		"the larger of use and request": { // 9600 − 500 − 4000 − 1000; … − 1 − 8 − 2 Gi
			config: changed(func(c *overcommit.Config) {
				c.CPU.Policy, c.Memory.Policy = overcommit.ByMaxUsageRequest, overcommit.ByMaxUsageRequest
			}),
			system: 500, systemMemory: gi,
			work:    []crewMember{{node.LS, 4000, 2000, 8 * gi, 4 * gi}, {node.LSR, 500, 1000, gi, 2 * gi}, {node.BE, 9000, 7000, 9 * gi, 20 * gi}},
			wantCPU: 4100, wantMemory: 64*gi*65/100 - 11*gi,
		},
		"memory by request": { // the reservation counts, and the use of the system does not
			config: changed(func(c *overcommit.Config) { c.Memory.Policy, c.ReservedMemory = overcommit.ByRequest, 3*gi }),
			system: 0, systemMemory: 9 * gi,
			work:    []crewMember{{node.LS, 0, 0, 8 * gi, 4 * gi}, {node.LS, 0, 0, -1, 5 * gi}},
			wantCPU: 9600, wantMemory: 64*gi*65/100 - 16*gi,
		},
		"the reservation is more than the system uses": {
			config: changed(func(c *overcommit.Config) { c.ReservedCPU, c.ReservedMemory = 1000, 2*gi }),
			system: 400, systemMemory: gi,
			wantCPU: 8600, wantMemory: 64*gi*65/100 - 2*gi,
		},
		"LSE counts by request, its memory by use": {
			config:  colocation(),
			work:    []crewMember{{node.LSE, 4000, 100, 8 * gi, gi}},
			wantCPU: 5600, wantMemory: 64*gi*65/100 - gi,
		},
		"LSE without a request counts by use": {
			config:  colocation(),
			work:    []crewMember{{node.LSE, -1, 100, -1, gi}},
			wantCPU: 9500, wantMemory: 64*gi*65/100 - gi,
		},
		"what is not measured counts by request": {
			// With maxUsageRequest, Koordinator omits work that was not
			// measured.
			config:  changed(func(c *overcommit.Config) { c.CPU.Policy = overcommit.ByMaxUsageRequest }),
			work:    []crewMember{{node.LS, 3000, -1, 5 * gi, -1}},
			wantCPU: 6600, wantMemory: 64*gi*65/100 - 5*gi,
		},
		"never below nothing": {
			config: colocation(), work: []crewMember{{node.LS, 0, 12000, 0, 60 * gi}}, wantCPU: 0, wantMemory: 0,
		},
		"no more than the owner promises": { // 50 % of 16000, 25 % of 64 Gi
			config: changed(func(c *overcommit.Config) {
				c.CPU.LimitPercent, c.Memory.LimitPercent = node.Some[unit.Percent](50), node.Some[unit.Percent](25)
			}),
			wantCPU: 8000, wantMemory: 16 * gi,
		},
		"a threshold above the capacity is the owner's wish": { // 120 % of 16000 − 1000
			config:  changed(func(c *overcommit.Config) { c.CPU.ThresholdPercent = 120 }),
			work:    []crewMember{{node.LS, 0, 1000, 0, 0}},
			wantCPU: 18200, wantMemory: 64 * gi * 65 / 100,
		},
		"only the CPUs that count": { // 60 % of 4 CPUs, minus a quarter of 4000m
			config: colocation(), counted: unit.CPUSetOf(0, 1, 2, 3),
			system:  4000,
			wantCPU: 1400, wantMemory: 64 * gi * 65 / 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.cpus, c.memory = 16, 64*gi
			got := c.promise(t)
			if got.CPU.Value != c.wantCPU || got.Memory.Value != c.wantMemory || got.CPU.Degraded+got.Memory.Degraded != "" {
				t.Errorf("got %v\nwant %v and %v", got, c.wantCPU, c.wantMemory)
			}
		})
	}
}

// batchReference is Koordinator's formula for constant use, written from its
// description. It returns CPU and memory. With maxUsageRequest, Koordinator
// leaves out work that was not measured. batchReference does not have this bug.
func batchReference(c crew) (unit.MilliCPU, unit.Bytes) {
	var used, asked, most, used2, asked2, most2 int64
	for _, h := range c.work {
		if h.class == node.BE {
			continue
		}
		u, r := int64(h.used), int64(h.asked)
		if u < 0 {
			u = r // a pod without a metric counts by its request
		}
		if h.class == node.LSE {
			u = r
		}
		used, asked, most = used+u, asked+r, most+max(u, r)
		m, q := int64(h.has), int64(h.wants)
		if m < 0 {
			m = q
		}
		used2, asked2, most2 = used2+m, asked2+q, most2+max(m, q)
	}
	rest := func(r overcommit.Reclaim, capacity, reserved, system, used, asked, most int64) int64 {
		margin := capacity * (100 - int64(r.ThresholdPercent)) / 100
		var batch int64
		switch r.Policy {
		case overcommit.ByRequest:
			batch = max(0, capacity-margin-reserved-asked)
		case overcommit.ByMaxUsageRequest:
			batch = max(0, capacity-margin-max(system, reserved)-most)
		default:
			batch = max(0, capacity-margin-max(system, reserved)-used)
		}
		if p, limited := r.LimitPercent.Value(); limited {
			batch = min(batch, capacity*int64(p)/100)
		}
		return batch
	}
	return unit.MilliCPU(rest(c.config.CPU, int64(c.cpus)*1000, int64(c.config.ReservedCPU), int64(c.system), used, asked, most)),
		unit.Bytes(rest(c.config.Memory, int64(c.memory), int64(c.config.ReservedMemory), int64(c.systemMemory), used2, asked2, most2))
}

// anyCrew returns up to eight workloads that all have requests, as pods do.
func anyCrew(rnd *rand.Rand) crew {
	policies := []overcommit.ReclaimPolicy{overcommit.ByUsage, overcommit.ByRequest, overcommit.ByMaxUsageRequest}
	c := crew{cpus: 1 + rnd.IntN(32), memory: unit.Bytes(1+rnd.IntN(64)) * gi, config: colocation()}
	c.config.CPU = overcommit.Reclaim{ThresholdPercent: unit.Percent(rnd.IntN(120)), Policy: policies[2*rnd.IntN(2)]}
	c.config.Memory = overcommit.Reclaim{ThresholdPercent: unit.Percent(rnd.IntN(101)), Policy: policies[rnd.IntN(3)]}
	if rnd.IntN(2) == 0 {
		c.config.CPU.LimitPercent = node.Some(unit.Percent(rnd.IntN(101)))
		c.config.Memory.LimitPercent = node.Some(unit.Percent(rnd.IntN(101)))
	}
	if rnd.IntN(2) == 0 {
		c.config.ReservedCPU, c.config.ReservedMemory = unit.MilliCPU(rnd.IntN(1000)), unit.Bytes(rnd.IntN(1024))<<20
	}
	room := c.cpus * 1000
	some := func() unit.MilliCPU { // the use cannot exceed the capacity
		v := rnd.IntN(1 + room/4)
		room -= v
		return unit.MilliCPU(v)
	}
	c.system, c.systemMemory = some(), unit.Bytes(rnd.IntN(1024))<<20
	for range rnd.IntN(8) {
		h := crewMember{
			class: append(classes, node.BE)[rnd.IntN(len(classes)+1)], asked: unit.MilliCPU(rnd.IntN(8000)), used: some(),
			wants: unit.Bytes(rnd.IntN(8192)) << 20, has: unit.Bytes(rnd.IntN(8192)) << 20,
		}
		if h.class == node.LSE {
			h.asked = max(h.asked, h.used) // bound to its requested CPUs
		}
		if rnd.IntN(10) == 0 && h.class != node.BE {
			h.used = -1
		}
		if rnd.IntN(10) == 0 && h.class != node.BE {
			h.has = -1
		}
		c.work = append(c.work, h)
	}
	return c
}

// TestAmountsEqualKoordinators compares the results with Koordinator's formula.
// Means are rounded to whole milliseconds, so each workload may add a
// difference of less than one thousandth of a CPU.
func TestAmountsEqualKoordinators(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	for range 400 {
		c := anyCrew(rnd)
		cpu, memory := batchReference(c)
		got := c.promise(t)
		slack := unit.MilliCPU(len(c.work) + 2)
		if d := got.CPU.Value - cpu; d < -slack || d > slack {
			t.Errorf("batch-cpu is %v\nthe reference promises %v\nto %+v", got.CPU, cpu, c)
		}
		if d := got.Memory.Value - memory; d < -unit.Bytes(slack)<<10 || d > unit.Bytes(slack)<<10 {
			t.Errorf("batch-memory is %v\nthe reference promises %v\nto %+v", got.Memory, memory, c)
		}
		if t.Failed() {
			return
		}
	}
}

// TestEventsDoNotMakeSamples checks that ticks that follow each other too
// quickly do not change the offer.
func TestEventsDoNotMakeSamples(t *testing.T) {
	n := newScene(machine(4, 1, 1, 1), 2)
	n.config.Overcommit = colocation()
	n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "web", ContentionRoot: "web"})
	p := spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"web": 500}}
	for range 70 {
		n.pass(p)
		n.decide(t)
	}
	before := n.state.Batch
	n.pass(spell{every: 10 * time.Millisecond, use: map[node.WorkloadID]unit.MilliCPU{"web": 4000}})
	n.decide(t)
	after := n.state.Batch
	if before.Demand.Waited = 10 * time.Millisecond; cmp.Diff(before.Offer, after.Offer) != "" || after.Demand.Waited != before.Demand.Waited ||
		after.Demand.Short != before.Demand.Short {
		t.Errorf("10 ms made a sample: %+v", after.Demand.Short)
	}
}

// TestPageCacheCountsOnlyIfTheOwnerSaysSo checks that the page cache of
// services counts as their use only if WithPageCache is set. The page cache of
// BE must never reduce the measured use of the system.
func TestPageCacheCountsOnlyIfTheOwnerSaysSo(t *testing.T) {
	for with, want := range map[bool]string{
		false: "36454Mi = 65% of 65536Mi - 2048Mi used by the system - 4096Mi used by LS",
		true:  "34406Mi = 65% of 65536Mi - 2048Mi used by the system - 6144Mi used by LS",
	} {
		n := newScene(machine(4, 1, 1, 1), 2)
		n.config.Overcommit = colocation()
		n.config.Overcommit.WithPageCache = with
		n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "web", ContentionRoot: "web"})
		n.add(node.Workload{ID: "be", Class: node.BE, Cgroup: "be", ContentionRoot: "be"})
		for range 62 {
			n.pass(spell{every: time.Second})
			n.snap.Usage.Memory, n.snap.Usage.WorkingSet = node.Some(5*gi), node.Some(16*gi)
			for i, u := range []node.Usage{{Memory: node.Some(6 * gi), WorkingSet: node.Some(4 * gi)}, {Memory: node.Some(30 * gi), WorkingSet: node.Some(10 * gi)}} {
				n.snap.Workloads[i].Usage.Memory, n.snap.Workloads[i].Usage.WorkingSet = u.Memory, u.WorkingSet
			}
			n.decide(t)
		}
		if got := n.state.Batch.Offer.Memory.String(); got != want {
			t.Errorf("with page cache %v: %s\nwant %s", with, got, want)
		}
	}
}
