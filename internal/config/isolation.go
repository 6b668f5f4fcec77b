package config

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Policies selects mechanisms for parts of QOS. By default, trials on the node
// select the CPU isolation (see measured order in docs/glossary.md).
type Policies struct {
	CPUPolicy    node.Maybe[string] `json:"cpuPolicy,omitzero" oneof:"groupIdentity coreSched"`
	NetQOSPolicy node.Maybe[string] `json:"netQOSPolicy,omitzero" oneof:"tc terway-qos" later:""`
	// Only Tenon has the following keys.
	CPUIsolation     node.Maybe[string] `json:"cpuIsolation,omitzero" oneof:"auto measured strongest MECHANISM"`
	Trials           node.Maybe[bool]   `json:"cpuIsolationTrials,omitzero"`
	HoldMicroseconds node.Maybe[int64]  `json:"cpuIsolationHoldMicroseconds,omitzero" range:"0..10000"`
	HeadroomCores    node.Maybe[int64]  `json:"cpuIsolationHeadroomCores,omitzero" range:"0..64"`
	LongSlices       node.Maybe[bool]   `json:"cpuIsolationLongSlices,omitzero"`
	LimitSeats       node.Maybe[bool]   `json:"cpuLimitSeats,omitzero"`
	// ReclaimFree is the part of the node's memory that BE work should leave free.
	ReclaimFree node.Maybe[unit.Percent] `json:"memoryReclaimFreePercent,omitzero" range:"0..50"`
}

// CPUQOS configures which classes get the CPU first.
type CPUQOS struct {
	Enable        node.Maybe[bool]  `json:"enable,omitzero"`
	GroupIdentity node.Maybe[int64] `json:"groupIdentity,omitzero" range:"-1..2"`
	SchedIdle     node.Maybe[int64] `json:"schedIdle,omitzero" range:"0..1"`
	CoreExpeller  node.Maybe[bool]  `json:"coreExpeller,omitzero"`
}

// cpuQOS reports whether LS work gets the CPU before BE work. Either class may
// enable this, because it concerns both.
func (q QOS) cpuQOS() bool {
	return q.BEClass.CPU.Enable.Or(false) || q.LSClass.CPU.Enable.Or(false)
}

// isolation returns the configuration of the CPU isolation between LS and BE.
// lsrOff disables the isolation of LSR and LSE.
func (q QOS) isolation(lsrOff bool) isolation.Config {
	if !q.cpuQOS() {
		return isolation.Config{}
	}
	c := isolation.Config{
		Enable: true, Means: q.BEClass.CPU.yieldFeature(),
		Hold:            node.Some(time.Duration(valueOf(q.Policies.HoldMicroseconds)) * time.Microsecond),
		SlicesUnmanaged: !valueOf(q.Policies.LongSlices), NoTrials: !valueOf(q.Policies.Trials),
	}
	c.Mechanism, c.Measured = q.Policies.order()
	if n, given := q.Policies.HeadroomCores.Value(); given {
		c.Headroom = node.Some(int(n))
	}
	usual := defaults.QOS.classes()
	for i, class := range q.classes() {
		identity := class.CPU.identity(usual[i].CPU)
		if class.key == "lsrClass" && lsrOff {
			identity = node.IdentityNone
		}
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

// order returns the first mechanism to try, and whether the measured order (glossary) applies.
func (p Policies) order() (begin node.Mechanism, measured bool) {
	switch said, given := p.CPUIsolation.Value(); {
	case given && said == "strongest":
		return "", false
	case given && said != "auto" && said != "measured":
		return node.Mechanism(said), false
	case !given && valueOf(p.CPUPolicy) == "coreSched":
		return node.MechanismCoreSched, false
	}
	return "", true
}

// yieldFeature returns the kernel feature by which BE work gives way: the least
// weight if schedIdle is 0, cpu.idle if it is 1, and none if it is unset.
// Koordinator's default is 0 but selects no feature there, because another
// mechanism makes BE give way.
func (c CPUQOS) yieldFeature() node.Feature {
	idle, set := c.SchedIdle.Value()
	switch {
	case !set || !c.Enable.Or(false):
		return ""
	case idle == 0:
		return node.FeatureCPUWeight
	}
	return node.FeatureCPUIdle
}

// identity returns the group identity of a class as Tenon uses it. If coreExpeller is false,
// no mechanism keeps BE off the SMT siblings of this class.
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

// checkIdentities adds a fault for each class with an identity that lets BE run before LS.
func (c *checker) checkIdentities(q QOS) {
	for _, class := range q.classes() {
		field := "resource-qos-config." + class.key + ".cpuQOS.groupIdentity"
		if problem := wrongIdentity(class.key, class.CPU.GroupIdentity); problem != "" && !c.bad[field] {
			c.fault(field, problem)
		}
	}
}

// wrongIdentity returns why a class cannot have this identity, or "" if it can. class is its key.
func wrongIdentity(class string, identity node.Maybe[int64]) string {
	v, given := identity.Value()
	switch be := class == "beClass"; {
	case !given:
	case be && v > 0:
		return fmt.Sprintf("%d: want -1 or 0: BE must not go before other classes", v)
	case !be && v < 0:
		return fmt.Sprintf("%d: want a whole number from 0 to 2: only BE gives way", v)
	}
	return ""
}
