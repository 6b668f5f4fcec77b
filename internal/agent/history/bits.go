package history

import "math/bits"

// A column of a minute is a list of small numbers: the difference of each row from
// its last value. They are Rice codes: the upper bits in unary, and the lower bits
// as they are. The number of lower bits follows from the past numbers of the same
// row, which the reader knows, too.
// (R. F. Rice, Some practical universal noiseless coding techniques, JPL 1979.)

const (
	// manyUpper is the number of ones that says that the length of the number
	// follows, in lengthBits, and then the number.
	manyUpper  = 12
	lengthBits = 6
)

// A mean is the mean of the past numbers of a row in a column, times 16. It
// forgets them slowly.
type mean uint32

// firstMean is the mean of a row without a past.
const firstMean mean = 8 << 4

// width returns the number of lower bits of the next number.
func (m mean) width() int { return max(bits.Len32(uint32(m>>4))-1, 0) }

func (m mean) and(v uint64) mean { return m - m>>4 + mean(min(v, 1<<24)) }

type bitWriter struct {
	bytes []byte
	free  int // bits of the last byte that are not used
}

// put appends the n lowest bits of v, the highest of them first.
func (w *bitWriter) put(v uint64, n int) {
	for n > 0 {
		if w.free == 0 {
			w.bytes, w.free = append(w.bytes, 0), 8
		}
		take := min(n, w.free)
		part := v >> (n - take) & (1<<take - 1)
		w.bytes[len(w.bytes)-1] |= byte(part << (w.free - take))
		n, w.free = n-take, w.free-take
	}
}

func (w *bitWriter) bit(b bool) {
	if b {
		w.put(1, 1)
	} else {
		w.put(0, 1)
	}
}

func (w *bitWriter) rice(v uint64, width int) {
	upper := v >> width
	if upper >= manyUpper {
		n := bits.Len64(v)
		w.put(1<<manyUpper-1, manyUpper)
		w.put(uint64(n-1), lengthBits)
		w.put(v, n)
		return
	}
	w.put(1<<(upper+1)-2, int(upper)+1) // ones, and a zero
	w.put(v, width)
}

// numbers appends a column. means has the mean of each number.
func (w *bitWriter) numbers(all []uint64, means []*mean) {
	if allZero(all) {
		w.put(0, 1)
		return
	}
	w.put(1, 1)
	for i, v := range all {
		w.rice(v, means[i].width())
		*means[i] = means[i].and(v)
	}
}

func allZero(all []uint64) bool {
	for _, v := range all {
		if v != 0 {
			return false
		}
	}
	return true
}

// A bitReader reads what a bitWriter wrote. After the end it returns zeros, and
// failed is true.
type bitReader struct {
	bytes  []byte
	held   uint64 // the next bits, from the highest on
	n      int    // their number
	failed bool
}

// fill makes at least 56 bits ready, or all that are left.
func (r *bitReader) fill() {
	for r.n <= 56 && len(r.bytes) > 0 {
		r.held |= uint64(r.bytes[0]) << (56 - r.n)
		r.bytes, r.n = r.bytes[1:], r.n+8
	}
}

// get reads up to 56 bits.
func (r *bitReader) get(n int) uint64 {
	if n == 0 {
		return 0
	}
	if r.n < n {
		if r.fill(); r.n < n {
			r.failed = true
			return 0
		}
	}
	v := r.held >> (64 - n)
	r.held, r.n = r.held<<n, r.n-n
	return v
}

func (r *bitReader) rice(width int) uint64 {
	if r.n < 40 {
		r.fill()
	}
	upper := min(bits.LeadingZeros64(^r.held), manyUpper)
	if upper < manyUpper {
		r.get(upper + 1)
		return uint64(upper)<<width | r.get(width)
	}
	r.get(manyUpper)
	n := int(r.get(lengthBits)) + 1
	high := r.get(max(n-32, 0))
	return high<<32 | r.get(min(n, 32))
}

// zigzag makes small numbers of small differences of both signs.
func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
