package pick

import "tenon.sh/tenon/internal/model/unit"

// A Reason says why a claim does not fit. It is empty if the claim fits.
type Reason string

// The reasons are constants without numbers. A scheduler counts the nodes with
// each reason, for a message and a metric, without allocating memory. Package
// shortage adds the numbers of one machine. Messages put the number of nodes
// before the reason: "3 no room for seats: ...".
//
// Claims with another level than NUMA (Claim.Within) get the reasons about NUMA
// nodes, too. Pods do not make such claims.
const (
	Fits     Reason = ""
	NoDemand Reason = "the demand is for no CPU"

	TooFew       Reason = "no room for own CPUs: too few are open"
	LastOpen     Reason = "no room for own CPUs: the last open ones stay open"
	NeededShared Reason = "no room for own CPUs: pods with seats or pools need the open ones"
	TooFewNear   Reason = "no room for own CPUs: no single NUMA node can give enough"
	TooManyNodes Reason = "no room for own CPUs: they would be on more NUMA nodes than they need"
	NotWhole     Reason = "no room for own CPUs: the number is not a number of whole cores"
	TooFewWhole  Reason = "no room for own CPUs: too few whole cores can be given"
	TooFewCores  Reason = "no room for own CPUs: too few cores can give a CPU"

	TooFewSeats     Reason = "no room for seats: too few CPUs are open"
	TooFewSeatsNear Reason = "no room for seats: too few CPUs of each NUMA node are open"
	SeatsRequested  Reason = "no room for seats: pods with seats or pools request the open CPUs"

	TooFewPooled     Reason = "no room for a pool: too few CPUs are open"
	TooFewPooledNear Reason = "no room for a pool: too few CPUs of each NUMA node are open"
	PoolRequested    Reason = "no room for a pool: pods with seats or pools request the open CPUs"
)

// whyNotOwn returns the reason why a claim for n own CPUs does not fit.
func (u *Summary) whyNotOwn(c *Claim, n int32) Reason {
	switch {
	case u.open < n:
		return TooFew
	case u.spare < n:
		return LastOpen
	case u.largestRooms(0)[Machine] < n:
		return NeededShared
	case c.Bind == OnlyWhole && !u.fitsAny(n):
		return TooFewWhole
	case c.Bind == OnlySpread && u.largestRooms(1)[Machine] < n:
		return TooFewCores
	case c.Within > Machine:
		return TooFewNear
	}
	return TooManyNodes
}

// whyNotShared returns the reason why a claim for seats or a pool does not fit.
// The reason is other shared work only if a place has enough open CPUs, because
// without that work the claim would fit there.
func (u *Summary) whyNotShared(c *Claim) Reason {
	requested, near, few := SeatsRequested, TooFewSeatsNear, TooFewSeats
	if c.Grade == Pooled {
		requested, near, few = PoolRequested, TooFewPooledNear, TooFewPooled
	}
	need := max(int32(min((c.Request+999)/unit.CPUs(1), unit.MaxCPUs+1)), 1)
	if c.Grade == Seated {
		need = max(need, int32(min(c.CPUs, unit.MaxCPUs+1)))
	}
	for _, at := range u.seats[u.m.firstPool[c.Within]:u.m.firstPool[c.Within+1]] {
		if at.seats >= need {
			return requested
		}
	}
	if c.Within > Machine {
		return near
	}
	return few
}

// Keep returns the number of CPUs that stay open, whatever work there is.
func (s Seats) Keep() int { return int(s.keep) }
