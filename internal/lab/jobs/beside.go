package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Wave holds the jobs of one cell that ran at the same time on one node. The
// published experiment started a cell once, on the whole cluster. Its jobs may
// therefore be divided unevenly among the nodes, or one job may have waited for
// room and run alone.
type Wave struct {
	Cell Cell
	Host string
	Run  int // of the experiment; 0 in published tables
	Jobs []Job
	// Unread are the void jobs that ran in the wave too, as far as one knows.
	Unread []Job
	// Beside is the mean number of jobs that ran on the node during a job,
	// including the job itself. It may differ from the number of jobs that were
	// requested.
	Beside float64
	// Late is true if the jobs had waited for room: earlier jobs of the same
	// cell and node had ended before these jobs began.
	Late bool
	// Lopsided is true if another node had more or fewer jobs of the cell.
	Lopsided bool
}

// Waves divides jobs into waves, without the void jobs. A job joins a wave of
// its cell, run and node if a job of the wave still runs when it begins. In a
// run of the lab, a job also joins the wave if a job of the wave has the same
// number.
func Waves(all []Job) []Wave {
	type key struct {
		cell Cell
		host string
		run  int
	}
	groups := map[key][]Job{}
	for _, j := range Counted(all) {
		k := key{j.Cell(), j.Host, j.Extra.Run}
		groups[k] = append(groups[k], j)
	}
	var waves []Wave
	for k, group := range groups {
		var open Wave
		var until time.Time
		for _, j := range group {
			if len(open.Jobs) > 0 && !j.In.Before(until) && !(k.run > 0 && open.has(j.Index)) {
				waves = append(waves, open)
				open = Wave{Late: true}
			}
			open.Cell, open.Host, open.Run, open.Jobs = k.cell, k.host, k.run, append(open.Jobs, j)
			if j.Out.After(until) {
				until = j.Out
			}
		}
		waves = append(waves, open)
	}
	slices.SortFunc(waves, func(a, b Wave) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Host, b.Host), a.Jobs[0].In.Compare(b.Jobs[0].In))
	})
	addUnread(waves, all)
	for i := range waves {
		waves[i].Beside = meanConcurrency(waves[i].Jobs, waves[i].Unread)
		waves[i].Lopsided = slices.ContainsFunc(waves, func(o Wave) bool {
			return o.Cell == waves[i].Cell && o.Run == waves[i].Run && o.Host != waves[i].Host && !o.Late && len(o.Jobs) != len(waves[i].Jobs)
		})
	}
	return waves
}

// addUnread adds the jobs whose logs are lost or damaged to the waves in which they
// ran. If the times of such a job are not known, this is the first wave of its cell,
// run and node.
func addUnread(waves []Wave, all []Job) {
	for _, j := range all {
		if !j.Extra.Unread {
			continue
		}
		i := slices.IndexFunc(waves, func(w Wave) bool {
			return placeOf(j) == (place{w.Host, withoutThreads(w.Cell)}) && (j.Extra.Run == 0 || j.Extra.Run == w.Run) && !w.has(j.Index) &&
				(j.Duration() <= 0 || slices.ContainsFunc(w.Jobs, func(o Job) bool { return j.In.Before(o.Out) && o.In.Before(j.Out) }))
		})
		if i >= 0 {
			waves[i].Unread = append(waves[i].Unread, j)
		}
	}
}

func (w Wave) has(index int) bool {
	is := func(j Job) bool { return j.Index == index }
	return slices.ContainsFunc(w.Jobs, is) || slices.ContainsFunc(w.Unread, is)
}

// Slots returns how many jobs of the wave could run at once. Jobs that follow
// each other in one slot have the same number, and count once.
func (w Wave) Slots() int {
	numbers := map[int]bool{}
	for _, list := range [][]Job{w.Jobs, w.Unread} {
		for _, j := range list {
			numbers[j.Index] = true
		}
	}
	return len(numbers)
}

// meanConcurrency computes, for each job, how many jobs ran at the same time,
// weighted by time. It returns the mean over the jobs. An unread job whose times are
// not known counts for the whole time.
func meanConcurrency(jobs, unread []Job) float64 {
	sum, n := 0.0, 0
	for _, j := range jobs {
		if local, ok := j.Extra.LocalJobs.Value(); ok {
			sum += local
			n++
			continue
		}
		if j.Duration() <= 0 {
			continue
		}
		shared := time.Duration(0)
		for _, list := range [][]Job{jobs, unread} {
			for _, o := range list {
				if o.Duration() <= 0 && o.Extra.Unread {
					o.In, o.Out = j.In, j.Out
				}
				from, to := maxTime(j.In, o.In), minTime(j.Out, o.Out)
				shared += max(to.Sub(from), 0)
			}
		}
		sum += float64(shared) / float64(j.Duration())
		n++
	}
	if n == 0 {
		return float64(len(jobs))
	}
	return sum / float64(n)
}

// maxForeign bounds the number of other jobs (of other cells, or void) that ran
// beside a job. It is a share of the jobs of the same cell that ran at that time.
const maxForeign = 0.05

// VoidMixed makes a job void if jobs of other cells, or void jobs, ran beside
// it on the same node. The time of such a job belongs to no cell. It also makes
// jobs void that took no time. Jobs that are void already keep their reason.
func VoidMixed(all []Job) {
	for i := range all {
		if j := &all[i]; j.Extra.Void == "" && j.Duration() <= 0 {
			j.Extra.Void = "it took 0 s: its table has no shorter times than 1 s"
		}
	}
	hosts, cells, sound := map[string]*presence{}, map[place]*presence{}, map[place]*presence{}
	for _, j := range all {
		if j.Duration() <= 0 && j.Extra.Unread {
			continue // its times are not known
		}
		addTo(hosts, j.Host, j)
		addTo(cells, placeOf(j), j)
		if j.Extra.Void == "" || j.Extra.Unread {
			addTo(sound, placeOf(j), j)
		}
	}
	for i := range all {
		j := &all[i]
		if j.Extra.Void != "" {
			continue
		}
		at := placeOf(*j)
		own, same, every := sound[at].mean(*j), cells[at].mean(*j), hosts[j.Host].mean(*j)
		switch {
		case every-same > maxForeign*own:
			j.Extra.Void = fmt.Sprintf("%.1f jobs of other cells ran beside it", every-same)
		case same-own > maxForeign*own:
			j.Extra.Void = fmt.Sprintf("%.1f jobs that are void ran beside it", same-own)
		}
	}
}

// A place is where the jobs of a cell run beside each other.
type place struct {
	host string
	cell Cell
}

func placeOf(j Job) place { return place{j.Host, withoutThreads(j.Cell())} }

// withoutThreads returns the cell without its threads, which a log that is cut off
// does not name.
func withoutThreads(c Cell) Cell {
	c.Threads = 0
	return c
}

// A presence has the times at which jobs began and ended. The times are in
// seconds since the begin of the first added job.
type presence struct {
	zero     time.Time
	in, out  []float64
	sumsOnce bool
	sumIn    []float64 // sumIn[i] is the sum of the first i begins
	sumOut   []float64
}

func addTo[K comparable](m map[K]*presence, k K, j Job) {
	p := m[k]
	if p == nil {
		p = &presence{zero: j.In}
		m[k] = p
	}
	p.in, p.out = append(p.in, j.In.Sub(p.zero).Seconds()), append(p.out, j.Out.Sub(p.zero).Seconds())
}

// mean returns how many jobs ran during the job, on average.
func (p *presence) mean(j Job) float64 {
	if !p.sumsOnce {
		p.sumsOnce = true
		slices.Sort(p.in)
		slices.Sort(p.out)
		p.sumIn, p.sumOut = sums(p.in), sums(p.out)
	}
	from, to := j.In.Sub(p.zero).Seconds(), j.Out.Sub(p.zero).Seconds()
	return (p.until(to) - p.until(from)) / (to - from)
}

// until returns the job seconds up to a time.
func (p *presence) until(at float64) float64 {
	began, _ := slices.BinarySearch(p.in, at)
	ended, _ := slices.BinarySearch(p.out, at)
	return at*float64(began) - p.sumIn[began] - (at*float64(ended) - p.sumOut[ended])
}

func sums(of []float64) []float64 {
	all := make([]float64, 1, len(of)+1)
	for i, v := range of {
		all = append(all, all[i]+v)
	}
	return all
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Seconds returns how long a job of the wave takes, on average.
func (w Wave) Seconds() float64 {
	sum := 0.0
	for _, j := range w.Jobs {
		sum += j.Seconds()
	}
	return sum / float64(len(w.Jobs))
}

// CPUSeconds returns the mean CPU time of the wave's jobs. measured is true if
// the CPU time of each job was measured. Otherwise the time is computed as
// limit × duration, and is NaN if a job has no limit.
func (w Wave) CPUSeconds() (seconds float64, measured bool) {
	measured = true
	for _, j := range w.Jobs {
		s, m := j.CPUSeconds()
		seconds += s
		measured = measured && m
	}
	return seconds / float64(len(w.Jobs)), measured
}

// Demand returns how many CPUs the jobs of the wave requested together on their
// node, as a mean over time. A job without a limit counts with the CPU that it
// used. 0 means not known.
func (w Wave) Demand() float64 {
	if w.Cell.CPU > 0 {
		return w.Beside * w.Cell.CPU.Cores()
	}
	cost, measured := w.CPUSeconds()
	if !measured {
		return 0
	}
	return w.Beside * cost / w.Seconds()
}
