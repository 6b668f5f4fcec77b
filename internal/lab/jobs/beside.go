package jobs

import (
	"cmp"
	"slices"
	"time"
)

// A Wave holds the jobs of one cell that ran at the same time on one node. In
// the published experiment, a cell was started once for the whole cluster.
// Therefore its jobs may be divided unevenly among the nodes, or one of them
// may have waited for room and run alone.
type Wave struct {
	Cell Cell
	Host string
	Run  int // of the experiment; 0 in published tables
	Jobs []Job
	// Beside is the mean number of jobs that ran on the node during a job,
	// including the job itself. It may differ from the number of jobs that were
	// requested.
	Beside float64
	// Late is true if the jobs had waited for room: they began after other jobs
	// of the same cell and node had ended.
	Late bool
	// Lopsided is true if another node had more or fewer jobs of the cell.
	Lopsided bool
}

// Waves groups the jobs that are not void by cell, run, node and time. A job
// belongs to the wave of earlier jobs of the same cell and node if it begins
// before all of them have ended. A job also belongs to that wave if it follows
// the job with the same number in the same run.
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
	for i := range waves {
		waves[i].Beside = meanConcurrency(waves[i].Jobs)
		waves[i].Lopsided = slices.ContainsFunc(waves, func(o Wave) bool {
			return o.Cell == waves[i].Cell && o.Run == waves[i].Run && o.Host != waves[i].Host && !o.Late && len(o.Jobs) != len(waves[i].Jobs)
		})
	}
	return waves
}

func (w Wave) has(index int) bool {
	return slices.ContainsFunc(w.Jobs, func(j Job) bool { return j.Index == index })
}

// Slots returns how many jobs of the wave could run at once. Jobs that follow
// each other in one slot have the same number, and count once.
func (w Wave) Slots() int {
	numbers := map[int]bool{}
	for _, j := range w.Jobs {
		numbers[j.Index] = true
	}
	return len(numbers)
}

// meanConcurrency computes, for each job, how many jobs ran at the same time,
// weighted by time. It returns the mean over the jobs.
func meanConcurrency(jobs []Job) float64 {
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
		for _, o := range jobs {
			from, to := maxTime(j.In, o.In), minTime(j.Out, o.Out)
			shared += max(to.Sub(from), 0)
		}
		sum += float64(shared) / float64(j.Duration())
		n++
	}
	if n == 0 {
		return float64(len(jobs))
	}
	return sum / float64(n)
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
// limit × duration.
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
// node, as a mean over time. A job without a limit requests what it uses. 0
// means that this is not known.
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
