package stat

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// An experiment of switched modes starts the service and the batch work a few
// times. Within each start it changes the mode every second, in rounds that have
// each mode once. In latency, neighbouring seconds of one start agree far better than two
// starts, so the evidence is the ratio of two modes within a round. But the rounds
// of a start share its state, so a bound must also hold for the starts.

// Rounds holds the logarithms of the ratios of two modes, one for each round, by
// the number of the start.
type Rounds map[int][]float64

// RatioError is the probability with which a bound or a verdict about switched
// modes is wrong, over all looks together.
const RatioError = 0.05

// LeastStarts and LeastRounds are the fewest starts, and the fewest rounds of all
// starts together, from which a verdict is possible.
const (
	LeastStarts = 4
	LeastRounds = 20
)

// Starts is the number of starts of an experiment that names none, and the last
// look of one that may end early.
const Starts = 12

// StartLooks returns the numbers of starts at which verdicts are given. They are
// fixed before the first start: one look after all starts or, if the experiment ends
// early when every question is decided, a look after each third of them. A look from
// which no verdict is possible is none. 0 stands for the default of starts.
func StartLooks(starts int, early bool) []int {
	if starts == 0 {
		starts = Starts
	}
	var looks []int
	for third := 1; third < 3 && early; third++ {
		if look := starts * third / 3; look >= LeastStarts {
			looks = append(looks, look)
		}
	}
	return append(looks, starts)
}

const (
	// trimmed is the share of the rounds that the trimmed mean leaves out on each
	// side: a second in which another program worked says nothing about a mode.
	trimmed = 0.1
	// droppedMost is the largest share of rounds without a finite ratio.
	droppedMost = 0.05
)

// An Effect is the ratio of two modes in the typical round, with bounds.
type Effect struct {
	// Ratio is the trimmed mean of the log ratios of all rounds, as a ratio.
	Ratio Number `json:"ratio"`
	// Lower and Upper are each wrong with probability Error. Each is the widest of
	// three bounds: that of the trimmed mean over the rounds (Yuen 1974), Student's
	// bound of the mean over the starts, and one that lies as far from the trimmed
	// mean as Student's from the mean over the starts.
	Lower Number  `json:"lower_bound"`
	Upper Number  `json:"upper_bound"`
	Error float64 `json:"bound_error"`

	Rounds  int `json:"rounds"`
	Starts  int `json:"starts"`
	Dropped int `json:"dropped_rounds,omitempty"` // a value was zero or missing
}

// EffectOf estimates the ratio of two modes. A bound is wrong with probability
// alpha. If there are too few rounds for a bound, it is infinite.
func EffectOf(r Rounds, alpha float64) Effect {
	e := Effect{Error: alpha}
	var all, starts []float64
	for _, start := range slices.Sorted(maps.Keys(r)) {
		sum, n := 0.0, 0
		for _, log := range r[start] {
			if !finite(log) {
				e.Dropped++
				continue
			}
			all = append(all, log)
			sum, n = sum+log, n+1
		}
		if n > 0 {
			starts = append(starts, sum/float64(n))
		}
	}
	e.Rounds, e.Starts = len(all), len(starts)
	mean, reach := trimmedMean(all, alpha)
	between, width := meanOf(starts, alpha)
	e.Ratio = Number(math.Exp(mean))
	// A mean of starts whose rounds have a long tail lies beside the typical round.
	e.Lower = Number(math.Exp(min(mean-max(reach, width), between-width)))
	e.Upper = Number(math.Exp(max(mean+max(reach, width), between+width)))
	return e
}

// IsEnough reports whether a verdict may rest on the effect.
func (e Effect) IsEnough() bool {
	return e.Starts >= LeastStarts && e.Rounds >= LeastRounds && e.Lower.Known() && e.Upper.Known() &&
		float64(e.Dropped) <= droppedMost*float64(e.Rounds+e.Dropped)
}

// trimmedMean returns the mean of the values without the smallest and the largest
// tenth, and the distance of its one-sided bounds (Yuen 1974, "The two-sample
// trimmed t for unequal population variances", for one sample).
func trimmedMean(values []float64, alpha float64) (mean, reach float64) {
	n := len(values)
	cut := int(trimmed * float64(n))
	kept := n - 2*cut
	if kept == 0 {
		return math.NaN(), math.Inf(1)
	}
	winsorised := slices.Sorted(slices.Values(values))
	for _, v := range winsorised[cut : n-cut] {
		mean += v / float64(kept)
	}
	if kept < 2 {
		return mean, math.Inf(1)
	}
	for i := range cut {
		winsorised[i], winsorised[n-1-i] = winsorised[cut], winsorised[n-1-cut]
	}
	_, sd := meanSD(winsorised)
	variance := float64(n-1) * sd * sd / float64(kept) / float64(kept-1)
	return mean, student(kept-1, alpha) * math.Sqrt(variance)
}

// meanOf returns the mean of the values and the distance of its one-sided bounds.
func meanOf(values []float64, alpha float64) (mean, reach float64) {
	if len(values) == 0 {
		return math.NaN(), math.Inf(1)
	}
	mean, sd := meanSD(values)
	if len(values) < 2 {
		return mean, math.Inf(1)
	}
	return mean, student(len(values)-1, alpha) * sd / math.Sqrt(float64(len(values)))
}

// student returns the value that Student's t exceeds with probability alpha.
func student(degrees int, alpha float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(degrees)}.Quantile(1 - alpha)
}

// An Asking is what a question asks about a ratio.
type Asking string

// The kinds of questions.
const (
	AsksAtMost  Asking = "at most"
	AsksAtLeast Asking = "at least"
	// AsksWhich asks whether two modes differ, or are equal within the limit.
	AsksWhich Asking = "differs or equal"
)

// A Question is what an experiment asks about a ratio. It is fixed before the
// first start. Limit is a ratio, such as 1.25.
type Question struct {
	Asks  Asking  `json:"asks"`
	Limit float64 `json:"limit"`
}

// An Answer is the verdict about a question, with the effect whose bounds decide
// it. So the numbers that decide are those that are printed.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	Effect  Effect  `json:"effect"`
}

// Answer answers the question at one of several planned looks. The probability
// that the answer is wrong, whatever it says, is at most RatioError over all looks.
//
// A question with a limit has one bound that decides. If the bound is on the wrong
// side, the answer is the bound itself: it is true, and decides nothing about the
// limit. Modes are equal if both one-sided tests against the limit hold
// (Schuirmann 1987). They differ if an interval excludes 1 whose bounds have half
// of the error each, because the difference may be on either side.
func (q Question) Answer(r Rounds, looks int) Answer {
	spends := RatioError / float64(max(looks, 1))
	e := EffectOf(r, spends)
	lower, upper := float64(e.Lower), float64(e.Upper)
	switch {
	case !e.IsEnough():
		return Answer{Undecided, e}
	case q.Asks == AsksAtMost:
		return Answer{bounded(upper < q.Limit, lower > q.Limit, BoundedAbove), e}
	case q.Asks == AsksAtLeast:
		return Answer{bounded(lower > q.Limit, upper < q.Limit, BoundedBelow), e}
	case upper < q.Limit && lower > 1/q.Limit:
		return Answer{Tie, e}
	}
	e = EffectOf(r, spends/2)
	if e.Lower > 1 || e.Upper < 1 {
		return Answer{Differs, e}
	}
	return Answer{BoundedAbove, e}
}

func bounded(met, not bool, otherwise Verdict) Verdict {
	switch {
	case met:
		return Met
	case not:
		return NotMet
	}
	return otherwise
}

// Rare says how often a start was bad, and how often that may happen. A mean says
// nothing about it: no mean over twelve starts sees a state of one start in twenty.
type Rare struct {
	// Factor is the ratio of a bad start to that of the typical round: 2 for as much or
	// more, a half for as little or less.
	Factor float64 `json:"factor"`
	Seen   int     `json:"seen"`
	Starts int     `json:"starts"`
	// Most is the upper bound of the share of such starts among all starts, wrong
	// with probability RatioError (Clopper and Pearson 1934).
	Most Number `json:"share_upper_bound"`
}

// RareOf counts the starts whose mean ratio is at least factor times that of the typical
// round or, with a factor below 1, at most that.
func RareOf(r Rounds, factor float64) Rare {
	typical := EffectOf(r, RatioError)
	rare := Rare{Factor: factor, Starts: typical.Starts, Most: 1}
	for _, logs := range r {
		finiteLogs := slices.DeleteFunc(slices.Clone(logs), func(v float64) bool { return !finite(v) })
		mean, _ := meanOf(finiteLogs, RatioError)
		if limit := math.Log(float64(typical.Ratio) * factor); factor >= 1 && mean >= limit || factor < 1 && mean <= limit {
			rare.Seen++
		}
	}
	if rare.Seen < rare.Starts {
		rare.Most = Number(distuv.Beta{Alpha: float64(rare.Seen + 1), Beta: float64(rare.Starts - rare.Seen)}.Quantile(1 - RatioError))
	}
	return rare
}

// A Total is how much a mode did in the windows of one start, and their length.
type Total struct{ Amount, Seconds float64 }

// EffectOfTotals estimates the ratio of two rates over the whole run: all amounts by all
// seconds. A few bad seconds weigh in it as much as they last, and the typical round of
// EffectOf leaves them out. The bounds are Student's, over the starts, of the linear part
// of the logarithm of the ratio (the delta method for a ratio of sums). Each is wrong
// with probability alpha. Both modes have the same starts.
func EffectOfTotals(of, to map[int]Total, alpha float64) Effect {
	e := Effect{Error: alpha, Starts: len(of), Ratio: Number(math.NaN()), Lower: Number(math.NaN()), Upper: Number(math.NaN())}
	var top, bottom Total
	starts := slices.Sorted(maps.Keys(of)) // a sum must not depend on the order of a map
	for _, start := range starts {
		top = Total{top.Amount + of[start].Amount, top.Seconds + of[start].Seconds}
		bottom = Total{bottom.Amount + to[start].Amount, bottom.Seconds + to[start].Seconds}
	}
	if !(min(top.Amount, top.Seconds, bottom.Amount, bottom.Seconds) > 0) {
		return e
	}
	n := float64(len(starts))
	parts := make([]float64, len(starts))
	for i, start := range starts {
		a, b := of[start], to[start]
		parts[i] = n * (a.Amount/top.Amount - a.Seconds/top.Seconds - b.Amount/bottom.Amount + b.Seconds/bottom.Seconds)
	}
	log := math.Log(top.Amount / top.Seconds / (bottom.Amount / bottom.Seconds))
	_, reach := meanOf(parts, alpha)
	e.Ratio, e.Lower, e.Upper = Number(math.Exp(log)), Number(math.Exp(log-reach)), Number(math.Exp(log+reach))
	return e
}

// MeanOfStarts returns the mean of a value over the starts, with Student's bounds. Each
// bound is wrong with probability alpha; with one start there is none.
func MeanOfStarts(values []float64, alpha float64) (mean, lower, upper Number) {
	m, reach := meanOf(values, alpha)
	return Number(m), Number(m - reach), Number(m + reach)
}

// A Size is the smallest difference of two modes that most experiments show.
type Size struct {
	// Ratio is the ratio that 80 of 100 experiments show to be above 1.
	Ratio Number `json:"ratio"`
	// Least and Most bound it. In a recorded experiment, 8 of 10 short trials had the
	// size of the whole experiment between the two.
	Least Number `json:"least"`
	Most  Number `json:"most"`
}

const (
	// sizePower is the share of the experiments that show a difference of a Size.
	sizePower = 0.8
	// leastSize is the logarithm of the least Size that a trial can promise. Two of 120
	// recorded rounds, in which P90 was three times as high, are half of what bounds the
	// ratio, and most trials of a few rounds have none.
	leastSize = 0.05
	// sizeLeast and sizeMost are the factors of the logarithm of a Size for its bounds.
	sizeLeast, sizeMost = 0.6, 2
)

// SizeOf returns the size of the difference that an experiment of so many starts and
// rounds can show, if the log ratios of its rounds scatter as those that are known. A
// bound is wrong with probability alpha. Experiments of two equal modes are drawn from
// the known log ratios, with random signs; 80 of 100 have a lower bound that is not
// farther below 1 than the size is above it. What only a new start changes is not in it.
// The size is infinite if there are too few log ratios, or if so many rounds allow no
// verdict.
func SizeOf(logs []float64, starts, rounds int, alpha float64) Size {
	const experiments = 200
	never := Number(math.Inf(1))
	logs = slices.DeleteFunc(slices.Clone(logs), func(v float64) bool { return !finite(v) })
	if len(logs) < 2 {
		return Size{never, never, never}
	}
	mean, _ := meanSD(logs)
	wider := math.Sqrt(float64(len(logs)) / float64(len(logs)-1)) // their own mean was taken off
	rng := rand.New(rand.NewPCG(uint64(starts), uint64(rounds)))  // the same for the same data
	below := make([]float64, experiments)
	for i := range below {
		r := Rounds{}
		for start := range starts {
			for range rounds {
				r[start] = append(r[start], wider*(logs[rng.IntN(len(logs))]-mean)*float64(2*rng.IntN(2)-1))
			}
		}
		e := EffectOf(r, alpha)
		if !e.IsEnough() {
			return Size{never, never, never}
		}
		below[i] = -math.Log(float64(e.Lower))
	}
	slices.Sort(below)
	size := max(below[int(sizePower*experiments)], leastSize)
	return Size{Number(math.Exp(size)), Number(math.Exp(sizeLeast * size)), Number(math.Exp(sizeMost * size))}
}
