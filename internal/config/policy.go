package config

import (
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/policy"
)

// Policy returns what the policies of this version are to do.
func (s Strategies) Policy() policy.Config {
	s = s.orDefaults()
	return policy.Config{
		CPUQOS: policy.CPUQOS{Enable: s.QOS.cpuQOS(), Means: s.QOS.BEClass.CPU.means()},
		Suppress: policy.Suppress{
			Enable:           valueOf(s.Threshold.Enable),
			ThresholdPercent: valueOf(s.Threshold.CPUSuppressThresholdPercent),
			MinPercent:       valueOf(s.Threshold.CPUSuppressMinPercent),
			Policy:           policy.SuppressPolicy(valueOf(s.Threshold.CPUSuppressPolicy)),
			LendLSR:          s.Threshold.lendsLSR(),
		},
		Burst:      s.Burst.burst(),
		Memory:     s.QOS.memory(),
		IO:         s.QOS.io(),
		Cache:      s.QOS.cache(),
		Overcommit: s.Colocation.overcommit(s.Threshold.lendsLSR()),
		Evict:      s.Threshold.evict(),
	}
}

// cpuQOS reports whether latency-sensitive work gets the CPU first. That is one
// relation between two classes, so either of them may ask for it: BE by giving
// way, LS by going first.
func (q QOS) cpuQOS() bool {
	return q.BEClass.CPU.Enable.Or(false) || q.LSClass.CPU.Enable.Or(false)
}

// means returns what BE is told to give way by, if it is told anything. The
// default of Koordinator is 0, because there another means does the work; here
// that would be the weaker one, so a key that is not set chooses neither.
func (c CPUQOS) means() node.Mechanism {
	idle, set := c.SchedIdle.Value()
	switch {
	case !set || !c.Enable.Or(false):
		return ""
	case idle == 0:
		return node.MechCPUWeight
	}
	return node.MechCPUIdle
}

// memory returns the shares of the classes whose memoryQOS is enabled and asks
// for any. LSE has the shares of LSR.
func (q QOS) memory() policy.MemoryQOS {
	var m policy.MemoryQOS
	for _, class := range q.classes() {
		shares := policy.MemoryShares{
			MinPercent:        valueOf(class.Memory.MinLimitPercent),
			LowPercent:        valueOf(class.Memory.LowLimitPercent),
			ThrottlingPercent: valueOf(class.Memory.ThrottlingPercent),
		}
		if !class.Memory.Enable.Or(false) || shares == (policy.MemoryShares{}) {
			continue
		}
		if m.Classes == nil {
			m.Classes = map[node.Class]policy.MemoryShares{}
		}
		for _, name := range class.names {
			m.Classes[name] = shares
		}
	}
	return m
}
