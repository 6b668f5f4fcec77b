package config

import (
	"tenon.sh/tenon/internal/decide/cpus/seat"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
)

// Policy returns the configuration of the policies.
func (s Strategies) Policy() policy.Config {
	// Without settings for LSR, the defaults apply. If cpuQOS of LSR is explicitly disabled, BE
	// may run on all siblings of LSR's CPUs, as in Koordinator.
	lsrOff := !s.QOS.LSRClass.CPU.Enable.Or(true)
	s = s.withDefaults()
	return policy.Config{
		Pool:   facts.Pool{LendLSR: s.Threshold.lendsLSR()},
		CPUQOS: s.QOS.isolation(lsrOff),
		Suppress: suppress.Config{
			Enable:           valueOf(s.Threshold.Enable),
			ThresholdPercent: valueOf(s.Threshold.CPUSuppressThresholdPercent),
			MinPercent:       valueOf(s.Threshold.CPUSuppressMinPercent),
			Policy:           suppress.Policy(valueOf(s.Threshold.CPUSuppressPolicy)),
		},
		Burst:      s.Burst.burst(),
		Memory:     s.QOS.memory(),
		IO:         s.QOS.io(),
		Cache:      s.QOS.cache(),
		Overcommit: s.Colocation.overcommit(),
		Evict:      s.Threshold.evict(),
		Seats:      seat.Config{Enable: valueOf(s.QOS.Policies.LimitSeats)},
	}
}

// memory returns the memory shares of the classes whose memoryQOS has a value. The shares of a
// class with a disabled memoryQOS are in Off. LSE has the same shares as LSR.
func (q QOS) memory() memory.Config {
	var m memory.Config
	for _, class := range q.classes() {
		shares := memory.Shares{
			MinPercent:        valueOf(class.Memory.MinLimitPercent),
			LowPercent:        valueOf(class.Memory.LowLimitPercent),
			ThrottlingPercent: valueOf(class.Memory.ThrottlingPercent),
		}
		if shares == (memory.Shares{}) {
			continue
		}
		to := &m.Off
		if class.Memory.Enable.Or(false) {
			to = &m.Classes
		}
		if *to == nil {
			*to = map[node.Class]memory.Shares{}
		}
		for _, name := range class.names {
			(*to)[name] = shares
		}
	}
	return m
}
