// Package share decides whose turn it is among namespaces that want the batch
// resources of a cluster: weighted max-min fairness of the dominant share, within
// caps (Ghodsi et al., Dominant Resource Fairness, NSDI 2011). It takes nothing back,
// and leaves nothing free that a namespace can use.
package share

import (
	"cmp"
	"math"
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// An Amount is an amount of both batch resources.
type Amount struct {
	CPU    unit.MilliCPU
	Memory unit.Bytes
}

// Plus returns the sum of a and b.
func (a Amount) Plus(b Amount) Amount { return Amount{a.CPU + b.CPU, a.Memory + b.Memory} }

// Minus returns a without b.
func (a Amount) Minus(b Amount) Amount { return Amount{a.CPU - b.CPU, a.Memory - b.Memory} }

// FitsIn reports whether free covers a. An amount of 0 fits everywhere, as for a
// scheduler.
func (a Amount) FitsIn(free Amount) bool {
	return (a.CPU <= 0 || a.CPU <= free.CPU) && (a.Memory <= 0 || a.Memory <= free.Memory)
}

// DefaultWeight is the weight of a namespace for which none is stated.
const DefaultWeight = 1

// Terms are what an administrator states for a namespace.
type Terms struct {
	// Weight is at least 1. A namespace with twice the weight gets twice as much.
	Weight int64
	// CPU and Memory are the most that the pods of the namespace may request
	// together. An absent cap is none.
	CPU    node.Maybe[unit.MilliCPU]
	Memory node.Maybe[unit.Bytes]
}

// Capped reports whether there is a cap.
func (t Terms) Capped() bool { return t.CPU.Known() || t.Memory.Known() }

// Allow reports whether a namespace that has used may have more. A pod that asks for
// none of a resource does not exceed its cap.
func (t Terms) Allow(used, more Amount) bool {
	cpu, memory := unit.MilliCPU(math.MaxInt64), unit.Bytes(math.MaxInt64)
	return more.FitsIn(Amount{t.CPU.Or(cpu) - used.CPU, t.Memory.Or(memory) - used.Memory})
}

// A Claim is what a namespace has, and on which terms.
type Claim struct {
	Terms
	Used Amount
}

// Level returns the larger of the two parts of room that a claim uses, divided by its
// weight. The namespace with the lowest level is next.
func (c Claim) Level(room Amount) float64 {
	cpu := part(float64(c.Used.CPU), float64(room.CPU))
	memory := part(float64(c.Used.Memory), float64(room.Memory))
	return max(cpu, memory) / float64(max(c.Weight, 1))
}

func part(used, of float64) float64 {
	switch {
	case used <= 0:
		return 0
	case of <= 0:
		return math.Inf(1)
	}
	return used / of
}

// Fill asks one namespace after the other to take something of a cluster with this
// room, the one with the lowest level first, and of equal ones the first. take says
// what the namespace i takes, or false if it can take nothing more. Fill adds what was
// taken to the claims, and ends when no namespace takes anything.
func Fill(room Amount, claims []Claim, take func(i int, c Claim) (Amount, bool)) {
	asking := make([]int, len(claims))
	for i := range asking {
		asking[i] = i
	}
	for len(asking) > 0 {
		at := 0
		for k, i := range asking {
			if claims[i].Level(room) < claims[asking[at]].Level(room) {
				at = k
			}
		}
		i := asking[at]
		got, took := take(i, claims[i])
		if !took {
			asking = slices.Delete(asking, at, at+1)
			continue
		}
		claims[i].Used = claims[i].Used.Plus(got)
	}
}

// Turns returns the indices of all in an order in which the namespaces take turns: the
// first of each namespace, then the second of each, and so on. Within a turn, and within a
// namespace, the order is that of all. So a namespace with many things leaves to each other
// one its part of a list that is cut.
func Turns[T any](all []T, namespace func(T) string) []int {
	turn, next, order := make([]int, len(all)), map[string]int{}, make([]int, len(all))
	for i, one := range all {
		of := namespace(one)
		turn[i], order[i] = next[of], i
		next[of]++
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(turn[i], turn[j]) })
	return order
}
