package harness

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// clientMost limits how busy the CPUs of the client may be at the offered rate.
// A run is void if its client uses more than half of its CPUs, so calibration
// stays well below that.
const clientMost = 0.42

// A Trial is one measurement during the search for the offered rate.
type Trial struct {
	Answered   float64 // requests per second
	Overloaded bool    // too few were answered (load.Result.Overloaded)
	LS         float64 // number of CPUs that the service used
	Busy       float64 // busy share of the client's CPUs
}

// TrialOf returns the trial that a load (LoadSpec.Trial) has measured. ls is the
// number of CPUs that the service used.
func TrialOf(r *load.Result, ls float64) Trial {
	return Trial{Answered: r.AchievedRate, Overloaded: r.Overloaded(), LS: ls, Busy: r.BusyRatio}
}

// trials is the number of trials after which the search ends, and leastRequests
// the number of requests in a trial below which it gives up.
const (
	trials        = 6
	leastRequests = 10
)

// FindRate searches for the request rate at which the service uses a number of
// CPUs (target). The parameter first is the rate of the first trial, and length
// is how long a trial takes. The search ends when the next rate would differ by
// at most 5 % from the measured one, or after six trials. A trial in which
// requests were not answered shows only that the rate must be lower. Until the
// first trial in which they were, the search goes on, even after six trials, as
// long as a trial has ten requests. If the client cannot send fast enough,
// FindRate returns the client's highest rate, and limited is true. lines describe
// the trials.
func FindRate(target, first float64, length time.Duration, measure func(rate float64) (Trial, error)) (rate float64, limited bool, lines []string, err error) {
	rate = threeDigits(first)
	good := 0.0 // the last rate at which the service answered all requests
	for n := 0; n < trials || good == 0; n++ {
		if n >= trials && rate*length.Seconds() < leastRequests {
			return 0, false, lines, fmt.Errorf("calibrate the load: the service answers not even %g requests/s in time: is something else using these CPUs?", 2*rate)
		}
		t, err := measure(rate)
		if err != nil {
			return 0, false, lines, err
		}
		if t.Overloaded || t.Answered <= 0 || t.LS <= 0 {
			lines = append(lines, fmt.Sprintf("%g requests/s: only %.0f were answered", rate, t.Answered))
			if good == 0 {
				rate = threeDigits(rate / 2)
			} else if rate > good {
				rate = threeDigits((rate + good) / 2)
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("%g requests/s: the service uses %.3f CPUs, the client %s of its own", rate, t.LS, percent(t.Busy)))
		good = rate
		factor := target / t.LS
		limited = t.Busy*factor > clientMost
		if limited {
			factor = clientMost / t.Busy
		}
		// A busier server needs less CPU per request. So after a trial at a low
		// rate, the next rate is too low. After a disturbed trial, the next
		// rate may be far from right. Therefore limit the change in one step.
		next := threeDigits(rate * min(max(factor, 0.05), 4))
		if math.Abs(next/rate-1) <= 0.05 {
			return rate, limited, lines, nil
		}
		rate = next
	}
	return threeDigits(min(rate, 1.5*good)), limited, lines, nil
}

func threeDigits(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	digits := 2 - math.Floor(math.Log10(x)) // decimal places
	if digits > 0 {                         // a tenth has no exact binary form
		return math.Round(x*math.Pow(10, digits)) / math.Pow(10, digits)
	}
	return math.Round(x/math.Pow(10, -digits)) * math.Pow(10, -digits)
}

func percent(ratio float64) string { return strconv.FormatFloat(100*ratio, 'f', 1, 64) + " %" }
