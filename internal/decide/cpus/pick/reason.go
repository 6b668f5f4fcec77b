package pick

import (
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// whyNotOwn returns the reason why a claim for n own CPUs does not fit.
func (u *Summary) whyNotOwn(c *cpus.Request, n int32) cpus.Code {
	switch {
	case u.open < n:
		return cpus.TooFewOpen
	case u.spare < n:
		return cpus.LastOpen
	case u.largestRooms(0)[cpus.Machine] < n:
		return cpus.NeededShared
	case c.Bind == cpus.OnlyWhole && !u.fitsAny(n):
		return cpus.TooFewWhole
	case c.Bind == cpus.OnlySpread && u.largestRooms(1)[cpus.Machine] < n:
		return cpus.TooFewCores
	case c.Within > cpus.Machine:
		return cpus.TooFewNear
	}
	return cpus.TooManyNodes
}

// whyNotShared returns the reason why a claim for seats or a pool does not fit.
// The reason is other shared work only if a place has enough open CPUs, because
// without that work the claim would fit there.
func (u *Summary) whyNotShared(c *cpus.Request) cpus.Code {
	requested, near, few := cpus.SharedRequested, cpus.TooFewSharedNear, cpus.TooFewShared
	if c.Policy == cpus.Pool {
		requested, near, few = cpus.PoolRequested, cpus.TooFewPoolNear, cpus.TooFewPool
	}
	need := max(int32(min((c.CPU+999)/unit.CPUs(1), unit.MaxCPUs+1)), 1)
	if c.Policy == cpus.Shared {
		need = max(need, int32(min(c.CPUs, unit.MaxCPUs+1)))
	}
	for _, at := range u.seats[u.m.first[c.Within]:u.m.first[c.Within+1]] {
		if at.seats >= need {
			return requested
		}
	}
	if c.Within > cpus.Machine {
		return near
	}
	return few
}

// Keep returns the number of CPUs that stay open, whatever work there is.
func (s Seats) Keep() int { return int(s.keep) }
