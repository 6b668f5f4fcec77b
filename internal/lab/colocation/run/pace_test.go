package run

import (
	"math"
	"testing"
)

// ffmpegs is a model of batch work. Up to a limit, its CPU use is proportional
// to the read rate. Its cost per second of film differs from the calibrated
// cost.
type ffmpegs struct{ processes, perMedia, most float64 }

func (f ffmpegs) use(rate float64) float64 { return min(rate*f.processes*f.perMedia, f.most) }

func TestPacerReachesEqualUse(t *testing.T) {
	for name, cost := range map[string]float64{"as calibrated": 0.8, "cheaper": 0.5, "dearer": 1.3} {
		t.Run(name, func(t *testing.T) {
			p := pacer{Tested: 1, Processes: 2, PerMedia: 0.8, LSCPUs: 0.3}
			real := ffmpegs{2, cost, 0.7}
			equal := 0
			for run := range 6 {
				p.ObserveTarget(64 + float64(run%2)) // the watermark mode with noise
				be := real.use(p.Rate())
				total := 100 * (0.3 + be)
				if p.Equal(total) {
					equal++
				}
				p.ObservePaced(total, be)
			}
			if equal < 4 {
				t.Errorf("only %d of 6 runs at equal use, target %.1f", equal, p.Target())
			}
		})
	}
}

func TestPacerAimsAtTheWatermarkFirst(t *testing.T) {
	p := pacer{Tested: 4, Processes: 4, PerMedia: 0.5, LSCPUs: 1.2}
	if want := (0.65*4 - 1.2) / (0.5 * 4); math.Abs(p.Rate()-want) > 1e-9 {
		t.Errorf("rate %v, want %v", p.Rate(), want)
	}
}

func TestPacerNeverAsksForTheImpossible(t *testing.T) {
	for name, p := range map[string]pacer{
		"service above the watermark": {Tested: 1, Processes: 1, PerMedia: 1, LSCPUs: 0.9},
		"nothing measured":            {},
	} {
		t.Run(name, func(t *testing.T) {
			if r := p.Rate(); !(r >= 0.01 && r <= 1000) {
				t.Errorf("rate %v", r)
			}
		})
	}
}

func TestBatchFillsTheCPUs(t *testing.T) {
	for n := 1; n <= 256; n++ {
		processes, threads := batch(n)
		if 2*processes*threads < 3*n {
			t.Errorf("%d CPUs: %d processes of %d threads are fewer than 1.5 threads each", n, processes, threads)
		}
	}
	if p, th := batch(1); p != 1 || th != 2 {
		t.Errorf("one CPU: %d processes of %d threads", p, th)
	}
}
