package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRandomEffectsKnowsAPublishedExample uses an example that was computed by
// hand. In the example, two experiments with errors of 0.1 and 0.2 agree.
func TestRandomEffectsKnowsAPublishedExample(t *testing.T) {
	m := RandomEffects([]Campaign{{Mean: 0.1, Error: 0.1, Blocks: 10}, {Mean: 0.2, Error: 0.2, Blocks: 5}})
	// Weights 100 and 25: (100·0.1 + 25·0.2) / 125 = 0.12.
	if math.Abs(math.Log(m.Value)-0.12) > 1e-12 || m.Tau != 0 || m.Inconsistency != 0 || m.Campaigns != 2 || m.Blocks != 15 {
		t.Errorf("%+v, want exp(0.12) without heterogeneity", m)
	}
	// Half-width: t(0.975, 1 degree of freedom) = 12.706 times sqrt(1/125).
	if got, want := math.Log(m.High)-0.12, 12.7062/math.Sqrt(125); math.Abs(got-want) > 1e-3 {
		t.Errorf("half-width %.4f, want %.4f", got, want)
	}
	if !math.IsInf(m.PredictTop, 1) {
		t.Errorf("a prediction from two experiments: %+v", m)
	}
}

func TestExperimentsThatDisagreeWidenTheInterval(t *testing.T) {
	agree := RandomEffects([]Campaign{{0.1, 0.02, 10}, {0.11, 0.02, 10}, {0.09, 0.02, 10}, {0.1, 0.02, 10}})
	apart := RandomEffects([]Campaign{{-0.2, 0.02, 10}, {0.4, 0.02, 10}, {0, 0.02, 10}, {0.2, 0.02, 10}})
	if apart.Inconsistency < 0.9 || agree.Inconsistency > 0.1 {
		t.Errorf("inconsistency %.2f of experiments that disagree, %.2f of those that agree", apart.Inconsistency, agree.Inconsistency)
	}
	if apart.High/apart.Low < 1.5 || agree.High/agree.Low > 1.1 {
		t.Errorf("apart %+v, agree %+v", apart, agree)
	}
	if apart.PredictTop <= apart.High || apart.PredictLow >= apart.Low {
		t.Errorf("the next experiment is predicted more closely than the mean is known: %+v", apart)
	}
}

func TestMetaIntervalCoversTheTruth(t *testing.T) {
	const trials = 2000
	rng := rand.New(rand.NewPCG(8, 8))
	inside := 0
	for range trials {
		var all [][]float64
		for range 4 {
			truth := 0.1 + 0.1*rng.NormFloat64()
			logs := make([]float64, 6+rng.IntN(30))
			for i := range logs {
				logs[i] = truth + 0.3*rng.NormFloat64()
			}
			all = append(all, logs)
		}
		if m := MetaOf(all); m.Low <= math.Exp(0.1) && math.Exp(0.1) <= m.High {
			inside++
		}
	}
	if got := float64(inside) / trials; got < 0.935 {
		t.Errorf("the interval covers the truth in %.1f %% of %d trials, want 95 %%", 100*got, trials)
	}
}

func TestMetaOfLittle(t *testing.T) {
	if m := MetaOf(nil); !math.IsNaN(m.Value) || m.Campaigns != 0 {
		t.Errorf("nothing: %+v", m)
	}
	if m := MetaOf([][]float64{{0.5}}); m.Campaigns != 0 {
		t.Errorf("one block: %+v", m)
	}
	if m := MetaOf([][]float64{{0.4, 0.5, 0.6, 0.5}}); m.Campaigns != 1 || math.Abs(m.Value-math.Exp(0.5)) > 1e-12 || math.IsInf(m.High, 1) || !math.IsInf(m.PredictTop, 1) {
		t.Errorf("one experiment: %+v", m)
	}
}
