package policy

import (
	"math/rand/v2"
	"testing"
)

// TestATickThatAWaitWokeWidensNothing checks that BE work gets no more CPU
// while a service waits, even if the rates before the wait would allow more.
func TestATickThatAWaitWokeWidensNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(61, 62))
	held := 0
	for range 100 {
		n := anyScene(rnd, 104, 2)
		for range 3 {
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
		for range 4 {
			had, _ := n.allowance()
			p := n.anySpell(rnd)
			n.pass(p)
			if st, _ := Decide(n.config, n.state, n.snap); st.Growth < n.state.Growth {
				held++ // BE would have grown
			}
			n.snap.SLOViolated = true
			n.decide(t)
			if has, _ := n.allowance(); has > had {
				t.Fatalf("%+v: BE may use %v, and %v when a service waits", n.config.Suppress, had, has)
			}
			if n.state.Growth > 0 {
				t.Fatalf("%v was saved up for growth", n.state.Growth)
			}
			n.snap.SLOViolated = false
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
	}
	if held < 50 {
		t.Errorf("only %d ticks would have widened anything", held)
	}
}
