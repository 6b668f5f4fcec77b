package overcommit

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Sums are what the formula takes of a node and of one resource. Whoever has only sums
// of the past of a node, and no workloads, asks the formula with them.
type Sums[T unit.MilliCPU | unit.Bytes] struct {
	Capacity T
	Reserved T // set aside for the node's own work
	System   T // used by the node's own work
	Others   T // of the work of all other classes, as Counted counts it
	// Unneeded means that other work requests less than MinServicePercent.
	Unneeded bool
}

// An Amount is the result of the formula, by its terms. Value is their sum.
type Amount[T unit.MilliCPU | unit.Bytes] struct {
	Capacity T // the share of the capacity that all classes together may use
	Node     T // the node's own work, negative
	Others   T // the other classes, negative
	Limit    T // what is above LimitPercent, negative
	Unneeded T // what an unneeded node does not offer, negative
	Floor    T // what brings a negative sum to 0
	// ByReservation says that Node is the reservation and not the use.
	ByReservation bool
}

// Value returns what batch work may request. It is at least 0.
func (a Amount[T]) Value() T {
	return a.Capacity + a.Node + a.Others + a.Limit + a.Unneeded + a.Floor
}

// AmountOf computes the formula:
//
//	capacity × threshold − max(use of the system, reservation) − amount of the others
//
// It is at most LimitPercent of the capacity and at least 0. This is Koordinator's
// formula: pkg/slo-controller/noderesource/plugins/batchresource.
func AmountOf[T unit.MilliCPU | unit.Bytes](r Reclaim, s Sums[T]) Amount[T] {
	a := Amount[T]{Capacity: portion(s.Capacity, r.ThresholdPercent), Node: -s.System, Others: -s.Others}
	if a.ByReservation = r.Policy == ByRequest || s.Reserved > s.System; a.ByReservation {
		a.Node = -s.Reserved
	}
	sum := a.Value()
	if p, limited := r.LimitPercent.Value(); limited {
		if most := portion(s.Capacity, p); sum > most {
			a.Limit, sum = most-sum, most
		}
	}
	if s.Unneeded && sum > 0 {
		a.Unneeded, sum = -sum, 0
	}
	a.Floor = -min(sum, 0)
	return a
}

// Counted returns what one workload counts in the formula. used and asked are its use
// and its request. If neither is known, Counted returns 0 and false.
func Counted[T unit.MilliCPU | unit.Bytes](p ReclaimPolicy, used, asked node.Maybe[T]) (T, bool) {
	u, seen := used.Value()
	r, has := asked.Value()
	switch {
	case has && p == ByRequest:
		return r, true
	case has && (p != ByUsage || !seen):
		// A request is no limit. The usage of work that uses more than it requests counts.
		return max(u, r), true
	}
	return u, seen
}

// Unneeded reports whether other work that requests cpu and memory is less than
// MinServicePercent of both.
func (c Config) Unneeded(cpu, ofCPU unit.MilliCPU, memory, ofMemory unit.Bytes) bool {
	return c.MinServicePercent > 0 && cpu < portion(ofCPU, c.MinServicePercent) && memory < portion(ofMemory, c.MinServicePercent)
}
