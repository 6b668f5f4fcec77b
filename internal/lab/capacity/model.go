package capacity

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"tenon.sh/tenon/internal/lab/stat"
)

const (
	// resamples is the number of bootstrap samples of blocks.
	resamples = 100
	// spread decides which parameters are fitted. The effect of a parameter
	// must vary by at least this standard deviation between the observed
	// points. The part that earlier parameters explain does not count.
	spread = 0.08
	// miss is the largest relative error for held-out cells with which Fit returns a model.
	miss = 0.20
)

// An Observation holds the time of the jobs of one cell in seconds, by block.
type Observation struct {
	Cell    Cell
	Seconds stat.Sample
}

// A Model is the fit of the parameters to the observations of one machine.
type Model struct {
	Machine Machine
	of      [parameters]float64
	fitted  [parameters]bool
	without [][parameters]float64 // fits to all blocks but one
	drawn   [][parameters]float64 // fits to blocks drawn with replacement
	points  []point
	most    int // largest number of jobs in an observation
	// HeldOut is the largest error of a test, as a ratio above 1. The test
	// predicts the cells with the most jobs from all other cells. Held is the
	// number of predicted cells.
	HeldOut float64
	Held    int
}

// A meanObservation is an observation with its point, and with log times.
type meanObservation struct {
	point
	jobs int
	logs map[int]float64
}

// Fit makes the model of a machine. It returns an error if there are too few cells.
// It also fits a model without the cells that have the most jobs, and predicts these
// cells with it. If a prediction is wrong by more than a fifth, Fit returns an error.
func Fit(m Machine, all []Observation) (*Model, error) {
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("the size of the measured machine is not known: %w", err)
	}
	f := &Model{Machine: m}
	var data []meanObservation
	blocks := map[int]bool{}
	for _, o := range all {
		s := meanObservation{o.Cell.pointOn(m), o.Cell.Jobs, map[int]float64{}}
		for b, v := range o.Seconds {
			if v > 0 && !math.IsInf(v, 0) {
				s.logs[b] = math.Log(v)
				blocks[b] = true
			}
		}
		if len(s.logs) > 0 {
			data = append(data, s)
			f.points = append(f.points, s.point)
			f.most = max(f.most, o.Cell.Jobs)
		}
	}
	list := slices.Sorted(maps.Keys(blocks))
	f.fitted = determinedBy(f.points)
	if known := count(f.fitted); len(data) < known+2 {
		return nil, fmt.Errorf("%d cells are too few for a model: want at least %d", len(data), known+2)
	}
	of, ok := f.fit(data, list, [parameters]float64{})
	if !ok {
		return nil, fmt.Errorf("the %d cells do not determine the model", len(data))
	}
	f.of = of
	if err := f.holdOut(data, list); err != nil {
		return nil, err
	}
	f.repeat(data, list)
	return f, nil
}

// repeat fits the model again: without each block in turn, and to random samples of
// blocks. Each kind of fit gives an interval, and a prediction has the wider one.
func (f *Model) repeat(data []meanObservation, blocks []int) {
	if len(blocks) < 2 {
		return
	}
	for i := range blocks {
		rest := slices.Delete(slices.Clone(blocks), i, i+1)
		if of, ok := f.fit(data, rest, f.of); ok {
			f.without = append(f.without, of)
		}
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(blocks))))
	draw := make([]int, len(blocks))
	for range resamples {
		for i := range draw {
			draw[i] = blocks[rng.IntN(len(blocks))]
		}
		if of, ok := f.fit(data, draw, f.of); ok {
			f.drawn = append(f.drawn, of)
		}
	}
}

// fit fits the parameters in f.fitted to the given blocks. The list of blocks
// may have a block several times.
func (f *Model) fit(data []meanObservation, blocks []int, start [parameters]float64) ([parameters]float64, bool) {
	var points []point
	var y []float64
	for i, mean := range means(data, blocks) {
		if !math.IsNaN(mean) {
			points, y = append(points, data[i].point), append(y, mean)
		}
	}
	of := start
	if of == ([parameters]float64{}) && len(y) > 0 {
		for i := range y {
			of[work] += (y[i] + math.Log(points[i].cpus)) / float64(len(y))
		}
	}
	var free []float64
	for k, is := range f.fitted {
		if is {
			free = append(free, of[k])
		}
	}
	full := func(p []float64) (all [parameters]float64) {
		next := 0
		for k, is := range f.fitted {
			if is {
				all[k] = p[next]
				next++
			}
		}
		return all
	}
	got, ok := stat.Fit(y, func(p, to []float64) bool {
		all, sound := full(p), true
		for i := range points {
			var in bool
			to[i], in = points[i].seconds(all)
			sound = sound && in
		}
		return sound
	}, free)
	if !ok {
		return of, false
	}
	return full(got), true
}

// means returns the mean log time of each cell over the blocks. It first corrects
// for blocks that were slow for all their cells. Otherwise a cell without a slow
// block would look fast. A cell that has none of the blocks has the mean NaN.
func means(data []meanObservation, blocks []int) []float64 {
	mean := func(s meanObservation, off map[int]float64) float64 {
		sum, n := 0.0, 0
		for _, b := range blocks {
			if v, has := s.logs[b]; has {
				sum += v - off[b]
				n++
			}
		}
		return sum / float64(n)
	}
	all := make([]float64, len(data))
	for i, s := range data {
		all[i] = mean(s, nil)
	}
	off, seen, total := map[int]float64{}, map[int]int{}, 0.0
	for _, b := range blocks {
		if seen[b]++; seen[b] > 1 {
			total += off[b]
			continue
		}
		n := 0
		for i, s := range data {
			if v, has := s.logs[b]; has {
				off[b] += v - all[i]
				n++
			}
		}
		off[b] /= float64(max(n, 1))
		total += off[b]
	}
	for b := range off { // the mean of all corrections is 0
		off[b] -= total / float64(len(blocks))
	}
	for i, s := range data {
		all[i] = mean(s, off)
	}
	return all
}

// determinedBy returns the parameters that the points determine. The column of
// such a parameter is not a linear combination of the columns before it.
func determinedBy(points []point) (fitted [parameters]bool) {
	var basis [][]float64
	for k := range parameters {
		c := make([]float64, len(points))
		for i, p := range points {
			c[i] = p.column(k)
		}
		for _, b := range basis {
			along := dot(c, b)
			for i := range c {
				c[i] -= along * b[i]
			}
		}
		length := math.Sqrt(dot(c, c))
		if fitted[k] = length > spread*math.Sqrt(float64(len(points))); fitted[k] {
			for i := range c {
				c[i] /= length
			}
			basis = append(basis, c)
		}
	}
	return fitted
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func count(fitted [parameters]bool) (n int) {
	for _, is := range fitted {
		if is {
			n++
		}
	}
	return n
}

// holdOut predicts the cells with the most jobs from all others, and checks the error.
func (f *Model) holdOut(data []meanObservation, blocks []int) error {
	rest, held := f.parted(data)
	if len(held) == 0 || len(rest) < 2 {
		return fmt.Errorf("all cells have %d jobs at once: want at least two numbers of jobs", f.most)
	}
	points := make([]point, len(rest))
	for i, s := range rest {
		points[i] = s.point
	}
	short := &Model{Machine: f.Machine, fitted: determinedBy(points)}
	of, ok := short.fit(rest, blocks, [parameters]float64{})
	if !ok {
		return fmt.Errorf("the cells with fewer than %d jobs do not determine the model", f.most)
	}
	f.Held, f.HeldOut = len(held), 1
	for i, measured := range means(held, blocks) {
		said, sound := held[i].seconds(of)
		if !sound {
			return fmt.Errorf("the cells with fewer than %d jobs do not describe those with as many", f.most)
		}
		f.HeldOut = max(f.HeldOut, math.Exp(math.Abs(said-measured)))
	}
	if f.HeldOut > 1+miss {
		return fmt.Errorf("the model does not describe these jobs: it misses those with %d at once by up to %.0f %% when it knows the others", f.most, 100*(f.HeldOut-1))
	}
	return nil
}

func (f *Model) parted(data []meanObservation) (rest, held []meanObservation) {
	for _, s := range data {
		if s.jobs == f.most {
			held = append(held, s)
		} else {
			rest = append(rest, s)
		}
	}
	return rest, held
}
