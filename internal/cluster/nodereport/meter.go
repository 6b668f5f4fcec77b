package nodereport

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// sampleEvery is the length of a sample, over which CPU and memory usage are
	// averaged.
	sampleEvery = 5 * time.Second
	// maxGap is the maximum time between two snapshots. After a longer gap, the
	// usage is unknown.
	maxGap = 30 * time.Second
)

// windows are the periods over which percentiles are reported.
var windows = []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute}

// maxSamples is the number of samples in the longest window.
var maxSamples = int(windows[len(windows)-1] / sampleEvery)

// A sample is the resource usage of the node in one period.
type sample struct {
	length time.Duration
	cpu    unit.MilliCPU
	memory unit.Bytes
}

// A Meter stores the resource usage of the node over the longest window. The
// zero Meter has no samples.
type Meter struct {
	at      time.Time     // time of the snapshot at which the next sample begins
	used    time.Duration // CPU time counter in that snapshot
	samples []sample      // the oldest first
}

// Observe adds a snapshot.
func (m *Meter) Observe(s node.Snapshot) {
	used, known := s.Usage.CPU.Value()
	memory, sized := s.Usage.WorkingSet.Value()
	if !known || !sized {
		return
	}
	elapsed := s.At.Sub(m.at)
	switch {
	case m.at.IsZero() || elapsed < 0 || elapsed > maxGap || used < m.used:
	case elapsed < sampleEvery:
		return
	default:
		m.samples = append(m.samples, sample{elapsed, unit.MilliCPU((used - m.used) * 1000 / elapsed), memory})
		if len(m.samples) > maxSamples {
			m.samples = slices.Delete(m.samples, 0, len(m.samples)-maxSamples)
		}
	}
	m.at, m.used = s.At, used
}

// Usage returns the resource usage in the last sample, or an empty Usage if
// there is no sample yet.
func (m *Meter) Usage() v1alpha1.Usage {
	if len(m.samples) == 0 {
		return v1alpha1.Usage{}
	}
	last := m.samples[len(m.samples)-1]
	return usage(last.cpu, last.memory)
}

func usage(c unit.MilliCPU, b unit.Bytes) v1alpha1.Usage {
	cpu, memory := quantity.OfCPU(c), quantity.OfMemory(b)
	return v1alpha1.Usage{CPU: &cpu, Memory: &memory}
}

// Percentiles returns the percentiles of the windows that have enough samples.
func (m *Meter) Percentiles() []v1alpha1.Percentiles {
	var all []v1alpha1.Percentiles
	for _, w := range windows {
		var length time.Duration
		first := len(m.samples)
		for first > 0 && length < w {
			first--
			length += m.samples[first].length
		}
		if length < w-sampleEvery {
			return all
		}
		var cpu []unit.MilliCPU
		var memory []unit.Bytes
		for _, s := range m.samples[first:] {
			cpu, memory = append(cpu, s.cpu), append(memory, s.memory)
		}
		slices.Sort(cpu)
		slices.Sort(memory)
		at := func(percent int) v1alpha1.Usage { return usage(rank(cpu, percent), rank(memory, percent)) }
		all = append(all, v1alpha1.Percentiles{
			Window: metav1.Duration{Duration: w}, P50: at(50), P90: at(90), P95: at(95), P99: at(99),
		})
	}
	return all
}

// rank returns a percentile of sorted values: the smallest value that percent
// of all values do not exceed.
func rank[T any](sorted []T, percent int) T {
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}
