package capacity

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/stat"
)

// ErrBeyond means that a prediction would go beyond what was measured.
var ErrBeyond = errors.New("not predicted")

const (
	further = 2 // a predicted cell may lie outside the measured values by this factor
	cores   = 4 // a predicted machine may have this many times the cores of the measured machine
)

// Predict returns the time of a job of a cell on a machine, in seconds. It
// gives the wider of two 95 % intervals: from the jackknife over blocks, and
// from the bootstrap over blocks. One block gives no interval. For a cell that
// is too far from the observations, it returns ErrBeyond.
func (f *Model) Predict(m Machine, c Cell) (stat.Estimate, error) {
	if err := errors.Join(m.Check(), c.check()); err != nil {
		return stat.Estimate{}, err
	}
	p := c.pointOn(m)
	if err := f.checkDistance(m, c, p); err != nil {
		return stat.Estimate{}, fmt.Errorf("%w: %w", ErrBeyond, err)
	}
	value, sound := p.seconds(f.of)
	if !sound {
		return stat.Estimate{}, fmt.Errorf("%w: the model gives no time there", ErrBeyond)
	}
	return f.interval(value, func(of [parameters]float64) (float64, bool) { return p.seconds(of) }), nil
}

func (c Cell) check() error {
	if c.Jobs < 1 || c.Limit < 0 || c.Threads < 0 {
		return fmt.Errorf("%d jobs with limit %g and %d threads: want at least one job, a limit from 0 and threads from 0", c.Jobs, c.Limit, c.Threads)
	}
	return nil
}

// interval estimates a value. The argument of is a function that computes its logarithm.
func (f *Model) interval(value float64, of func([parameters]float64) (float64, bool)) stat.Estimate {
	n := float64(len(f.without))
	pseudo := stat.Sample{}
	for i, w := range f.without {
		if v, ok := of(w); ok {
			pseudo[i] = n*value - (n-1)*v
		}
	}
	e := stat.Describe(pseudo)
	e.Value = value
	if e.Blocks < 2 {
		e.Low, e.High, e.Blocks = math.Inf(-1), math.Inf(1), 1
	}
	var drawn []float64
	for _, d := range f.drawn {
		if v, ok := of(d); ok {
			drawn = append(drawn, v)
		}
	}
	if len(drawn) > 1 {
		slices.Sort(drawn)
		tail := int((1 - stat.Level) / 2 * float64(len(drawn)))
		e.Low, e.High = min(e.Low, drawn[tail]), max(e.High, drawn[len(drawn)-1-tail])
	}
	return Estimate(math.Exp(e.Value), math.Exp(e.Low), math.Exp(e.High), e.Blocks)
}

// Estimate returns an estimate of which only the value and the two-sided interval
// are known. With less than two blocks, the interval is not known either.
func Estimate(value, low, high float64, blocks int) stat.Estimate {
	no := math.NaN()
	if blocks < 2 {
		low, high = no, no
	}
	return stat.Estimate{
		Value: value, Low: low, High: high, Blocks: blocks,
		Lower: no, Upper: no, Median: no, MedianLow: no, MedianHigh: no, ClaimLower: no, ClaimUpper: no,
	}
}

// checkDistance returns an error with the reason if a cell is too far from what
// was measured.
func (f *Model) checkDistance(m Machine, c Cell, p point) error {
	limits := func(of func(point) float64) (least, most float64) {
		least, most = math.Inf(1), 0
		for _, o := range f.points {
			least, most = min(least, of(o)), max(most, of(o))
		}
		return least, most
	}
	leastCPUs, mostCPUs := limits(func(o point) float64 { return o.cpus })
	_, mostTotal := limits(func(o point) float64 { return o.total })
	leastShared, mostShared := limits(func(o point) float64 { return o.sibling })
	leastBusy, mostBusy := limits(func(o point) float64 { return o.busy })
	const slack = 1e-9
	switch {
	case m.Cores > cores*f.Machine.Cores:
		return fmt.Errorf("%d cores are more than %d times the %d that were measured (at most %d)", m.Cores, cores, f.Machine.Cores, cores*f.Machine.Cores)
	case c.Jobs > further*f.most:
		return fmt.Errorf("%d jobs are more than twice the %d that were measured at once", c.Jobs, f.most)
	case p.total > further*mostTotal+slack:
		return fmt.Errorf("the jobs would use %.4g CPUs, more than twice the %.4g that were measured", p.total, mostTotal)
	case p.cpus > further*mostCPUs+slack:
		return fmt.Errorf("a job would use %.4g CPUs, more than twice the %.4g that were measured", p.cpus, mostCPUs)
	case p.cpus < leastCPUs/further-slack:
		return fmt.Errorf("a job would use %.4g CPUs, less than half of the %.4g that were measured", p.cpus, leastCPUs)
	case !f.fitted[sibling] && (p.sibling > mostShared+spread || p.sibling < leastShared-spread):
		return fmt.Errorf("siblings would be busy together %s, and only %s was measured", percent(p.sibling), percent(mostShared))
	case !f.fitted[clock] && (p.busy > mostBusy+spread || p.busy < leastBusy-spread):
		return fmt.Errorf("cores would be busy %s, and only %s to %s was measured", percent(p.busy), percent(leastBusy), percent(mostBusy))
	case !f.fitted[serial] && math.Max(1, p.cpus) > math.Max(1, mostCPUs)+slack:
		return fmt.Errorf("a job would use %.4g CPUs, and how it scales beyond %.4g was not measured", p.cpus, mostCPUs)
	}
	return nil
}

func percent(share float64) string { return fmt.Sprintf("%.0f %% of the time", 100*share) }

// A Parameter is a fitted parameter of the model, with a name for the report.
type Parameter struct {
	Name  string
	Value stat.Estimate
}

// Parameters returns the parameters that the observations determine. These are the
// CPU time of a job alone in seconds, two shares of a CPU's speed (taken by a busy
// sibling and by busy cores), and the two parameters of the law of scalability.
func (f *Model) Parameters() []Parameter {
	names := [parameters]string{"CPU-s of a job alone", "taken by a busy sibling", "taken by busy cores", "serial part", "coherence"}
	var all []Parameter
	for k, name := range names {
		if !f.fitted[k] {
			continue
		}
		if k == work {
			all = append(all, Parameter{name, f.interval(f.of[k], func(of [parameters]float64) (float64, bool) { return of[k], true })})
			continue
		}
		// 1−x is a factor, so the interval is computed from its logarithm.
		e := f.interval(math.Log1p(-f.of[k]), func(of [parameters]float64) (float64, bool) { return math.Log1p(-of[k]), of[k] < 1 })
		all = append(all, Parameter{name, Estimate(1-e.Value, 1-e.High, 1-e.Low, e.Blocks)})
	}
	return all
}
