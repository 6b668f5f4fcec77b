package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"tenon.sh/tenon/internal/node"
)

// TestATurnThatAWaitWokeWidensNothing: whatever the rates of the time before
// say, best-effort work gets no more than it has while a service waits.
func TestATurnThatAWaitWokeWidensNothing(t *testing.T) {
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
				held++ // it would have grown
			}
			n.snap.Hurt = true
			n.decide(t)
			if has, _ := n.allowance(); has > had {
				t.Fatalf("%+v: BE may use %v, and %v when a service waits", n.config.Suppress, had, has)
			}
			if n.state.Growth > 0 {
				t.Fatalf("%v was saved up for growth", n.state.Growth)
			}
			n.snap.Hurt = false
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
	}
	if held < 50 {
		t.Errorf("only %d turns would have widened anything", held)
	}
}

// TestManyObjectivesCostOneHalving: what is given up for one is given up for
// all, and shows a window later.
func TestManyObjectivesCostOneHalving(t *testing.T) {
	missed := func(at time.Time, ids ...node.WorkloadID) strain {
		x := strain{Work: map[node.WorkloadID]fare{}}
		for _, id := range ids {
			x.Work[id] = fare{Missed: true, At: at, Reason: string(id)}
		}
		return x
	}
	at := time.Unix(100, 0)
	g := giving{}.follow(missed(at, "web"), at)
	for i, id := range []node.WorkloadID{"api", "db", "cache"} {
		at := at.Add(time.Duration(i+1) * 100 * time.Millisecond)
		g = g.follow(missed(at, id), at)
	}
	if g.Permille != 500 {
		t.Errorf("%d ‰ are given up for four objectives within one window, want 500", g.Permille)
	}
	if g = g.follow(missed(at.Add(leastWindow), "api"), at.Add(leastWindow)); g.Permille != 750 {
		t.Errorf("%d ‰ are given up after a second window, want 750", g.Permille)
	}
}

// TestAClockThatWasSetBackStopsNothing: what was saved under a later clock goes
// on as if it had been saved now.
func TestAClockThatWasSetBackStopsNothing(t *testing.T) {
	now, future := time.Unix(1000, 0), time.Unix(1e6, 0)
	g := giving{Permille: 500, At: future, Cut: future}.follow(strain{}, now)
	if g = g.follow(strain{}, now.Add(time.Second)); g.Permille != 480 {
		t.Errorf("%d ‰ are given up a second later, want 480", g.Permille)
	}

	x := strain{Work: map[node.WorkloadID]fare{"web": {Missed: true, At: now.Add(2 * squeezeAgain), Reason: "web waits"}}}
	q := squeeze{Cut: squeezeParts / 2, At: future}.follow(strain{}, node.Snapshot{At: now})
	if q = q.follow(x, node.Snapshot{At: now.Add(2 * squeezeAgain)}); q.Cut != squeezeParts*3/4 {
		t.Errorf("a miss after the clock was set back leaves the cut at %d", q.Cut)
	}

	w := node.Workload{ID: "web"}
	w.Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, testBuckets)}
	f := fare{Missed: true, At: future, Since: future, Delay: w.Usage.Delay}.observe(now, w, time.Millisecond, blamed{})
	if f.At.After(now) || f.At.Equal(now) {
		t.Errorf("the last miss is of %v, now it is %v", f.At, now)
	}
	for i := range 3 {
		f = f.observe(now.Add(time.Duration(i+1)*longestWindow), w, time.Millisecond, blamed{})
	}
	if f.Missed {
		t.Error("the objective counts as missed for ever")
	}
}
