package config

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// cpuQOS reports whether latency-sensitive work gets the CPU first. That is one
// relation between two classes, so either of them may ask for it: BE by giving
// way, LS by going first.
func (q QOS) cpuQOS() bool {
	return q.BEClass.CPU.Enable.Or(false) || q.LSClass.CPU.Enable.Or(false)
}

// isolation returns how latency-sensitive work is to get the CPU first.
func (q QOS) isolation() policy.CPUQOS {
	if !q.cpuQOS() {
		return policy.CPUQOS{}
	}
	c := policy.CPUQOS{
		Enable: true, Means: q.BEClass.CPU.means(), Mechanism: q.Policies.rung(),
		Hold:            node.Some(time.Duration(valueOf(q.Policies.HoldMicroseconds)) * time.Microsecond),
		SlicesUnmanaged: !valueOf(q.Policies.LongSlices),
	}
	if n, given := q.Policies.HeadroomCores.Value(); given {
		c.Headroom = node.Some(int(n))
	}
	usual := defaults.QOS.classes()
	for i, class := range q.classes() {
		identity := class.CPU.identity(usual[i].CPU)
		if identity == node.Identity(valueOf(usual[i].CPU.GroupIdentity)) {
			continue
		}
		if c.Identity == nil {
			c.Identity = map[node.Class]node.Identity{}
		}
		for _, name := range class.names {
			c.Identity[name] = identity
		}
	}
	return c
}

// mechanism returns the strongest isolation mechanism to use; empty: the
// node's. The default of cpuPolicy makes no choice: all mechanisms do what it
// names.
func (p Policies) rung() node.Mechanism {
	switch pinned, given := p.CPUIsolation.Value(); {
	case given && pinned == "auto":
		return ""
	case given:
		return node.Mechanism(pinned)
	case valueOf(p.CPUPolicy) == "coreSched":
		return node.MechanismCoreSched
	}
	return ""
}

// means returns the mechanism by which BE yields, if one is configured. The
// default of Koordinator is 0, because there another means does the work; here
// that would be the weaker one, so a key that is not set chooses neither.
func (c CPUQOS) means() node.Feature {
	idle, set := c.SchedIdle.Value()
	switch {
	case !set || !c.Enable.Or(false):
		return ""
	case idle == 0:
		return node.FeatureCPUWeight
	}
	return node.FeatureCPUIdle
}

// identity returns how a class is treated. What does not expel with core
// scheduling does not expel by another means either.
func (c CPUQOS) identity(usual CPUQOS) node.Identity {
	if !c.Enable.Or(false) {
		c = usual
	}
	v := node.Identity(c.GroupIdentity.Or(valueOf(usual.GroupIdentity)))
	if !c.CoreExpeller.Or(valueOf(usual.CoreExpeller)) {
		v = min(v, node.IdentityHigh)
	}
	return v
}

// identities checks that no class is configured against its purpose:
// best-effort work yields to latency-sensitive work, and never the other way.
func (c *checker) identities(q QOS) {
	for _, class := range q.classes() {
		field := "resource-qos-config." + class.key + ".cpuQOS.groupIdentity"
		v, given := class.CPU.GroupIdentity.Value()
		switch be := class.key == "beClass"; {
		case !given || c.bad[field]:
		case be && v > 0:
			c.fault(field, fmt.Sprintf("%d: want -1 or 0: BE goes before nobody", v))
		case !be && v < 0:
			c.fault(field, fmt.Sprintf("%d: want a whole number from 0 to 2: only BE yields", v))
		}
	}
}
