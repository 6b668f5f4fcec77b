package lab

import (
	"math"
	"testing"
)

// ffmpegs models batch work: CPU use follows the read rate, with another cost
// per second of film than calibration found, and an end.
type ffmpegs struct{ processes, perMedia, most float64 }

func (f ffmpegs) use(rate float64) float64 { return min(rate*f.processes*f.perMedia, f.most) }

func TestPacerReachesEqualUse(t *testing.T) {
	for name, cost := range map[string]float64{"as calibrated": 0.8, "cheaper": 0.5, "dearer": 1.3} {
		t.Run(name, func(t *testing.T) {
			p := pacer{Tested: 1, Processes: 2, PerMedia: 0.8, LSCPUs: 0.3}
			real := ffmpegs{2, cost, 0.7}
			equal := 0
			for run := range 6 {
				p.ObserveTarget(64 + float64(run%2)) // the watermark mode, with its noise
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
		processes, threads := Batch(n)
		if 2*processes*threads < 3*n {
			t.Errorf("%d CPUs: %d processes of %d threads are fewer than 1.5 threads each", n, processes, threads)
		}
	}
	if p, th := Batch(1); p != 1 || th != 2 {
		t.Errorf("one CPU: %d processes of %d threads", p, th)
	}
}

func TestFindRate(t *testing.T) {
	tests := map[string]struct {
		perRequest, clientCost float64 // CPU seconds
		want                   float64
		limited                bool
	}{
		"linear":           {20e-6, 10e-6, 15000, false},
		"slow service":     {1e-3, 10e-6, 300, false},
		"client too small": {20e-6, 60e-6, 7000, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rate, limited, lines, err := findRate(0.3, 3000, func(rate float64) (trial, error) {
				return trial{answered: rate, ls: rate * tt.perRequest, busy: rate * tt.clientCost}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(rate/tt.want-1) > 0.05 || limited != tt.limited {
				t.Errorf("rate %v limited %v, want %v %v:\n%v", rate, limited, tt.want, tt.limited, lines)
			}
		})
	}
}

func TestFindRateFollowsACurve(t *testing.T) {
	// Batching makes a busy server cheaper per request.
	use := func(rate float64) float64 { return 25e-6 * rate / (1 + rate/60000) }
	rate, _, _, err := findRate(0.3, 3000, func(rate float64) (trial, error) { return trial{answered: rate, ls: use(rate), busy: 1e-6 * rate}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := use(rate); math.Abs(got/0.3-1) > 0.05 {
		t.Errorf("%v requests/s use %.3f CPUs, want 0.3", rate, got)
	}
}

func TestThreeDigits(t *testing.T) {
	for in, want := range map[float64]float64{14567: 14600, 0.012345: 0.0123, 999.6: 1000, 0: 0} {
		if got := threeDigits(in); math.Abs(got-want) > 1e-9*want {
			t.Errorf("threeDigits(%v) = %v, want %v", in, got, want)
		}
	}
}

func TestDisturbedTrialsDoNotRaiseTheRate(t *testing.T) {
	n := 0
	rate, _, lines, err := findRate(0.3, 3000, func(rate float64) (trial, error) {
		n++
		if n == 3 { // the service was kept from running
			return trial{answered: rate / 100, ls: 0.001, busy: 0.001}, nil
		}
		return trial{answered: rate, ls: 20e-6 * rate, busy: 10e-6 * rate}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(rate/15000-1) > 0.05 {
		t.Errorf("rate %v:\n%v", rate, lines)
	}
	_, _, _, err = findRate(0.3, 3000, func(rate float64) (trial, error) { return trial{answered: 1}, nil })
	if err == nil {
		t.Error("no error where nothing is answered")
	}
}
