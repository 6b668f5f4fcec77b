package lab

import (
	"fmt"
	"math"

	"tenon.sh/tenon/internal/lab/report"
)

// equalPoints is how far, in points of CPU use, a paced run may be from the run
// that it is compared with. The published experiments compare at equal use.
const equalPoints = 3.0

// firstTarget is the CPU use that a paced run aims at before the watermark
// mode has been measured: the watermark itself.
const firstTarget = 65.0

// A pacer finds the read rate at which unbounded batch work uses as much CPU
// as batch work under the watermark. It learns from each run.
type pacer struct {
	Tested    int     // CPUs
	Processes int     // of the batch work
	PerMedia  float64 // CPU seconds per second of media, over all processes
	LSCPUs    float64 // what the service and the rest use, from calibration

	targets []float64 // measured CPU percent of the watermark mode
	rate    float64   // last read rate; 0: none yet
}

// Target is the CPU use, in percent of the tested CPUs, that paced runs must
// reach: the mean of the watermark mode so far.
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

// ObserveTarget adds a run of the watermark mode.
func (p *pacer) ObserveTarget(percent float64) { p.targets = append(p.targets, percent) }

// Rate is the read rate per process, in seconds of media per second.
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

// ObservePaced corrects the rate by the use of a paced run: total percent of
// the tested CPUs, and be CPUs of it by the batch work. The correction is
// bounded, since the batch work may not have reached its pace.
func (p *pacer) ObservePaced(total, be float64) {
	wanted := (p.Target() - total) / 100 * float64(p.Tested)
	if be <= 0 {
		return
	}
	p.rate = p.Rate() * min(max((be+wanted)/be, 0.5), 2)
}

// Equal reports whether total percent is equal use.
func (p *pacer) Equal(total float64) bool { return math.Abs(total-p.Target()) <= equalPoints }

// judge learns from a run, and voids one that is not at the use that it was
// paced to.
func (p *pacer) judge(r *report.Run, t report.ModeSpec) {
	if t.Paced {
		if !p.Equal(r.CPUPercent) {
			r.Void = append(r.Void, fmt.Sprintf("not at equal utilisation: %.1f %% of the tested CPUs, %s uses %.1f %%",
				r.CPUPercent, report.Tenon65, p.Target()))
		}
		p.ObservePaced(r.CPUPercent, r.BECPU)
	}
	if t.Suppress && len(r.Void) == 0 {
		p.ObserveTarget(r.CPUPercent)
	}
}

// Batch scales the published experiment, 30 processes of 2 threads on 104
// CPUs, to n tested CPUs; there are always at least 1.5 runnable threads per
// tested CPU, so that the batch work can fill them.
func Batch(n int) (processes, threads int) {
	threads = 2
	processes = max((n*30+103)/104, (3*n+2*threads-1)/(2*threads), 1)
	return processes, threads
}
