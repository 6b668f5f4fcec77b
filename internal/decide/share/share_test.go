package share

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A division is a random cluster that is one node, with namespaces that want it. All
// pods of a namespace are alike, as those of a Job are.
type division struct {
	room   Amount
	before []Claim // what the namespaces had before
	after  []Claim
	pods   []Amount // what a pod of the namespace asks for
	wanted []int    // how many pods still wait in the end
	// last is the level of the namespace just before it took its last pod, or -1.
	last []float64
}

func newDivision(rnd *rand.Rand) *division {
	d := &division{room: Amount{unit.MilliCPU(rnd.IntN(200_000)), unit.Bytes(rnd.IntN(1<<20)) << 10}}
	for range 1 + rnd.IntN(6) {
		c := Claim{Terms: Terms{Weight: 1 + rnd.Int64N(5)}}
		if rnd.IntN(3) == 0 {
			c.CPU = node.Some(unit.MilliCPU(rnd.IntN(100_000)))
		}
		if rnd.IntN(3) == 0 {
			c.Memory = node.Some(unit.Bytes(rnd.IntN(1<<19)) << 10)
		}
		pod := Amount{unit.MilliCPU(rnd.IntN(4000)), unit.Bytes(rnd.IntN(1<<14)) << 10}
		switch rnd.IntN(8) {
		case 0:
			pod.CPU = 0
		case 1:
			pod.Memory = 0
		}
		if pod == (Amount{}) {
			pod.CPU = 1000
		}
		d.before = append(d.before, c)
		d.pods, d.wanted, d.last = append(d.pods, pod), append(d.wanted, rnd.IntN(200)), append(d.last, -1)
	}
	return d
}

func (d *division) used() Amount {
	var sum Amount
	for _, c := range d.after {
		sum = sum.Plus(c.Used)
	}
	return sum
}

// fits reports whether a further pod of the namespace fits.
func (d *division) fits(i int) bool {
	return d.wanted[i] > 0 && d.after[i].Allow(d.after[i].Used, d.pods[i]) && d.pods[i].FitsIn(d.room.Minus(d.used()))
}

func (d *division) divide() {
	d.after = append([]Claim(nil), d.before...)
	Fill(d.room, d.after, func(i int, c Claim) (Amount, bool) {
		if !d.fits(i) {
			return Amount{}, false
		}
		d.wanted[i]--
		d.last[i] = c.Level(d.room)
		return d.pods[i], true
	})
}

// TestADivisionIsFair divides random clusters. What the namespaces get together is at
// most the room, and each stays within its caps. Nothing fits any more in the end. A
// namespace that wants more, and that no cap holds, envies no other one by more than a
// pod: it has at least the level that the other one had before its last pod.
func TestADivisionIsFair(t *testing.T) {
	rnd := rand.New(rand.NewPCG(47, 1))
	compared, capped := 0, 0
	for round := range 5000 {
		d := newDivision(rnd)
		d.divide()
		if used := d.used(); used.CPU > d.room.CPU || used.Memory > d.room.Memory {
			t.Fatalf("round %d: %+v of %+v is used", round, used, d.room)
		}
		for i, c := range d.after {
			if c.Used.CPU > c.CPU.Or(c.Used.CPU) || c.Used.Memory > c.Memory.Or(c.Used.Memory) {
				t.Fatalf("round %d: namespace %d has %+v, more than its cap", round, i, c.Used)
			}
			if d.fits(i) {
				t.Fatalf("round %d: a pod of namespace %d waits while it fits", round, i)
			}
			if d.wanted[i] > 0 && !c.Allow(c.Used, d.pods[i]) {
				capped++
				continue
			}
			if d.wanted[i] == 0 {
				continue
			}
			for j := range d.after {
				// A pod of i may be larger than what is left while smaller ones of j still fit.
				if i == j || d.last[j] < 0 || !d.pods[i].FitsIn(d.pods[j]) {
					continue
				}
				compared++
				if own := c.Level(d.room); own < d.last[j] {
					t.Fatalf("round %d: namespace %d wants more at level %v, and %d took a pod at level %v", round, i, own, j, d.last[j])
				}
			}
		}
	}
	if compared < 500 || capped < 500 {
		t.Errorf("only %d pairs were compared, and %d namespaces had reached a cap", compared, capped)
	}
}

// TestTheWeightIsTheShare gives the whole room to two namespaces with the weights 1
// and 3, whose pods are small.
func TestTheWeightIsTheShare(t *testing.T) {
	room := Amount{40_000, 400 << 30}
	claims := []Claim{{Terms: Terms{Weight: 1}}, {Terms: Terms{Weight: 3}}}
	left := room
	pods := []Amount{{100, 1 << 28}, {100, 1 << 29}}
	Fill(room, claims, func(i int, _ Claim) (Amount, bool) {
		if !pods[i].FitsIn(left) {
			return Amount{}, false
		}
		left = left.Minus(pods[i])
		return pods[i], true
	})
	if a, b := claims[0].Used.CPU, claims[1].Used.CPU; a != 10_000 || b != 30_000 {
		t.Errorf("they have %v and %v", a, b)
	}
}

// TestALateNamespaceGoesFirst begins with a namespace that has most of the room
// already. The other one gets all of the rest.
func TestALateNamespaceGoesFirst(t *testing.T) {
	room := Amount{CPU: 10_000}
	claims := []Claim{{Terms: Terms{Weight: 1}, Used: Amount{CPU: 7000}}, {Terms: Terms{Weight: 1}}}
	left := unit.MilliCPU(3000)
	Fill(room, claims, func(int, Claim) (Amount, bool) {
		if left < 500 {
			return Amount{}, false
		}
		left -= 500
		return Amount{CPU: 500}, true
	})
	if claims[0].Used.CPU != 7000 || claims[1].Used.CPU != 3000 {
		t.Errorf("they have %v and %v", claims[0].Used.CPU, claims[1].Used.CPU)
	}
}

// TestACapOfZeroAdmitsNothing checks the difference between a cap of 0 and none.
func TestACapOfZeroAdmitsNothing(t *testing.T) {
	none, zero := Terms{Weight: 1}, Terms{Weight: 1, CPU: node.Some[unit.MilliCPU](0)}
	if !none.Allow(Amount{CPU: 1 << 40}, Amount{CPU: 1}) || zero.Allow(Amount{}, Amount{CPU: 1}) {
		t.Error("a cap of 0 counts as none, or none as 0")
	}
	if !zero.Allow(Amount{CPU: 5}, Amount{Memory: 1}) {
		t.Error("a pod without CPU exceeds a cap of CPU")
	}
}

// TestNamespacesTakeTurns orders things of three namespaces.
func TestNamespacesTakeTurns(t *testing.T) {
	all := []string{"a", "a", "b", "a", "c", "b", "a"}
	got := Turns(all, func(s string) string { return s })
	if want := []int{0, 2, 4, 1, 5, 3, 6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Turns(nil, func(s string) string { return s }); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}
