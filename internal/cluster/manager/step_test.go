package manager

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAStepOfLoadIsPublishedSoon simulates steps of load. They begin at different
// times between two ticks of the agent, and the time between two ticks varies by
// a fiftieth. At each tick the agent may report, and the manager may write. The
// status of the node must have half of the fall within two and a half seconds,
// and nine tenths of it within three.
func TestAStepOfLoadIsPublishedSoon(t *testing.T) {
	const steps = 50
	var parts [3][]time.Duration // the first part of the fall, half of it, nine tenths
	writes := 0
	for i := range steps {
		before := time.Second * time.Duration(2*i+1) / (2 * steps) // from the last tick to the step
		all, wrote := runAStep(t, uint64(i), before)
		for k := range parts {
			parts[k] = append(parts[k], all[k])
		}
		writes += wrote
	}
	for k := range parts {
		slices.Sort(parts[k])
	}
	t.Logf("the fall begins after %v (median; at most %v), half of it after %v (%v), nine tenths after %v (%v), %.2f writes a step",
		parts[0][steps/2], parts[0][steps-1], parts[1][steps/2], parts[1][steps-1], parts[2][steps/2], parts[2][steps-1], float64(writes)/steps)
	if worst := parts[1][steps-1]; worst > 2600*time.Millisecond {
		t.Errorf("half of a fall was published after %v", worst)
	}
	if worst := parts[2][steps-1]; worst > 3060*time.Millisecond {
		t.Errorf("nine tenths of a fall were published after %v", worst)
	}
}

// runAStep returns the times from the begin of a step of load until the amounts of
// the node have a hundredth, half and nine tenths of the fall, and the number of
// writes.
func runAStep(t *testing.T, seed uint64, before time.Duration) (parts [3]time.Duration, writes int) {
	t.Helper()
	const idle, step = unit.MilliCPU(500), unit.MilliCPU(4000)
	rnd := rand.New(rand.NewPCG(52, seed))
	c := colocationDefaults()
	c.Window, c.Look = 5*time.Minute, time.Minute
	s := newSimulated(16, 64*gib, c)
	s.work = []job{{class: node.LS, asked: 4000, used: idle, wants: gib, has: gib}}
	n := s.node(0, 0)
	var m Memory
	var given Sighting
	tick := func(every time.Duration) {
		s.pass(every)
		if status := s.report(); s.pace.Due(s.snap.At, status) {
			s.pace.Sent(s.snap.At, status)
			given = Sighting{Batch: status.Batch.DeepCopy(), Seen: s.snap.At, Fresh: true}
		}
		now := Case{At: s.snap.At, Rules: c, Node: factsOf(n), Report: given, Memory: m}
		v := Decide(now)
		if m = v.Memory; v.Write {
			m.wrote(now, v)
			giveBatch(n, v.Want[cpu].Or(0), v.Want[memory].Or(0))
			writes++
		}
	}
	every := func() time.Duration { return time.Second + time.Duration(rnd.IntN(41)-20)*time.Millisecond }
	for range 400 {
		tick(every())
	}
	full, begun := factsOf(n).Present[cpu].Or(0), s.snap.At.Add(before)
	writes = 0
	var at []time.Duration
	var is []int64
	for range 20 {
		next := every()
		s.work[0].used = idle + step*unit.MilliCPU(min(next, max(0, s.snap.At.Add(next).Sub(begun))))/unit.MilliCPU(next)
		tick(next)
		at, is = append(at, s.snap.At.Sub(begun)), append(is, factsOf(n).Present[cpu].Or(0))
	}
	fall := full - is[len(is)-1]
	if fall < int64(step)*9/10 {
		t.Fatalf("batch-cpu fell from %d by %d", full, fall)
	}
	for k, percent := range []int64{1, 50, 90} {
		parts[k] = at[slices.IndexFunc(is, func(v int64) bool { return v <= full-fall*percent/100 })]
	}
	return parts, writes
}
