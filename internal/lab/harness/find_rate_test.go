package harness

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

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
			rate, limited, lines, err := FindRate(0.3, 3000, 800*time.Millisecond, func(rate float64) (Trial, error) {
				return Trial{Answered: rate, LS: rate * tt.perRequest, Busy: rate * tt.clientCost}, nil
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
	// Because of batching, a busy server uses less CPU per request.
	use := func(rate float64) float64 { return 25e-6 * rate / (1 + rate/60000) }
	rate, _, _, err := FindRate(0.3, 3000, 800*time.Millisecond, func(rate float64) (Trial, error) { return Trial{Answered: rate, LS: use(rate), Busy: 1e-6 * rate}, nil })
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
	rate, _, lines, err := FindRate(0.3, 3000, 800*time.Millisecond, func(rate float64) (Trial, error) {
		n++
		if n == 3 { // the service could not run
			return Trial{Answered: rate / 100, Overloaded: true, LS: 0.001, Busy: 0.001}, nil
		}
		return Trial{Answered: rate, LS: 20e-6 * rate, Busy: 10e-6 * rate}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(rate/15000-1) > 0.05 {
		t.Errorf("rate %v:\n%v", rate, lines)
	}
	_, _, _, err = FindRate(0.3, 3000, 800*time.Millisecond, func(rate float64) (Trial, error) { return Trial{Answered: 1, Overloaded: true}, nil })
	if err == nil {
		t.Error("no error although no request is answered")
	}
}

// TestFindRateOfASlowService has a service that answers at most twenty requests
// per second, and thirty tests with other random numbers. In a trial of 2.5 s the
// number of requests that are due is a matter of chance.
func TestFindRateOfASlowService(t *testing.T) {
	const capacity, length = 20, 2500 * time.Millisecond
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		rate, _, lines, err := FindRate(0.3, 3000, length, func(rate float64) (Trial, error) {
			due, answered := 0, 0
			free := 0.0 // when the service has answered all earlier requests
			var begin load.Interval
			for at := random.ExpFloat64() / rate; at < length.Seconds(); at += random.ExpFloat64() / rate {
				due++
				free = max(free, at) + 1.0/capacity
				if free < length.Seconds() {
					answered++
				}
				if due <= 20 {
					begin.Completed++
					begin.Mean += ((free-at)*1e6 - begin.Mean) / float64(due)
				}
			}
			r := load.Result{
				Length: length, Counts: load.Counts{Scheduled: int64(due)}, Limits: LoadSpec{}.Trial(rate, length).Limits, Intervals: []load.Interval{begin},
				OfferedRate: float64(due) / length.Seconds(), AchievedRate: float64(answered) / length.Seconds(),
			}
			return TrialOf(&r, float64(answered)/capacity/length.Seconds()), nil
		})
		if err != nil || rate < 2 || rate > capacity {
			t.Errorf("rate %v, error %v; want about 6:\n%v", rate, err, lines)
		}
	}
}
