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
// is too far from the observations, it returns a Beyond.
func (f *Model) Predict(m Machine, c Cell) (stat.Estimate, error) {
	if err := errors.Join(m.Check(), c.check()); err != nil {
		return stat.Estimate{}, err
	}
	p := c.pointOn(m)
	if err := f.checkDistance(m, c, p); err != nil {
		return stat.Estimate{}, err
	}
	value, sound := p.seconds(f.of)
	if !sound {
		return stat.Estimate{}, Beyond{}
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
		return Beyond{ManyCores, float64(m.Cores), 0, float64(f.Machine.Cores)}
	case c.Jobs > further*f.most:
		return Beyond{ManyJobs, float64(c.Jobs), 0, float64(f.most)}
	case p.total > further*mostTotal+slack:
		return Beyond{ManyCPUs, p.total, 0, mostTotal}
	case p.cpus > further*mostCPUs+slack:
		return Beyond{WideJob, p.cpus, 0, mostCPUs}
	case p.cpus < leastCPUs/further-slack:
		return Beyond{NarrowJob, p.cpus, leastCPUs, 0}
	case !f.fitted[sibling] && (p.sibling > mostShared+spread || p.sibling < leastShared-spread):
		return Beyond{Siblings, p.sibling, leastShared, mostShared}
	case !f.fitted[clock] && (p.busy > mostBusy+spread || p.busy < leastBusy-spread):
		return Beyond{BusyCores, p.busy, leastBusy, mostBusy}
	case !f.fitted[serial] && math.Max(1, p.cpus) > math.Max(1, mostCPUs)+slack:
		return Beyond{Scaling, p.cpus, 0, mostCPUs}
	}
	return nil
}

// A Bound is one of the bounds of what a model predicts.
type Bound int

// The bounds.
const (
	NoTime    Bound = iota // the model gives no time there
	ManyCores              // of the machine
	ManyJobs
	ManyCPUs // of all jobs together
	WideJob  // the CPUs of a job
	NarrowJob
	Siblings  // the time for which siblings are busy together
	BusyCores // the time for which cores are busy
	Scaling   // how a job scales
)

// Beyond is the error of a prediction that would go beyond what was measured. Of is
// the value of the cell or of the machine. Least and Most were measured. It is
// ErrBeyond.
type Beyond struct {
	Bound           Bound
	Of, Least, Most float64
}

// Is reports whether err is ErrBeyond.
func (b Beyond) Is(err error) bool { return err == ErrBeyond }

func (b Beyond) Error() string { return ErrBeyond.Error() + ": " + b.Text() }

// Text says what would go beyond which measurement.
func (b Beyond) Text() string {
	switch b.Bound {
	case ManyCores:
		return fmt.Sprintf("%g cores are more than %d times the %g that were measured (at most %g)", b.Of, cores, b.Most, cores*b.Most)
	case ManyJobs:
		return fmt.Sprintf("%g jobs are more than twice the %g that were measured at once", b.Of, b.Most)
	case ManyCPUs:
		return fmt.Sprintf("the jobs would use %.4g CPUs, more than twice the %.4g that were measured", b.Of, b.Most)
	case WideJob:
		return fmt.Sprintf("a job would use %.4g CPUs, more than twice the %.4g that were measured", b.Of, b.Most)
	case NarrowJob:
		return fmt.Sprintf("a job would use %.4g CPUs, less than half of the %.4g that were measured", b.Of, b.Least)
	case Siblings:
		return fmt.Sprintf("siblings would be busy together %s, and only %s was measured", percent(b.Of), percent(b.Most))
	case BusyCores:
		return fmt.Sprintf("cores would be busy %s, and only %s to %s was measured", percent(b.Of), percent(b.Least), percent(b.Most))
	case Scaling:
		return fmt.Sprintf("a job would use %.4g CPUs, and how it scales beyond %.4g was not measured", b.Of, b.Most)
	}
	return "the model gives no time there"
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
