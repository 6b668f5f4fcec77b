package pick

import (
	"math/bits"

	"tenon.sh/tenon/internal/model/unit"
)

// A mask is a set of CPUs of one Map: one bit for each position.
type mask []uint64

func (m *Map) mask() mask { return make(mask, m.words) }

// maskOf returns the positions of the online CPUs of a set.
func (m *Map) maskOf(set unit.CPUSet) mask {
	b := m.mask()
	for c := range set.All() {
		if i := m.position(c); i >= 0 {
			b.set(i)
		}
	}
	return b
}

// cpusOf returns the CPUs at the positions of a mask.
func (m *Map) cpusOf(b mask) unit.CPUSet {
	var set unit.CPUSet
	for w, word := range b {
		for ; word != 0; word &= word - 1 {
			set.Add(m.cpus[w*64+bits.TrailingZeros64(word)].ID)
		}
	}
	return set
}

func (b mask) set(i int32)      { b[i/64] |= 1 << (i % 64) }
func (b mask) clear(i int32)    { b[i/64] &^= 1 << (i % 64) }
func (b mask) has(i int32) bool { return b[i/64]&(1<<(i%64)) != 0 }

// count returns the number of positions from lo to hi−1 that are in b.
func (b mask) count(lo, hi int32) int32 {
	n := 0
	for w := lo / 64; w*64 < hi; w++ {
		word := b[w]
		if w == lo/64 {
			word &= ^uint64(0) << (lo % 64)
		}
		if end := hi - w*64; end < 64 {
			word &= 1<<end - 1
		}
		n += bits.OnesCount64(word)
	}
	return int32(n)
}
