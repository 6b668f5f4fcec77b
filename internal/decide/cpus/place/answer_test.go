package place

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// anyDemand returns a random demand. It may be one that no node can meet.
func anyDemand(rnd *rand.Rand) cpus.PodRequest {
	d := cpus.PodRequest{Request: cpus.Request{
		Policy: cpus.Policy(1 + rnd.IntN(3)), CPUs: rnd.IntN(12), Bind: cpus.Bind(rnd.IntN(5)), Within: cpus.Level(rnd.IntN(4)), Fewest: rnd.IntN(4) == 0,
	}}
	if d.Policy != cpus.Exclusive {
		d.CPU = unit.MilliCPU(rnd.IntN(9000))
	}
	return d
}

// TestAnAnswerIsRoomAndWorth adds and removes pods. It compares Answer with
// Room and Worth of the node.
func TestAnAnswerIsRoomAndWorth(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	fitted, refused := 0, map[cpus.Code]int{}
	for range 200 {
		l := New()
		if rnd.IntN(20) > 0 {
			l.Learn("n", Report{Topology: machine(1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(2)), Keep: rnd.IntN(3)})
		}
		if rnd.IntN(20) == 0 {
			l.CloseNode("n", []cpus.Code{cpus.Stale, cpus.OtherManager}[rnd.IntN(2)])
		}
		for i := range 40 {
			if rnd.IntN(3) == 0 {
				l.Forget(UID(fmt.Sprint(rnd.IntN(i + 1))))
			} else {
				l.Assume(Pod{UID(fmt.Sprint(i)), anyDemand(rnd)}, "n")
			}
			v, d := l.View("n"), anyDemand(rnd)
			a, why := v.Answer(&d), v.Room(&d)
			if a == 0 || a.Fits() != (why == cpus.Fits) || a.Code() != why {
				t.Fatalf("%+v: %q, and the answer %d says %q", d, why, a, a.Code())
			}
			if why != cpus.Fits {
				refused[why]++
				continue
			}
			fitted++
			if a.Worth() != v.Worth(&d) {
				t.Fatalf("%+v: worth %d, and the answer says %d", d, v.Worth(&d), a.Worth())
			}
		}
	}
	if fitted < 1000 || len(refused) < 9 {
		t.Errorf("too few cases: %d fit, refused %v", fitted, refused)
	}
}
