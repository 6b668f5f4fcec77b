package testbed

import (
	"fmt"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Placement divides the CPUs of the machine. Service and batch work share the
// CPUs in Tested, whose use is measured. The load generator uses the CPUs in
// Client. The lab itself and tenond use the CPUs in Lab.
type Placement struct {
	Tested, Client, Lab unit.CPUSet
}

// TooFewCPUs says that a part of an experiment needs more CPUs than it has.
type TooFewCPUs struct {
	For        string // what needs them
	Need, Have unit.MilliCPU
}

func (e TooFewCPUs) Error() string {
	return fmt.Sprintf("too few CPUs for %s: want %g, have %g", e.For, e.Need.Cores(), e.Have.Cores())
}

// reserveCPU takes one of the client's CPUs for the lab, so that the work of
// the lab does not delay the client. If the client has only one CPU, the lab
// shares it.
func (p Placement) reserveCPU() Placement {
	p.Lab = p.Client
	for first := range p.Client.All() {
		if p.Client.Len() > 1 {
			p.Lab = unit.CPUSetOf(first)
			p.Client = p.Client.Minus(p.Lab)
		}
		break
	}
	return p
}

// NoClient tells Place that the experiment sends no load, so that all CPUs are
// tested.
const NoClient = true

// Place divides the CPUs that the lab may use. The caller may choose each set.
// By default the client gets an eighth of the CPUs, but at least one. It gets
// whole cores, from the end of the list. If there is more than one core, client
// and tested CPUs have no core in common.
func Place(t node.Topology, allowed, tested, client unit.CPUSet, noClient bool) (Placement, error) {
	online := t.All().Intersect(allowed)
	if err := checkChosen(online, tested, client); err != nil {
		return Placement{}, err
	}
	if noClient {
		if !client.Empty() {
			return Placement{}, fmt.Errorf("--client-cpus %v: this experiment has no client", client)
		}
		if tested.Empty() {
			tested = online
		}
		return Placement{Tested: tested}, nil
	}
	if online.Len() < 2 {
		return Placement{}, fmt.Errorf("%w; usable are %v", TooFewCPUs{"the load generator and the tested work", unit.CPUs(2), unit.CPUs(online.Len())}, online)
	}
	if client.Empty() {
		client = chooseClient(t, online.Minus(tested), online, !tested.Empty())
		if client.Empty() {
			return Placement{}, fmt.Errorf("--cpus %v: %w", tested, TooFewCPUs{"the load generator", unit.CPUs(1), 0})
		}
	}
	if tested.Empty() {
		tested = online.Minus(client)
		if tested.Empty() {
			return Placement{}, fmt.Errorf("--client-cpus %v: %w", client, TooFewCPUs{"the tested work", unit.CPUs(1), 0})
		}
	}
	return Placement{Tested: tested, Client: client}, nil
}

// checkChosen returns an error unless the chosen sets are disjoint and consist of
// usable CPUs.
func checkChosen(usable, tested, client unit.CPUSet) error {
	for _, given := range []struct {
		flag string
		set  unit.CPUSet
	}{{"--cpus", tested}, {"--client-cpus", client}} {
		if missing := given.set.Minus(usable); !missing.Empty() {
			return fmt.Errorf("%s %v: CPU %v is not online or not allowed here; usable are %v", given.flag, given.set, missing, usable)
		}
	}
	if both := tested.Intersect(client); !both.Empty() {
		return fmt.Errorf("--cpus %v and --client-cpus %v share CPU %v: the client's CPUs must be its own", tested, client, both)
	}
	return nil
}

// chooseClient takes whole cores from the end of the free CPUs until it has an
// eighth of the online CPUs. If all is set, it may take all free CPUs.
// Otherwise it leaves at least one.
func chooseClient(t node.Topology, free, online unit.CPUSet, all bool) unit.CPUSet {
	want := max(online.Len()/8, 1)
	var client unit.CPUSet
	for i := len(t.CPUs) - 1; i >= 0 && client.Len() < want; i-- {
		c := t.CPUs[i].ID
		if !free.Has(c) || client.Has(c) {
			continue
		}
		core := t.Siblings(c).Intersect(free)
		if rest := free.Minus(client).Minus(core); !all && rest.Empty() {
			core = unit.CPUSetOf(c) // the only core is shared
		}
		client = client.Union(core)
	}
	return client
}

// SharesCore reports whether some core has both tested and client CPUs. There,
// the client disturbs the measured work.
func (p Placement) SharesCore(t node.Topology) bool {
	for c := range p.Client.Union(p.Lab).All() {
		if !t.Siblings(c).Intersect(p.Tested).Empty() {
			return true
		}
	}
	return false
}

// Siblings reports whether tested CPUs share a core.
func (p Placement) Siblings(t node.Topology) bool {
	for c := range p.Tested.All() {
		if t.Siblings(c).Intersect(p.Tested).Len() > 1 {
			return true
		}
	}
	return false
}
