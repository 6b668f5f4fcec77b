package overcommit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// PeakPrediction counts work by the peak that its history predicts, if this peak exceeds the
// present usage. So the offer at night leaves room for the peak of the next morning.
type PeakPrediction struct {
	Enable bool `json:"enable"`
	// MarginPercent is the safety margin that is added to each peak.
	MarginPercent unit.Percent `json:"margin_percent,omitempty"`
	// The history of a workload that is younger than ColdStart is too short, so
	// its request also counts.
	ColdStart time.Duration `json:"cold_start_ns,omitempty"`
}

// The model is Koordinator's peak prediction (pkg/koordlet/prediction). Each
// workload, and the system, has a histogram that gets one sample every minute.
const (
	peakEvery      = time.Minute
	cpuHalfLife    = 12 * time.Hour
	memoryHalfLife = 24 * time.Hour
	cpuPercentile  = 95
	memPercentile  = 98
	// keepPeaks is the time for which the history of an ended workload is kept. A service that
	// restarts within this time gets its history back, because its cgroup has the same name.
	keepPeaks = 30 * time.Minute
	// maxPeaks is the maximum number of histories. It bounds the memory that
	// they need. Work without a history counts by its request.
	maxPeaks = 1024
)

var (
	cpuScale    = trend.ScaleOf(25, 1024_000, 5)         // thousandths of a CPU
	memoryScale = trend.ScaleOf(5<<20>>10, 2<<40>>10, 5) // KiB
)

// A peak holds the largest usage in the present minute (MaxCPU, MaxMemory) and
// the predicted peak (CPU, Memory), in the units of the series.
type peak struct {
	MaxCPU    int64         `json:"max_cpu,omitempty"`
	MaxMemory int64         `json:"max_memory,omitempty"`
	CPU       int64         `json:"cpu,omitempty"`
	Memory    int64         `json:"memory,omitempty"`
	Watched   time.Duration `json:"watched_ns,omitempty"`
}

// Peaks holds what was learnt of the use of all workloads. The history of the system has the
// empty name.
type Peaks struct {
	Waited time.Duration               `json:"waited_ns,omitempty"` // time since the last sample
	Past   map[node.WorkloadID]history `json:"past,omitempty"`
}

// A history holds the past usage of one workload.
type history struct {
	Watched time.Duration   `json:"watched_ns"`
	Gone    time.Duration   `json:"gone_ns,omitempty"` // time since the workload ended
	CPU     trend.Histogram `json:"cpu"`
	Memory  trend.Histogram `json:"memory"`
}

// Watched returns how long the system was watched. It grows with each sample, and with
// nothing else.
func (p Peaks) Watched() time.Duration { return p.Past[""].Watched }

// After returns what is left of the histories when nobody has watched the node for some
// time. For each of them that is as if its workload had ended before.
func (p Peaks) After(unwatched time.Duration) Peaks {
	left := make(map[node.WorkloadID]history, len(p.Past))
	p.keep(left, max(unwatched, 0))
	return Peaks{Past: left}
}

// Check returns an error for histories that no State could have learnt.
func (p Peaks) Check() error {
	if len(p.Past) > maxPeaks {
		return fmt.Errorf("%d histories: want %d or fewer", len(p.Past), maxPeaks)
	}
	for id, h := range p.Past {
		err := errors.Join(h.CPU.Check(cpuScale, cpuHalfLife), h.Memory.Check(memoryScale, memoryHalfLife))
		if err == nil && (h.Watched <= 0 || h.Gone < 0) {
			err = fmt.Errorf("watched for %v, ended %v ago", h.Watched, h.Gone)
		}
		if err != nil {
			return fmt.Errorf("history of %q: %w", id, err)
		}
	}
	return nil
}

// peakOf returns the predicted peak of a workload, from its history.
func (p Peaks) peakOf(id node.WorkloadID, c PeakPrediction) peak { return p.Past[id].peak(c) }

// peak returns the peak that a history predicts.
func (h history) peak(c PeakPrediction) peak {
	cpu, _ := h.CPU.Percentile(cpuScale, cpuPercentile)
	memory, _ := h.Memory.Percentile(memoryScale, memPercentile)
	margin := 100 + int64(c.MarginPercent)
	return peak{CPU: cpu * margin / 100, Memory: memory * margin / 100, Watched: h.Watched}
}

// predict raises the peaks of this minute to the present usage. Once a minute
// it adds these peaks to the histories. It changes the accounts of d.
func (d *demand) predict(c PeakPrediction, sampled time.Duration, workloads []node.Workload) {
	if !c.Enable {
		d.Peaks = Peaks{}
		d.System.Peak = peak{}
		for i := range d.Work {
			d.Work[i].Peak = peak{}
		}
		return
	}
	d.System.raisePeak(d.Short)
	for i := range d.Work {
		if !usesBatch(&workloads[i]) {
			d.Work[i].raisePeak(d.Short)
		}
	}
	if d.Peaks.Waited += sampled; d.Peaks.Waited < peakEvery {
		return
	}
	elapsed := d.Peaks.Waited
	all := make(map[node.WorkloadID]history, len(d.Peaks.Past))
	d.System.learn(d.Peaks.Past, all, c, elapsed)
	for _, known := range []bool{true, false} { // work with a history first
		for i := range d.Work {
			_, has := d.Peaks.Past[d.Work[i].ID]
			if !usesBatch(&workloads[i]) && has == known && len(all) < maxPeaks {
				d.Work[i].learn(d.Peaks.Past, all, c, elapsed)
			}
		}
	}
	d.Peaks.keep(all, elapsed)
	d.Peaks = Peaks{Past: all}
}

// raisePeak raises the peak of this minute if the present usage is higher.
func (a *account) raisePeak(lasted parts) {
	a.Peak.MaxCPU = max(a.Peak.MaxCPU, mean(a.CPU.Short, lasted, a.CPU.Seen))
	a.Peak.MaxMemory = max(a.Peak.MaxMemory, mean(a.Memory.Short, lasted, a.Memory.Seen))
}

// learn adds the peak of the last minute to the history of a workload.
func (a *account) learn(before, all map[node.WorkloadID]history, c PeakPrediction, elapsed time.Duration) {
	h := before[a.ID]
	unseen := elapsed + h.Gone
	if a.CPU.Seen > 0 {
		h.CPU = h.CPU.Add(cpuScale, a.Peak.MaxCPU, unseen, cpuHalfLife)
	}
	if a.Memory.Seen > 0 {
		h.Memory = h.Memory.Add(memoryScale, a.Peak.MaxMemory, unseen, memoryHalfLife)
	}
	h.Watched += elapsed
	h.Gone = 0
	all[a.ID] = h
	a.Peak = h.peak(c)
}

// keep adds the histories of ended workloads to those of present ones (all).
// Workloads that ended last come first.
func (p Peaks) keep(all map[node.WorkloadID]history, elapsed time.Duration) {
	var gone []node.WorkloadID
	for id, h := range p.Past {
		if _, here := all[id]; !here && h.Gone+elapsed <= keepPeaks {
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, func(a, b node.WorkloadID) int {
		return cmp.Or(cmp.Compare(p.Past[a].Gone, p.Past[b].Gone), cmp.Compare(a, b))
	})
	for _, id := range gone[:min(len(gone), max(maxPeaks-len(all), 0))] {
		h := p.Past[id]
		h.Gone += elapsed
		all[id] = h
	}
}
