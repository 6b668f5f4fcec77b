package cache

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

func TestWaysOfAPart(t *testing.T) {
	for name, c := range map[string]struct {
		ways       ways
		start, end unit.Percent
		small      bool
		want       uint64
	}{
		"all":                             {ways{Mask: 0xfff}, 0, 100, false, 0xfff},
		"BE's 30 % of 20":                 {ways{Mask: 0xfffff}, 0, 30, true, 0x3f},
		"BE's 30 % of 11 is 3":            {ways{Mask: 0x7ff}, 0, 30, true, 0x7},
		"LS's 30 % of 11 is 4":            {ways{Mask: 0x7ff}, 0, 30, false, 0xf},
		"the upper half":                  {ways{Mask: 0xff}, 50, 100, true, 0xf0},
		"never nothing":                   {ways{Mask: 0x7}, 0, 1, true, 0x1},
		"never below the least":           {ways{Mask: 0xfffff, Least: 2}, 0, 5, true, 0x3},
		"at the end with the least":       {ways{Mask: 0xfffff, Least: 2}, 99, 100, true, 0xc0000},
		"a hole, neighbours wanted":       {ways{Mask: 0xf7}, 0, 100, true, 0xf0},
		"a hole, no matter":               {ways{Mask: 0xf7, Sparse: true}, 0, 100, true, 0xf7},
		"a hole within the part":          {ways{Mask: 0xf7, Sparse: true}, 0, 60, true, 0x17},
		"no ways":                         {ways{}, 0, 100, true, 0},
		"a part that ends where it began": {ways{Mask: 0xff}, 40, 40, true, 0x10},
		"all 64":                          {ways{Mask: 1<<64 - 1}, 0, 100, true, 1<<64 - 1},
	} {
		if got := c.ways.part(c.start, c.end, c.small); got != c.want {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
	}
}

// TestAnyPartIsOneThatTheKernelTakes checks, for random caches and percentages,
// that the kernel would accept each chosen part.
func TestAnyPartIsOneThatTheKernelTakes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		w := ways{Mask: rnd.Uint64() >> rnd.IntN(64), Least: rnd.IntN(4), Sparse: rnd.IntN(2) == 0}
		start := unit.Percent(rnd.IntN(130) - 10)
		end := start + unit.Percent(rnd.IntN(110))
		small := w.part(start, end, true)
		large := w.part(start, end, false)
		if w.Mask == 0 {
			continue
		}
		usable := len(w.usableWays())
		for _, mask := range []uint64{small, large} {
			n := bits.OnesCount64(mask)
			neighbours := mask>>bits.TrailingZeros64(mask) == 1<<n-1
			if mask&^w.Mask != 0 || n < min(max(w.Least, 1), usable) || !w.Sparse && !neighbours {
				t.Fatalf("%+v from %d to %d: %x", w, start, end, mask)
			}
		}
		asked := usable * int(min(end, 100)-min(max(start, 0), 100)) / 100
		if n := bits.OnesCount64(small); n > max(asked, w.Least, 1) {
			t.Fatalf("%+v from %d to %d: %x is more than requested", w, start, end, small)
		}
		if bits.OnesCount64(large) < bits.OnesCount64(small) {
			t.Fatalf("%+v from %d to %d: rounded up %x, down %x", w, start, end, large, small)
		}
	}
}
