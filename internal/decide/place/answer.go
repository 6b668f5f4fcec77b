package place

import (
	"slices"

	"tenon.sh/tenon/internal/decide/pick"
)

// An Answer is the answer of a node to a demand: its worth if it fits, or the
// reason why it does not. It has one byte, so that the answers of thousands of
// nodes are close to each other in memory. The zero Answer means that there is
// no answer.
type Answer uint8

const (
	fits    Answer = 1      // plus the worth, from 0 to 100
	refuses Answer = 1 << 7 // plus the index of the reason
)

// reasons lists all reasons of nodes. A test compares the list with the
// constants.
var reasons = [...]Reason{
	pick.TooFew, pick.NeededShared, pick.TooFewNear, pick.TooManyNodes, pick.NotWhole, pick.TooFewWhole, pick.TooFewCores, pick.NoRoomToShare, pick.NoDemand,
	NoReport, Stale, OtherManager, NotHere,
}

// Answer returns the result of Room and, for a demand that fits, of Worth. It
// does not allocate memory.
func (v *View) Answer(d *Demand) Answer {
	why := v.Room(d)
	if why == pick.Fits {
		return fits + Answer(v.Worth(d))
	}
	return refuses + Answer(max(slices.Index(reasons[:], why), 0))
}

// Fits reports whether the demand fits.
func (a Answer) Fits() bool { return a >= fits && a < refuses }

// Worth returns the worth of a demand that fits.
func (a Answer) Worth() int64 { return int64(a - fits) }

// Reason returns the reason why the demand does not fit, or Fits.
func (a Answer) Reason() Reason {
	if a < refuses {
		return pick.Fits
	}
	return reasons[a-refuses]
}
