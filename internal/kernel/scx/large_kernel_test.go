package scx

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// largeTopology is the topology of a machine with 256 CPUs: 8 caches with 16
// cores of two threads each.
func largeTopology() []CPU { return cpus(8, 16, 2) }

// TestLargeMachineFits checks the constants of the program and the size of its
// maps.
func TestLargeMachineFits(t *testing.T) {
	all := largeTopology()
	l, err := newLayout(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		spec, err := v.spec()
		if err != nil {
			t.Fatal(err)
		}
		if err := fit(spec, Options{CgroupVersion: 2}, l); err != nil {
			t.Fatal(err)
		}
		var count, shards uint32
		var places [maxCPUs]scheduler613ScxPlace
		for name, into := range map[string]any{scheduler613VarCpuCount: &count, scheduler613VarShardCount: &shards, scheduler613VarPlaces: &places} {
			if err := spec.Variables[name].Get(into); err != nil {
				t.Fatal(err)
			}
		}
		if count != 256 || shards != 8 {
			t.Errorf("%s: %d CPUs in %d shards, want 256 in 8", v.variant, count, shards)
		}
		for _, c := range all {
			if p := places[c.ID]; p.Known != 1 || int(p.Core) != c.Core || int(p.Shard) != c.LLC || int(p.Thread) != c.Thread {
				t.Errorf("%s: CPU %d has place %+v, want core %d of cache %d", v.variant, c.ID, p, c.Core, c.LLC)
			}
		}
		if places[256].Known != 0 {
			t.Errorf("%s: a CPU outside the topology has place %+v", v.variant, places[256])
		}
		memory := 0
		for _, m := range spec.Maps {
			memory += int(m.ValueSize) * int(m.MaxEntries)
		}
		t.Logf("%s: %d KiB of maps", v.variant, memory>>10)
		if memory > 8<<20 {
			t.Errorf("%s: %d bytes of maps", v.variant, memory)
		}
	}
}

// TestLargeMachineIsCheckedByTheKernel lets the running kernel verify the
// program of sched_switch with the constants of a large machine. A kernel
// without sched_ext can do that.
func TestLargeMachineIsCheckedByTheKernel(t *testing.T) {
	s := hookFor(t, largeTopology())
	var last scheduler613ScxCpu
	if err := element(s.view.cpus, 255, &last); err != nil {
		t.Errorf("the counters of the last CPU: %v", err)
	}
}

// TestLargeMachineIsCheckedWhole lets the kernel verify all programs for a
// large machine. It cannot attach them, because this machine lacks the CPUs.
func TestLargeMachineIsCheckedWhole(t *testing.T) {
	newStage(t)
	l, err := newLayout(largeTopology())
	if err != nil {
		t.Fatal(err)
	}
	types := btf.NewCache()
	v, err := probe(types)
	if err != nil {
		t.Fatal(err)
	}
	s := &Scheduler{variant: v, layout: l, generation: 1, topology: largeTopology(), events: make(chan Event, eventsKept), known: map[uint64]scheduler613ScxGroup{}}
	o := Options{CgroupVersion: 2, Topology: largeTopology(), Params: Params{SMTRule: true}}
	err = s.open(o, types, 0)
	if s.reader != nil {
		_ = s.reader.Close()
	}
	if released := s.release(); err != nil || released != nil {
		t.Errorf("%v; %v", err, released)
	}
}
