package place

import (
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/pick"
)

// An Answer says whether a demand fits on a node. If it fits, the Answer holds
// the worth of the node, and otherwise the reason. An Answer has one byte, so
// that the answers of thousands of nodes are close to each other in memory. The
// zero Answer means that there is no answer.
type Answer uint8

const (
	fits    Answer = 1      // plus the worth, from 0 to 100
	refuses Answer = 1 << 7 // plus the index of the reason
)

// reasons lists all reasons why a node may refuse a pod. A test compares the
// list with the constants.
var reasons = [...]Reason{
	NoReport, Stale, OtherManager,
	pick.TooFew, pick.LastOpen, pick.NeededShared, pick.TooFewNear, pick.TooManyNodes, pick.NotWhole, pick.TooFewWhole, pick.TooFewCores,
	pick.TooFewSeats, pick.TooFewSeatsNear, pick.SeatsRequested, pick.TooFewPooled, pick.TooFewPooledNear, pick.PoolRequested,
	pick.NoDemand, NotHere,
}

// Reasons lists all reasons why a node does not take a pod.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

// Answer returns the result of Worth if the demand fits, and otherwise the
// result of Room. It does not allocate memory.
func (v *View) Answer(d *Demand) Answer {
	why := v.Room(d)
	if why == pick.Fits {
		return fits + Answer(v.Worth(d))
	}
	return refuses + Answer(max(slices.Index(reasons[:], why), 0))
}

// Fits reports whether the demand fits.
func (a Answer) Fits() bool { return a >= fits && a < refuses }

// Worth returns the worth of the node. The demand must fit.
func (a Answer) Worth() int64 { return int64(a - fits) }

// Reason returns the reason why the demand does not fit. If it fits, Reason
// returns Fits.
func (a Answer) Reason() Reason {
	if a < refuses {
		return pick.Fits
	}
	return reasons[a-refuses]
}
