package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A population is a law of the log ratios of an experiment of switched modes. The
// standard deviations are those of recorded experiments.
type population struct {
	truth    float64 // ratio
	rounds   int     // of a start
	spread   float64 // standard deviation of a round
	interact float64 // standard deviation that each start adds
	law      func(*rand.Rand) float64
}

func normalLaw(rng *rand.Rand) float64 { return rng.NormFloat64() }

// laplaceLaw has the standard deviation 1 and heavier tails than a normal law.
func laplaceLaw(rng *rand.Rand) float64 {
	v := rng.ExpFloat64() / math.Sqrt2
	if rng.IntN(2) == 0 {
		return -v
	}
	return v
}

// jumpLaw jumps between two levels, as the latencies of a machine with two clock
// speeds do. Its standard deviation is 1.
func jumpLaw(rng *rand.Rand) float64 {
	return math.Copysign(math.Sqrt(0.9), float64(rng.IntN(2))-0.5) + math.Sqrt(0.1)*rng.NormFloat64()
}

func (p population) draw(rng *rand.Rand) Rounds {
	r := Rounds{}
	for start := range Starts {
		own := math.Log(p.truth) + p.interact*rng.NormFloat64()
		for range p.rounds {
			r[start+1] = append(r[start+1], own+p.spread*p.law(rng))
		}
	}
	return r
}

// first returns the rounds of the first starts.
func (r Rounds) first(starts int) Rounds {
	some := Rounds{}
	for start := range starts {
		some[start+1] = r[start+1]
	}
	return some
}

// share returns the share of experiments for which holds returns true.
func (p population) share(experiments int, seed uint64, holds func(Rounds) bool) float64 {
	rng := rand.New(rand.NewPCG(seed, 45))
	n := 0
	for range experiments {
		if holds(p.draw(rng)) {
			n++
		}
	}
	return float64(n) / float64(experiments)
}

const simulated = 1000

// falseMost allows three standard errors of 5 % in 1000 experiments.
const falseMost = RatioError + 3*0.0069

// falseAnswer reports whether an answer contradicts the truth.
func falseAnswer(q Question, a Answer, truth float64) bool {
	lower, upper := float64(a.Effect.Lower), float64(a.Effect.Upper)
	switch a.Verdict {
	case Met:
		return q.Asks == AsksAtMost && truth >= q.Limit || q.Asks == AsksAtLeast && truth <= q.Limit
	case NotMet:
		return q.Asks == AsksAtMost && truth < q.Limit || q.Asks == AsksAtLeast && truth > q.Limit
	case Tie:
		return truth >= q.Limit || truth <= 1/q.Limit
	case Differs:
		return truth == 1 || (lower > 1) != (truth > 1)
	case BoundedAbove:
		return truth > upper
	case BoundedBelow:
		return truth < lower
	}
	return false
}

// TestAnswersAboutSwitchedModesAreRarelyFalse asks each question where a false
// answer is most likely: the truth lies at a limit of the question.
func TestAnswersAboutSwitchedModesAreRarelyFalse(t *testing.T) {
	for name, p := range map[string]population{
		"normal":                      {rounds: 10, spread: 0.11, law: normalLaw},
		"normal, and each start":      {rounds: 10, spread: 0.15, interact: 0.03, law: normalLaw},
		"two levels, and each start":  {rounds: 10, spread: 0.24, interact: 0.1, law: jumpLaw},
		"Laplace, waiting, two modes": {rounds: 20, spread: 1.07, interact: 0.1, law: laplaceLaw},
	} {
		for seed, c := range []struct {
			q     Question
			truth float64
		}{
			{Question{AsksAtMost, 1.25}, 1.25}, {Question{AsksAtLeast, 2}, 2}, {Question{AsksWhich, 1.1}, 1.1},
			{Question{AsksWhich, 1.1}, 1 / 1.1}, {Question{AsksWhich, 1.1}, 1},
		} {
			p.truth = c.truth
			if got := p.share(simulated, uint64(seed), func(r Rounds) bool { return falseAnswer(c.q, c.q.Answer(r, 1), c.truth) }); got > falseMost {
				t.Errorf("%s: %v is answered falsely in %.1f %% at the truth %v", name, c.q, 100*got, c.truth)
			}
		}
	}
}

// TestALookAtEachPlannedNumberIsRarelyFalse stops an experiment at the first look
// that decides, as an experiment does that ends when its questions are decided.
func TestALookAtEachPlannedNumberIsRarelyFalse(t *testing.T) {
	looks := StartLooks(0, true)
	for seed, c := range []struct {
		q     Question
		truth float64
	}{{Question{AsksAtMost, 1.25}, 1.25}, {Question{AsksWhich, 1.1}, 1}, {Question{AsksWhich, 1.1}, 1.1}} {
		p := population{truth: c.truth, rounds: 10, spread: 0.15, interact: 0.03, law: normalLaw}
		got := p.share(simulated, uint64(seed), func(r Rounds) bool {
			for _, n := range looks {
				if falseAnswer(c.q, c.q.Answer(r.first(n), len(looks)), c.truth) {
					return true
				}
			}
			return false
		})
		if got > falseMost {
			t.Errorf("%v: a false answer at one of the looks in %.1f %% of the experiments", c.q, 100*got)
		}
	}
}

func TestLooksAreFixedBefore(t *testing.T) {
	for starts, want := range map[int][2][]int{
		0: {{12}, {4, 8, 12}}, 45: {{45}, {15, 30, 45}}, 6: {{6}, {4, 6}}, 4: {{4}, {4}}, 1: {{1}, {1}},
	} {
		if all, early := StartLooks(starts, false), StartLooks(starts, true); !slices.Equal(all, want[0]) || !slices.Equal(early, want[1]) {
			t.Errorf("%d starts: looks %v, and %v if it may end early; want %v", starts, all, early, want)
		}
	}
}

// TestSwitchedModesDecideWhatPeopleAsk checks the power against the standard
// deviations of recorded experiments.
func TestSwitchedModesDecideWhatPeopleAsk(t *testing.T) {
	for name, c := range map[string]struct {
		p     population
		q     Question
		want  Verdict
		least float64
	}{
		"P90 is equal within 5 %":             {population{1, 10, 0.11, 0.03, normalLaw}, Question{AsksWhich, 1.05}, Tie, 0.80},
		"P90 is equal within 5 %, no start":   {population{1, 10, 0.11, 0, normalLaw}, Question{AsksWhich, 1.05}, Tie, 0.90},
		"P90 is equal within 10 %":            {population{1, 10, 0.15, 0.03, normalLaw}, Question{AsksWhich, 1.1}, Tie, 0.95},
		"P90 is 20 % lower":                   {population{0.8, 10, 0.15, 0.03, normalLaw}, Question{AsksWhich, 1.1}, Differs, 0.99},
		"P90 is at most 25 % above alone":     {population{1.1, 10, 0.24, 0.05, normalLaw}, Question{AsksAtMost, 1.25}, Met, 0.95},
		"waiting is 5 times as long at least": {population{48, 10, 1.07, 0.3, laplaceLaw}, Question{AsksAtLeast, 5}, Met, 0.99},
		"waiting of two modes is 20 % lower":  {population{0.8, 20, 1.07, 0, normalLaw}, Question{AsksAtMost, 1}, Met, 0.80},
	} {
		if got := c.p.share(simulated, 7, func(r Rounds) bool { return c.q.Answer(r, 1).Verdict == c.want }); got < c.least {
			t.Errorf("%s: %q in %.1f %%, want at least %.0f %%", name, c.want, 100*got, 100*c.least)
		}
	}
}

// constant returns rounds with the same ratio in all starts but one.
func constant(starts int, ratio, odd float64) Rounds {
	r := Rounds{}
	for start := range starts {
		v := math.Log(ratio)
		if start == 0 {
			v = math.Log(odd)
		}
		for k := range 10 {
			r[start+1] = append(r[start+1], v+0.001*float64(k-5))
		}
	}
	return r
}

func TestAnswersOfSwitchedModes(t *testing.T) {
	dropped := constant(12, 1, 1)
	for start := range dropped {
		dropped[start][0] = math.Inf(-1)
	}
	for name, c := range map[string]struct {
		r    Rounds
		q    Question
		want Verdict
	}{
		"below the limit":          {constant(12, 1.1, 1.1), Question{AsksAtMost, 1.25}, Met},
		"above the limit":          {constant(12, 1.5, 1.5), Question{AsksAtMost, 1.25}, NotMet},
		"one start says otherwise": {constant(12, 1.2, 3), Question{AsksAtMost, 1.25}, BoundedAbove},
		"at least":                 {constant(12, 48, 48), Question{AsksAtLeast, 5}, Met},
		"at least, missed":         {constant(12, 2, 2), Question{AsksAtLeast, 5}, NotMet},
		"at least, one other":      {constant(12, 6, 0.5), Question{AsksAtLeast, 5}, BoundedBelow},
		"equal":                    {constant(12, 1, 1), Question{AsksWhich, 1.1}, Tie},
		"differs":                  {constant(12, 1.3, 1.3), Question{AsksWhich, 1.1}, Differs},
		"differs by less than it":  {constant(12, 1.05, 1.05), Question{AsksWhich, 1.1}, Tie},
		"neither":                  {constant(12, 1.02, 3), Question{AsksWhich, 1.1}, BoundedAbove},
		"too few starts":           {constant(3, 1, 1), Question{AsksWhich, 1.1}, Undecided},
		"too many zeros":           {dropped, Question{AsksWhich, 1.1}, Undecided},
		"nothing":                  {nil, Question{AsksAtMost, 9}, Undecided},
	} {
		if got := c.q.Answer(c.r, 1); got.Verdict != c.want {
			t.Errorf("%s: %q by %+v, want %q", name, got.Verdict, got.Effect, c.want)
		}
	}
}

func TestATrimmedMeanIgnoresASecondOfAnotherProgram(t *testing.T) {
	r := constant(12, 1, 1)
	before := EffectOf(r, RatioError)
	r[5][3] = 4 // 55 times
	if after := EffectOf(r, RatioError); math.Abs(float64(after.Ratio-before.Ratio)) > 0.002 {
		t.Errorf("one round moves the ratio from %v to %v", before.Ratio, after.Ratio)
	}
}

func TestRareStartsAreCountedApart(t *testing.T) {
	if got := RareOf(constant(12, 1, 1), 2); got.Seen != 0 || math.Abs(float64(got.Most)-0.221) > 0.001 {
		t.Errorf("no bad start: %+v, want a bound of 1 - 0.05^(1/12) = 22.1 %%", got)
	}
	if got := RareOf(constant(12, 1, 3), 2); got.Seen != 1 || got.Starts != 12 || got.Most < 0.33 || got.Most > 0.35 {
		t.Errorf("one bad start: %+v", got)
	}
	if got := RareOf(nil, 2); got.Seen != 0 || got.Most != 1 {
		t.Errorf("no start: %+v", got)
	}
	if low, high := RareOf(constant(12, 1, 0.4), 0.5), RareOf(constant(12, 1, 0.4), 2); low.Seen != 1 || high.Seen != 0 {
		t.Errorf("one start that is far lower: %+v and %+v", low, high)
	}
}

// TestTheRatioOfTotalsIsRarelyFalse draws waiting times whose ratio has a long tail, so
// that the ratio of the totals is another one than that of the typical round.
func TestTheRatioOfTotalsIsRarelyFalse(t *testing.T) {
	rng, above, below := rand.New(rand.NewPCG(3, 127)), 0, 0
	const truth, experiments = 15.0, 10 * simulated
	for range experiments {
		of, to := map[int]Total{}, map[int]Total{}
		for start := range Starts {
			var a, b float64
			for range 10 {
				a, b = a+truth*(0.9+0.2*rng.Float64()), b+rng.ExpFloat64()
			}
			of[start], to[start] = Total{a, 8}, Total{b, 8.1}
		}
		e := EffectOfTotals(of, to, RatioError)
		if want := truth * 8.1 / 8; float64(e.Lower) > want {
			above++
		} else if float64(e.Upper) < want {
			below++
		}
	}
	t.Logf("of %d lower bounds %d are false, of the upper ones %d", experiments, above, below)
	if most := falseMost * experiments; float64(max(above, below)) > most || min(above, below) == 0 {
		t.Errorf("of %d bounds %d and %d are false", experiments, above, below)
	}
}

func TestTheRatioOfTotals(t *testing.T) {
	e := EffectOfTotals(map[int]Total{1: {30, 10}, 2: {50, 10}}, map[int]Total{1: {3, 10}, 2: {5, 20}}, RatioError)
	if math.Abs(float64(e.Ratio)-80.0/20/(8.0/30)) > 1e-9 || e.Starts != 2 || !e.Lower.Known() || e.Error != RatioError {
		t.Errorf("%+v", e)
	}
	if e := EffectOfTotals(map[int]Total{1: {30, 10}}, map[int]Total{1: {3, 10}}, RatioError); math.Abs(float64(e.Ratio)-10) > 1e-9 || e.Lower.Known() && e.Lower > 0 || e.Upper.Known() {
		t.Errorf("one start: %+v", e)
	}
	for name, to := range map[string]map[int]Total{"nothing": nil, "no amount": {1: {0, 10}}} {
		if e := EffectOfTotals(map[int]Total{1: {30, 10}}, to, RatioError); e.Ratio.Known() || e.Lower.Known() || e.Upper.Known() {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestMostExperimentsShowADifferenceOfTheSize compares what half a dozen ratios of a
// population let expect with experiments of the population.
func TestMostExperimentsShowADifferenceOfTheSize(t *testing.T) {
	for _, spread := range []float64{0.25, 0.5} { // below, the least size counts
		p := population{truth: 1, rounds: 10, spread: spread, law: normalLaw}
		rng := rand.New(rand.NewPCG(9, 9))
		size, within := 0.0, 0
		const trials = 60
		for range trials {
			seen := p.draw(rng)
			size += math.Log(float64(SizeOf(seen[1][:6], Starts, p.rounds, RatioError).Ratio)) / trials
		}
		p.truth = math.Exp(size)
		shown := p.share(simulated, 8, func(r Rounds) bool { return EffectOf(r, RatioError).Lower > 1 })
		if shown < 0.7 || shown > 0.9 {
			t.Errorf("a spread of %v: %.0f %% of experiments show %+.1f %%", spread, 100*shown, 100*(p.truth-1))
		}
		whole := SizeOf(p.draw(rng)[1], Starts, p.rounds, RatioError) // a start has ten rounds
		for range trials {
			if s := SizeOf(p.draw(rng)[1][:5], Starts, p.rounds, RatioError); s.Least < s.Ratio && s.Ratio < s.Most && s.Least <= whole.Ratio && whole.Ratio <= s.Most {
				within++
			}
		}
		if within < trials*7/10 {
			t.Errorf("a spread of %v: in %d of %d trials the size lies between its bounds", spread, within, trials)
		}
	}
	if s := SizeOf([]float64{0.1, 0.1, 0.1}, Starts, 10, RatioError); math.Abs(math.Log(float64(s.Ratio))-leastSize) > 1e-9 {
		t.Errorf("three equal ratios: %+v, want the least size", s)
	}
	for name, got := range map[string]Size{
		"no ratio":              SizeOf(nil, Starts, 10, RatioError),
		"one that is finite":    SizeOf([]float64{0.1, math.NaN(), math.Inf(1)}, Starts, 10, RatioError),
		"too few rounds":        SizeOf([]float64{0.1, -0.1}, Starts, 1, RatioError),
		"too few starts":        SizeOf([]float64{0.1, -0.1}, 3, 20, RatioError),
		"no round is left over": SizeOf([]float64{0.1, -0.1}, Starts, 0, RatioError),
	} {
		if got.Ratio.Known() || got.Least.Known() || got.Most.Known() {
			t.Errorf("%s: size %v, want none", name, got)
		}
	}
}

func TestTheMeanOfStarts(t *testing.T) {
	mean, lower, upper := MeanOfStarts([]float64{24, 26, 28}, RatioError)
	// Student's t of two degrees exceeds 2.920 with probability 5 %.
	if reach := 2.920 * 2 / math.Sqrt(3); mean != 26 || math.Abs(float64(upper)-26-reach) > 0.001 || math.Abs(26-float64(lower)-reach) > 0.001 {
		t.Errorf("%v (%v to %v)", mean, lower, upper)
	}
	if _, lower, upper := MeanOfStarts([]float64{24}, RatioError); lower.Known() || upper.Known() {
		t.Errorf("one start has the bounds %v and %v", lower, upper)
	}
}
