package place

import (
	"slices"

	"tenon.sh/tenon/internal/decide/pick"
)

// An Answer is what a node says to a demand, in one byte, so that the answers of
// thousands of nodes are near each other in memory: the worth of a demand that
// fits, or the reason why it does not. The zero Answer is none.
type Answer uint8

const (
	fits    Answer = 1      // plus the worth, from 0 to 100
	refuses Answer = 1 << 7 // plus the index of the reason
)

// reasons are all that a node may give. A test compares them with the constants.
var reasons = [...]Reason{
	pick.TooFew, pick.NeededShared, pick.TooFewNear, pick.TooManyNodes, pick.NotWhole, pick.TooFewWhole, pick.TooFewCores, pick.NoRoomToShare, pick.NoDemand,
	NoReport, Stale, OtherManager, NotHere,
}

// Answer returns what Room, and for a demand that fits Worth, say of the node. It
// does not allocate.
func (v *View) Answer(d *Demand) Answer {
	why := v.Room(d)
	if why == pick.Fits {
		return fits + Answer(v.Worth(d))
	}
	return refuses + Answer(max(slices.Index(reasons[:], why), 0))
}

// Fits reports whether the demand fits.
func (a Answer) Fits() bool { return a >= fits && a < refuses }

// Worth is the worth of a demand that fits.
func (a Answer) Worth() int64 { return int64(a - fits) }

// Reason is Fits for a demand that fits.
func (a Answer) Reason() Reason {
	if a < refuses {
		return pick.Fits
	}
	return reasons[a-refuses]
}
