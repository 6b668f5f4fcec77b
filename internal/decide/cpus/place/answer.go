package place

import "tenon.sh/tenon/internal/model/cpus"

// An Answer says whether a request fits on a node. If it fits, the Answer holds
// the worth of the node, and otherwise the code. An Answer has one byte, so that
// the answers of thousands of nodes are close to each other in memory. The zero
// Answer means that there is no answer.
type Answer uint8

const (
	fits    Answer = 1      // plus the worth, from 0 to 100
	refuses Answer = 1 << 7 // plus the code
)

// Answer returns the result of Worth if the request fits, and otherwise the
// result of Room. It does not allocate memory.
func (v *View) Answer(r *cpus.PodRequest) Answer {
	why := v.Room(r)
	if why == cpus.Fits {
		return fits + Answer(v.Worth(r))
	}
	return refuses + Answer(why)
}

// Fits reports whether the request fits.
func (a Answer) Fits() bool { return a >= fits && a < refuses }

// Worth returns the worth of the node. The request must fit.
func (a Answer) Worth() int64 { return int64(a - fits) }

// Code returns the code that says why the request does not fit. If it fits, Code
// returns Fits.
func (a Answer) Code() cpus.Code {
	if a < refuses {
		return cpus.Fits
	}
	return cpus.Code(a - refuses)
}
