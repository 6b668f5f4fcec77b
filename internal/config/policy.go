package config

import (
	"tenon.sh/tenon/internal/decide/cpus/seat"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/reclaim"
)

// Policy returns the configuration of the policies.
func (s Strategies) Policy() policy.Config {
	// Without settings for LSR, the defaults apply. If cpuQOS of LSR is explicitly disabled, BE
	// may run on all siblings of LSR's CPUs, as in Koordinator.
	lsrOff := !s.QOS.LSRClass.CPU.Enable.Or(true)
	s = s.withDefaults()
	return policy.Config{
		NodeCPUs:   facts.NodeCPUs{LendLSR: s.Threshold.lendsLSR()},
		CPUQOS:     s.QOS.isolation(lsrOff),
		Suppress:   s.Threshold.suppress(),
		Burst:      s.Burst.burst(),
		Memory:     s.QOS.memory(),
		Reclaim:    reclaim.Config{FreePercent: valueOf(s.QOS.Policies.ReclaimFree)},
		IO:         s.QOS.io(),
		Cache:      s.QOS.cache(),
		Overcommit: s.Colocation.overcommit(),
		Evict:      s.Threshold.evict(),
		Seats:      seat.Config{Enable: valueOf(s.QOS.Policies.LimitSeats)},
	}
}
