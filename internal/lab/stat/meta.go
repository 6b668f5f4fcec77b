package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// A Campaign is the estimate of one experiment: the mean of the log ratios of
// its blocks, and the standard error of that mean.
type Campaign struct {
	Mean, Error float64
	Blocks      int
}

// CampaignOf returns the estimate of one experiment from its log ratios. ok is
// false if there are fewer than two blocks, because they have no standard
// error.
func CampaignOf(logs []float64) (c Campaign, ok bool) {
	if len(logs) < 2 {
		return Campaign{}, false
	}
	mean, sd := meanSD(logs)
	return Campaign{mean, sd / math.Sqrt(float64(len(logs))), len(logs)}, true
}

// A Meta is an estimate over several experiments, as ratios. Its interval is
// for the mean over experiments. Its prediction interval is for the ratio in
// one more experiment.
type Meta struct {
	Campaigns, Blocks      int
	Value, Low, High       float64 // 95 %; infinite from one experiment
	PredictLow, PredictTop float64 // 95 %; infinite from fewer than three
	// Tau is the standard deviation of the true log ratios between experiments.
	// Inconsistency (I²) is the share of the variance of the estimates that the
	// errors within the experiments do not explain.
	Tau, Inconsistency float64
}

// RandomEffects combines experiments. Machines and their neighbours differ from
// hour to hour, so each experiment has a true ratio of its own. The variance
// between experiments is estimated by the method of DerSimonian and Laird
// (1986). The interval is computed by the method of Hartung and Knapp (2001)
// with the t distribution, but is never narrower than without their correction.
// Experiments with an error of 0 are left out.
func RandomEffects(all []Campaign) Meta {
	inf := math.Inf(1)
	m := Meta{Value: math.NaN(), Low: 0, High: inf, PredictLow: 0, PredictTop: inf}
	var used []Campaign
	for _, c := range all {
		if c.Error > 0 {
			used = append(used, c)
			m.Blocks += c.Blocks
		}
	}
	m.Campaigns = len(used)
	if len(used) == 0 {
		return m
	}
	weigh := func(tau2 float64) (mean, sum, squares float64) {
		for _, c := range used {
			w := 1 / (c.Error*c.Error + tau2)
			mean, sum, squares = mean+w*c.Mean, sum+w, squares+w*w
		}
		return mean / sum, sum, squares
	}
	spread := func(tau2, mean float64) (q float64) {
		for _, c := range used {
			q += (c.Mean - mean) * (c.Mean - mean) / (c.Error*c.Error + tau2)
		}
		return q
	}
	df := float64(len(used) - 1)
	mean, sum, squares := weigh(0)
	tau2 := 0.0
	if q := spread(0, mean); len(used) > 1 && q > df {
		tau2 = (q - df) / (sum - squares/sum)
		m.Inconsistency = (q - df) / q
	}
	mean, sum, _ = weigh(tau2)
	m.Value, m.Tau = math.Exp(mean), math.Sqrt(tau2)
	if len(used) < 2 {
		return m
	}
	variance := max(spread(tau2, mean)/df, 1) / sum
	reach := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Quantile((1+Level)/2) * math.Sqrt(variance)
	m.Low, m.High = math.Exp(mean-reach), math.Exp(mean+reach)
	if len(used) > 2 {
		reach = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df - 1}.Quantile((1+Level)/2) * math.Sqrt(tau2+variance)
		m.PredictLow, m.PredictTop = math.Exp(mean-reach), math.Exp(mean+reach)
	}
	return m
}

// MetaOf combines samples of log ratios, one for each experiment.
func MetaOf(experiments [][]float64) Meta {
	var all []Campaign
	for _, logs := range experiments {
		if c, ok := CampaignOf(logs); ok {
			all = append(all, c)
		}
	}
	if len(all) != 1 {
		return RandomEffects(all)
	}
	// With only one experiment, the interval comes from its blocks and does not
	// cover differences between experiments.
	m := RandomEffects(all)
	for _, logs := range experiments {
		if len(logs) > 1 {
			b := paired.BoundsOf(logs, (1-Level)/2)
			m.Low, m.High = math.Exp(b.MeanLower), math.Exp(b.MeanUpper)
		}
	}
	return m
}
