package grow

import (
	"time"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A growth is a cache into which a pool may grow in this tick. Only one pool
// grows in a tick, so that the next tick sees the effect.
type growth struct {
	pool node.WorkloadID // empty: no pool may grow
	room unit.CPUSet
	has  unit.CPUSet // the CPUs of the pool now
	// The pool whose workload uses the most of its CPUs (in per mille) grows
	// first. Of equal ones it is the pool that has been full for the longest
	// time.
	uses int64
	full time.Time
}

// growthOf returns the growth of a pool into room, or none if room is empty.
func (x *decision) growthOf(id node.WorkloadID, h cpus.Allocation, p Pool, room unit.CPUSet) growth {
	if room.Empty() {
		return growth{}
	}
	has := h.CPUs.Union(p.More)
	return growth{pool: id, room: room, has: has, uses: int64(p.Own) / int64(max(has.Len(), 1)), full: p.Full}
}

// before reports whether a pool grows before another one. No growth comes last.
func (a growth) before(b growth) bool {
	switch {
	case a.pool == "" || b.pool == "":
		return a.pool != ""
	case a.uses != b.uses:
		return a.uses > b.uses
	}
	return a.full.Before(b.full)
}

// grow returns the pool with one more cache.
func (p Pool) grow(g growth) Pool {
	load, _ := p.Load.Value()
	p.Last = []cpus.Growth{{
		Code: cpus.GrowthFull, CPUs: g.room, Percent: percentOf(p.Beside[lowest(g.room)].Use, g.room), For: quietFor, Full: percentOf(load, g.has), FullFor: fullFor,
	}}
	p.More = p.More.Union(g.room)
	return p.anew()
}
