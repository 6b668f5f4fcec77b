package policy

import (
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// fromSums asks the formula with sums, as a source does that knows no workloads: the
// use and the requests of pods, without their histories.
func (c crew) fromSums() (unit.MilliCPU, unit.Bytes) {
	cpu := overcommit.Sums[unit.MilliCPU]{Capacity: unit.CPUs(c.cpus), Reserved: c.config.ReservedCPU, System: c.system}
	memory := overcommit.Sums[unit.Bytes]{Capacity: c.memory, Reserved: c.config.ReservedMemory, System: c.systemMemory}
	for _, h := range c.work {
		if h.class == node.BE {
			continue
		}
		policy := c.config.CPU.Policy
		if h.class == node.LSE && policy == overcommit.ByUsage {
			policy = overcommit.ByMaxUsageRequest
		}
		counts, _ := overcommit.Counted(policy, known(h.used), known(h.asked))
		cpu.Others += counts
		holds, _ := overcommit.Counted(c.config.Memory.Policy, known(h.has), known(h.wants))
		memory.Others += holds
	}
	return overcommit.AmountOf(c.config.CPU, cpu).Value(), overcommit.AmountOf(c.config.Memory, memory).Value()
}

// known returns v, or nothing if it is negative.
func known[T unit.MilliCPU | unit.Bytes](v T) (m node.Maybe[T]) {
	if v >= 0 {
		m = node.Some(v)
	}
	return m
}

// TestSumsGiveTheAmountOfTheAgent compares the two ways to one amount: a snapshot with
// workloads that Decide sees, and sums over them. Both must give the same integers.
func TestSumsGiveTheAmountOfTheAgent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(61, 62))
	offered := 0
	for range 400 {
		c := anyCrew(rnd)
		cpu, memory := c.fromSums()
		got := c.promise(t)
		if got.CPU.Formula != cpu || got.Memory.Formula != memory {
			t.Fatalf("Decide gives %v and %v\nsums give %v and %v\nfor %+v", got.CPU, got.Memory, cpu, memory, c)
		}
		if cpu > 0 && memory > 0 {
			offered++
		}
	}
	if offered < 100 {
		t.Errorf("only %d nodes of 400 have room", offered)
	}
}
