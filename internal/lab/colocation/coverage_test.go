package colocation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/lab/stat"
)

// A law is a distribution from which the log ratios of blocks are drawn, with
// its true mean and median.
type law struct {
	name         string
	draw         func(*rand.Rand) float64
	mean, median float64
	most         float64 // highest accepted rate of false claims; 0: a known limit of the rule
}

// The highest rates of false claims that this test accepts.
const (
	symmetric = 0.055
	skewed    = 0.075
)

// rareLaw returns a law with a bad state, which adds size to the log ratio. One
// block in every (a number) is in this state.
func rareLaw(name string, size float64, every int, most float64) law {
	share, noise := 1/float64(every), 0.05
	l := law{name: name, mean: size * share, most: most, draw: func(rng *rand.Rand) float64 {
		v := noise * rng.NormFloat64()
		if rng.Float64() < share {
			v += size
		}
		return v
	}}
	// A share of the blocks is in a state that is far from the others. So the
	// median of all blocks is a quantile of the ordinary blocks: the quantile
	// 1/(2(1−share)), counted from the side of that state.
	z := math.Sqrt2 * math.Erfinv(1/(1-share)-1)
	l.median = math.Copysign(noise*z, size)
	return l
}

func inventedLaws() []law {
	return []law{
		{"normal", func(r *rand.Rand) float64 { return 0.1 * r.NormFloat64() }, 0, 0, symmetric},
		{"Laplace", func(r *rand.Rand) float64 { return math.Copysign(r.ExpFloat64(), r.Float64()-0.5) }, 0, 0, symmetric},
		{"exponential", func(r *rand.Rand) float64 { return r.ExpFloat64() }, 1, math.Ln2, skewed},
		{"log-normal, sd of the log 0.5", func(r *rand.Rand) float64 { return math.Exp(0.5 * r.NormFloat64()) }, math.Exp(0.125), 1, skewed},
		rareLaw("e² times in 1 block of 10", 2, 10, skewed),
		rareLaw("e⁻² times in 1 block of 10", -2, 10, skewed),
		rareLaw("e² times in 1 block of 20", 2, 20, 0),
		rareLaw("e times in 1 block of 10", 1, 10, skewed),
	}
}

// publishedLaws returns laws that draw from the blocks of the longest published
// experiment.
func publishedLaws(t *testing.T) []law {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "docs", "experiments", "2026-11-22-colocation-ninety-minutes")
	e, runs, err := report.Load[Experiment, Run](dir)
	if err != nil {
		t.Fatal(err)
	}
	ev := report.Gather(e.Experiment, report.Commons(runs))
	var laws []law
	for _, c := range []struct {
		num, den report.Mode
		measures []report.Measure
	}{
		{report.ExclusiveAA, report.Exclusive, []report.Measure{report.P90, report.Mean, report.P99, report.WaitingTime}},
		{report.Tenon, report.ExclusiveWarm, []report.Measure{report.P90, report.Mean, report.P99, report.WaitingTime}},
		{report.Default, report.Tenon, []report.Measure{report.P90, report.P99, report.WaitingTime}},
		{report.Default65, report.Tenon65, []report.Measure{report.P99}},
		{report.Burstable, report.Tenon, []report.Measure{report.P99, report.WaitingTime}},
	} {
		for _, m := range c.measures {
			logs, _ := stat.Logs(ev.Sample(c.num, m.Of), ev.Sample(c.den, m.Of))
			b := paired.BoundsOf(logs, 0.05)
			l := law{fmt.Sprintf("%s / %s, %s (skewness %+.1f)", c.num, c.den, m.Name, b.Skew),
				func(rng *rand.Rand) float64 { return logs[rng.IntN(len(logs))] }, b.Mean, b.Median, symmetric}
			switch s := math.Abs(b.Skew); {
			case s > 3: // one block of 45 is enough for this
				l.most = 0
			case s > 0.5:
				l.most = skewed
			}
			laws = append(laws, l)
		}
	}
	return laws
}

// rates are the shares of experiments that make a false claim: the ratio is
// below its true value (below), above it (above), or differs from it (differs).
type rates struct{ below, above, differs float64 }

func (r rates) worst() float64 { return max(r.below, r.above, r.differs) }

// simulate runs experiments by the whole rule: all looks, the minimum number of
// blocks, mean and median. The limit of a claim is the true mean or the true
// median: the one with which false claims are more frequent.
func (l law) simulate(rule paired.Rule, trials int) rates {
	rng := rand.New(rand.NewPCG(11, 12))
	top, bottom := math.Exp(max(l.mean, l.median)), math.Exp(min(l.mean, l.median))
	var r rates
	one := 1 / float64(trials)
	values := make([]float64, rule.Last())
	for range trials {
		for i := range values {
			values[i] = l.draw(rng)
		}
		var below, above, differs bool
		for _, n := range rule.Looks {
			j := rule.Judge(values[:n])
			below, above = below || j.ShowsBelow(top), above || j.ShowsAbove(bottom)
			differs = differs || rule.P(values[:n], math.Exp(l.mean)) <= rule.Spends()
		}
		for to, is := range map[*float64]bool{&r.below: below, &r.above: above, &r.differs: differs} {
			if is {
				*to += one
			}
		}
	}
	return r
}

// TestFalseClaimsOfTheWholeRule simulates experiments under measured and
// invented laws. It checks how often the rule makes a false claim. With
// TENON_TEST_LONG=1 it runs 10,000 experiments for each law. With -update it
// writes the table in docs/lab-statistics.md.
func TestFalseClaimsOfTheWholeRule(t *testing.T) {
	trials, long := 300, os.Getenv("TENON_TEST_LONG") != ""
	plans := map[string]paired.Rule{"": paired.Blocks()}
	if long {
		trials = 10_000
		for _, n := range []int{12, 20, 30, 45} {
			plans[fmt.Sprint(n)] = paired.Blocks().Planned(n)
		}
	}
	slack := 3 * math.Sqrt(0.075*0.925/float64(trials))
	if long {
		slack = 0
	}
	var table strings.Builder
	for _, l := range append(inventedLaws(), publishedLaws(t)...) {
		got := map[string]rates{}
		for name, rule := range plans {
			got[name] = l.simulate(rule, trials)
			if worst := got[name].worst(); l.most > 0 && worst > l.most+slack {
				t.Errorf("%s, plan %q: a false claim in %.1f %% of %d experiments, want at most %.1f %%", l.name, name, 100*worst, trials, 100*l.most)
			}
		}
		bar := "–"
		if l.most > 0 {
			bar = fmt.Sprintf("%.1f", 100*l.most)
		}
		fmt.Fprintf(&table, "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %s |\n", l.name,
			100*got[""].below, 100*got[""].above, 100*got[""].differs, 100*got["12"].worst(), 100*got["20"].worst(), 100*got["30"].worst(), 100*got["45"].worst(), bar)
	}
	if long {
		synthetic.CheckTable(t, filepath.Join("..", "..", "..", "docs", "lab-statistics.md"), "coverage", table.String())
	}
}
