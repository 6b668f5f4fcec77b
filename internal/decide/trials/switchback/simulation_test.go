package switchback

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

// A world is a simulated node whose services wait by a random law. The
// logarithm of the waiting in an epoch has noise. sd is the standard deviation
// of the difference between the two epochs of a pair.
type world struct {
	sd float64
	// In badShare of all epochs, all services wait e² times as long, with either
	// mechanism.
	badShare float64
	// In worseShare of the epochs with the candidate, all services wait e²
	// times as long.
	worseShare float64
	// heavy says that the noise has the tails of Student's t with 3 degrees of
	// freedom.
	heavy    bool
	services []simulatedService
	// After turn pairs, the effects have the opposite sign. 0 means never.
	turn int
	// An objective is missed when a service waits limit times its usual time in
	// an epoch. 0 means that there is no objective.
	limit float64
	tick  time.Duration // 0: simTick
}

// A simulatedService has a number of waits per second (rate) of a mean length
// (mean). With the candidate each wait is longer by a factor (effect).
type simulatedService struct {
	rate, mean, effect float64
}

// An outcome is the result of one simulated round with one candidate.
type outcome struct {
	kept    bool
	finding trial.Finding
	pairs   int
	// cost is the additional waiting of the most delayed service, as a fraction of
	// the time that it would wait until the next round without the candidate.
	cost float64
}

// simTick is longer than the usual period of the agent, so that there are fewer
// ticks to simulate.
const simTick = 2500 * time.Millisecond

func (w world) run(rnd *rand.Rand) outcome {
	at := time.Unix(1000, rnd.Int64N(1e9))
	counts := map[string]Count{}
	added := make([]float64, len(w.services))
	in := Input{Candidates: []node.Mechanism{node.MechanismIdle}, BE: true, InForce: true}
	var st State
	var asked time.Time
	factor := make([]float64, len(w.services))
	tick := max(w.tick, time.Second)
	if w.tick == 0 {
		tick = simTick
	}
	for range 100000 {
		with := st.Use() != ""
		if now := st.Trial.Asked; now != asked || now.IsZero() {
			asked = now
			w.draw(rnd, factor, with)
		}
		next := make(map[string]Count, len(counts))
		in.Missed = ""
		for i, s := range w.services {
			name := fmt.Sprintf("web-%c", 'a'+i)
			effect := 1.0
			if with {
				effect = s.effect
				if w.turn > 0 && len(st.Trial.Logs) >= w.turn {
					effect = 1 / effect
				}
			}
			n := s.rate * tick.Seconds()
			waited := n * s.mean * factor[i]
			added[i] += waited * (effect - 1)
			if w.limit > 0 && factor[i]*effect > w.limit {
				in.Missed = name + " waits"
			}
			next[name] = Count{Waits: counts[name].Waits + int64(n), Waited: counts[name].Waited + time.Duration(waited*effect)}
		}
		at = at.Add(tick)
		counts, in.At, in.Workloads = next, at, next
		if st = st.Follow(in); len(st.Results) > 0 {
			break
		}
	}
	r := st.Results[0]
	o := outcome{kept: st.Kept != "", finding: r.Finding, pairs: r.Pairs, cost: math.Inf(-1)}
	for i, s := range w.services {
		o.cost = max(o.cost, added[i]/(s.rate*s.mean*w.usualFactor()*roundInterval.Seconds()))
	}
	return o
}

// usualFactor returns the mean of the factors that draw draws for an epoch without
// the candidate. The mean of exp(z) with the standard deviation s of z is
// exp(s²/2). With heavy tails there is no such mean, and the same value is too
// small, so that it makes the cost look larger.
func (w world) usualFactor() float64 {
	return math.Exp(w.sd*w.sd/4) * (1 + w.badShare*(math.Exp(2)-1))
}

// draw draws a factor for each service in one epoch. An epoch has half the
// variance of a pair.
func (w world) draw(rnd *rand.Rand, factor []float64, with bool) {
	shared := 0.0
	if rnd.Float64() < w.badShare {
		shared = 2
	}
	if w.worseShare > 0 && rnd.Float64() < w.worseShare && with {
		shared += 2
	}
	for i := range factor {
		z := rnd.NormFloat64()
		if w.heavy { // t with 3 degrees of freedom has the variance 3
			x, y, q := rnd.NormFloat64(), rnd.NormFloat64(), rnd.NormFloat64()
			z /= math.Sqrt(x*x + y*y + q*q)
		}
		factor[i] = math.Exp(shared + z*w.sd/math.Sqrt2)
	}
}

func one(effect float64) []simulatedService { return []simulatedService{{1000, 20000, effect}} }

// within3 checks a rate over n trials. It may exceed its bound by three
// standard deviations.
func within3(t *testing.T, what string, got, bound float64, n int, atLeast bool) {
	t.Helper()
	slack := 3 * math.Sqrt(bound*(1-bound)/float64(n))
	if atLeast && got < bound-slack || !atLeast && got > bound+slack {
		t.Errorf("%s: %.3f, want %.3f", what, got, bound)
	}
}

// TestTheTrialKeepsItsErrorRates simulates whole trials. With TENON_TEST_LONG
// it simulates more of them. It prints the table in docs/trials.md.
func TestTheTrialKeepsItsErrorRates(t *testing.T) {
	trials := 100
	if os.Getenv("TENON_TEST_LONG") != "" {
		trials = 4000
	}
	opposite := []simulatedService{{1000, 20000, 0.8}, {1000, 20000, 1.2}}
	hidden := []simulatedService{{5000, 40000, 0.7}, {300, 10000, 1.2}}
	several := []simulatedService{{1000, 20000, 0.8}, {500, 30000, 0.8}, {200, 15000, 1}}
	var table strings.Builder
	fmt.Fprintln(&table, "| what the candidate does | noise | kept | worse | stopped | pairs, mean | cost, mean | cost, most |")
	for _, c := range []struct {
		name  string
		w     world
		least float64 // the least share that is kept; 0: no bound
		most  float64 // the most that is kept; 1: no bound
		cost  float64 // the largest cost; 0: costShare
	}{
		{"saves 20 %", world{sd: 0.17, services: one(0.8)}, 0.90, 1, 0},
		{"saves 20 %", world{sd: 0.5, services: one(0.8)}, 0, 1, 0},
		{"saves 20 %, heavy tails", world{sd: 0.17, heavy: true, services: one(0.8)}, 0.90, 1, 0},
		{"saves 20 %, one epoch of ten is bad", world{sd: 0.17, badShare: 0.1, services: one(0.8)}, 0.90, 1, 0},
		{"saves 25 %, one epoch of ten with it is bad", world{sd: 0.17, worseShare: 0.1, services: one(0.75)}, 0, 1, 0},
		{"saves 50 %", world{sd: 0.5, services: one(0.5)}, 0.90, 1, 0},
		{"ties", world{sd: 0.17, services: one(1)}, 0, 0.05, 0},
		{"ties", world{sd: 0.5, services: one(1)}, 0, 0.05, 0},
		{"ties, heavy tails", world{sd: 0.5, heavy: true, services: one(1)}, 0, 0.05, 0},
		{"ties, one epoch of ten is bad", world{sd: 0.17, badShare: 0.1, services: one(1)}, 0, 0.05, 0},
		{"adds 20 %", world{sd: 0.17, services: one(1.2)}, 0, 0.02, 0},
		{"adds 20 %", world{sd: 0.5, services: one(1.2)}, 0, 0.02, 0},
		{"adds 20 %, one epoch of ten is bad", world{sd: 0.17, badShare: 0.1, services: one(1.2)}, 0, 0.02, 0},
		{"doubles it", world{sd: 0.5, services: one(2)}, 0, 0.02, 0},
		{"30 times as long", world{sd: 0.5, tick: time.Second, services: one(30)}, 0, 0.02, 0},
		{"three times as long, an objective of twice", world{sd: 0.17, limit: 2, services: one(3)}, 0, 0.02, 0},
		{"saves 20 % of one, adds 20 % to another", world{sd: 0.17, services: opposite}, 0, 0.02, 0},
		{"saves 20 % of one, adds 20 % to another", world{sd: 0.5, services: opposite}, 0, 0.02, 0},
		{"saves 30 % of a busy one, adds 20 % to a small one", world{sd: 0.17, services: hidden}, 0, 0.02, 0},
		{"saves 30 % of a busy one, adds 20 % to a small one", world{sd: 0.5, services: hidden}, 0, 0.02, 0},
		{"saves 20 % of two, ties for a third", world{sd: 0.17, services: several}, 0.90, 1, 0},
		{"saves 20 %, adds 25 % after 6 pairs", world{sd: 0.17, turn: 6, services: one(0.8)}, 0, 0.02, 0},
		{"adds 25 %, saves 20 % after 6 pairs", world{sd: 0.17, turn: 6, services: one(1.25)}, 0, 1, 0},
		// 1.2 is the noise of a trial on a machine: docs/experiments/2026-11-27-trial-on-a-node.
		{"saves 20 %", world{sd: 1.2, services: one(0.8)}, 0, 1, 0},
		{"saves 50 %", world{sd: 1.2, services: one(0.5)}, 0.90, 1, 0},
		{"ties", world{sd: 1.2, services: one(1)}, 0, 0.05, 0},
		{"adds 20 %", world{sd: 1.2, services: one(1.2)}, 0, 0.02, 0},
		{"doubles it", world{sd: 1.2, services: one(2)}, 0, 0.02, 0.03},
		{"30 times as long", world{sd: 0.7, tick: time.Second, services: one(30)}, 0, 0.02, 0},
		{"30 times as long", world{sd: 1.2, tick: time.Second, services: one(30)}, 0, 0.02, 0.05},
		{"saves 20 % of one, adds 20 % to another", world{sd: 1.2, services: opposite}, 0, 0.02, 0},
		{"saves 30 % of a busy one, adds 20 % to a small one", world{sd: 1.2, services: hidden}, 0, 0.02, 0},
	} {
		rnd := rand.New(rand.NewPCG(1, 2))
		kept, pairs, cost, most := 0, 0, 0.0, math.Inf(-1)
		by := map[trial.Finding]int{}
		for range trials {
			o := c.w.run(rnd)
			if o.kept {
				kept++
			}
			by[o.finding]++
			pairs += o.pairs
			cost += o.cost
			most = max(most, o.cost)
		}
		n := float64(trials)
		name := fmt.Sprintf("%s, sd %g", c.name, c.w.sd)
		rate := float64(kept) / n
		if c.least > 0 {
			within3(t, name+": kept", rate, c.least, trials, true)
		}
		if c.most < 1 {
			within3(t, name+": kept", rate, c.most, trials, false)
		}
		if most > cmp.Or(c.cost, costShare) {
			t.Errorf("%s: a trial cost a service %.2f %% of its waiting", name, 100*most)
		}
		fmt.Fprintf(&table, "| %s | %g | %.1f %% | %.1f %% | %.1f %% | %.0f | %.2f %% | %.2f %% |\n", c.name, c.w.sd, 100*rate,
			100*float64(by[trial.Worse])/n, 100*float64(by[trial.Stopped])/n, float64(pairs)/n, 100*cost/n, 100*most)
	}
	t.Logf("%d trials each\n%s", trials, table.String())
}
