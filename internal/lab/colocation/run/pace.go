package run

import (
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/report"
)

// equalPoints is the largest accepted difference between the CPU use of a paced
// run and Target, in percentage points. The published experiments compare modes
// at equal CPU use.
const equalPoints = 3.0

// firstTarget takes the place of Target until the watermark mode has been
// measured. It is a CPU use in percent, and equals the watermark.
const firstTarget = 65.0

// A pacer chooses how fast batch work without a CPU limit reads its input. The
// CPU use must equal that of the watermark mode, in which CPU suppress limits
// the batch work. The pacer corrects the rate after each run.
type pacer struct {
	Tested    int     // number of tested CPUs
	Processes int     // number of processes of the batch work
	PerMedia  float64 // CPU seconds per second of media, over all processes
	LSCPUs    float64 // CPUs that the service and other threads use, from calibration

	Follows report.Mode // the watermark mode to which paced runs are equal

	targets []float64 // measured CPU use of the watermark mode, in percent
	rate    float64   // last read rate; 0 before the first one
}

// Target returns the CPU use that paced runs must reach, in percent of the
// tested CPUs. It is the mean over the runs of the watermark mode so far.
func (p *pacer) Target() float64 {
	if len(p.targets) == 0 {
		return firstTarget
	}
	var sum float64
	for _, t := range p.targets {
		sum += t
	}
	return sum / float64(len(p.targets))
}

// ObserveTarget adds the CPU use of a run of the watermark mode.
func (p *pacer) ObserveTarget(percent float64) { p.targets = append(p.targets, percent) }

// Rate returns how fast each process may read, in seconds of media per second.
func (p *pacer) Rate() float64 {
	if p.rate == 0 {
		be := p.Target()/100*float64(p.Tested) - p.LSCPUs
		p.rate = be / (p.PerMedia * float64(p.Processes))
	}
	p.rate = min(max(p.rate, 0.01), 1000)
	if math.IsNaN(p.rate) {
		p.rate = 1
	}
	return p.rate
}

// ObservePaced corrects the rate after a paced run. total is the CPU use of the
// run in percent of the tested CPUs. be is the number of CPUs that the batch
// work used. One correction at most halves or doubles the rate: if the batch
// work did not reach the rate, a large correction would be wrong.
func (p *pacer) ObservePaced(total, be float64) {
	wanted := (p.Target() - total) / 100 * float64(p.Tested)
	if be <= 0 {
		return
	}
	p.rate = p.Rate() * min(max((be+wanted)/be, 0.5), 2)
}

// Equal reports whether total differs from the target by at most equalPoints.
func (p *pacer) Equal(total float64) bool { return math.Abs(total-p.Target()) <= equalPoints }

// Judge corrects the rate after a run. If the CPU use of a paced run is not
// equal to the target, the run is void.
func (p *pacer) Judge(r *report.Run, t report.ModeSpec) {
	if t.Paced {
		if !p.Equal(r.CPUPercent) {
			r.Discard(report.NotItsMode, fmt.Sprintf("not at equal utilisation: %.1f %% of the tested CPUs, %s uses %.1f %%",
				r.CPUPercent, p.Follows, p.Target()))
		}
		p.ObservePaced(r.CPUPercent, r.BECPU)
	}
	if t.Mode == p.Follows && len(r.Void) == 0 {
		p.ObserveTarget(r.CPUPercent)
	}
}

// watermarks lists the modes with CPU suppress. The first one that runs sets the CPU use of
// paced runs.
var watermarks = []report.Mode{report.SLOAware, report.SLOAwareQuota, report.Tenon65}

// followed returns the mode to which paced runs are equal.
func followed(modes []report.Mode) report.Mode {
	for _, m := range watermarks {
		if slices.Contains(modes, m) {
			return m
		}
	}
	return report.Tenon65
}

// batch computes the size of the batch work for n tested CPUs. The published
// experiment has 30 processes of 2 threads on 104 CPUs. It starts at least
// 1.5 threads per tested CPU, so that the batch work can fill the CPUs.
func batch(n int) (processes, threads int) {
	threads = 2
	processes = max((n*30+103)/104, (3*n+2*threads-1)/(2*threads), 1)
	return processes, threads
}
