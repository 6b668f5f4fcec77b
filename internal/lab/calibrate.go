package lab

import (
	"context"
	"fmt"
	"math"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// clientMost is how busy the client's CPUs may be at the offered rate: half
// of them voids a run, so calibration stays well below.
const clientMost = 0.42

// A trial is one measurement on the way to the offered rate.
type trial struct {
	answered float64 // requests per second
	ls       float64 // CPUs that the service used
	busy     float64 // share of the client's CPUs that was busy
}

// findRate looks for the rate at which the service uses target CPUs, starting
// at first. It stops when the next guess is within 5 % of what was measured,
// and after six trials in any case. A trial whose requests were not answered
// says nothing but "less". Where the client is the limit, the rate is what it
// can offer, and limited is true. lines say how it went.
func findRate(target, first float64, measure func(rate float64) (trial, error)) (rate float64, limited bool, lines []string, err error) {
	rate = threeDigits(first)
	good := 0.0 // the last rate that was answered
	for range 6 {
		t, err := measure(rate)
		if err != nil {
			return 0, false, lines, err
		}
		if t.answered < 0.95*rate || t.ls <= 0 {
			lines = append(lines, fmt.Sprintf("%g requests/s: only %.0f were answered", rate, t.answered))
			if good == 0 {
				rate = threeDigits(rate / 2)
			} else if rate > good {
				rate = threeDigits((rate + good) / 2)
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("%g requests/s: nginx uses %.3f CPUs, the client %s of its own", rate, t.ls, percent(t.busy)))
		good = rate
		factor := target / t.ls
		limited = t.busy*factor > clientMost
		if limited {
			factor = clientMost / t.busy
		}
		// A busier server needs less for each request, so a small trial
		// promises too little, and a disturbed one anything: go in steps.
		next := threeDigits(rate * min(max(factor, 0.05), 4))
		if math.Abs(next/rate-1) <= 0.05 {
			return rate, limited, lines, nil
		}
		rate = next
	}
	if good == 0 {
		return 0, false, lines, fmt.Errorf("calibrate the load: nginx answers not even %g requests/s in time: is something else using these CPUs?", 2*rate)
	}
	return threeDigits(min(rate, 1.5*good)), limited, lines, nil
}

func threeDigits(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	digits := 2 - math.Floor(math.Log10(x)) // behind the point
	if digits > 0 {                         // a tenth is no binary fraction
		return math.Round(x*math.Pow(10, digits)) / math.Pow(10, digits)
	}
	return math.Round(x/math.Pow(10, -digits)) * math.Pow(10, -digits)
}

// A solo is the batch work alone on the tested CPUs.
type solo struct {
	frames   float64 // per second
	cpus     float64 // in use
	perMedia float64 // CPU seconds per second of media
}

// calibrate finds the batch work's solo rate and the offered rate, once for
// the experiment, and returns how, a line each.
func (b *bench) calibrate(ctx context.Context) (s solo, lines, caveats []string, err error) {
	b.status.Now("calibrating: is the machine quiet")
	if caveats, err = b.watch(ctx); err != nil {
		return s, nil, nil, err
	}
	for _, c := range caveats {
		b.status.Keep("%s", c)
	}
	b.status.Now("calibrating: ffmpeg alone")
	if s, err = b.calibrateSolo(ctx); err != nil {
		return s, nil, nil, err
	}
	lines = append(lines, fmt.Sprintf("ffmpeg alone (%d processes of %d threads): %.1f frames/s on %.2f CPUs, %.2f CPU seconds per second of film",
		b.processes, b.threads, s.frames, s.cpus, s.perMedia))
	b.status.Now("calibrating: the offered rate")
	ls, found, caveat, err := b.calibrateRate(ctx)
	if err != nil {
		return s, nil, nil, err
	}
	lines = append(lines, found...)
	if caveat != "" {
		caveats = append(caveats, caveat)
	}
	b.pacer = pacer{Tested: b.place.Tested.Len(), Processes: b.processes, PerMedia: s.perMedia, LSCPUs: ls}
	return s, lines, caveats, nil
}

// calibrateSolo runs the batch work alone.
func (b *bench) calibrateSolo(ctx context.Context) (s solo, err error) {
	st, err := b.stage(ctx, traits{batch: true, alone: true}, 0)
	if err != nil {
		return s, err
	}
	defer func() { err = st.close(err) }()
	length := min(max(b.Duration, 1500*time.Millisecond), 10*time.Second)
	m, err := st.measureAlone(ctx, 0, length)
	if err != nil {
		return s, err
	}
	if err := st.work.died(); err != nil {
		return s, err
	}
	// One more report, so that the end is interpolated and not guessed.
	time.Sleep(samplePeriod)
	frames, media := st.work.between(m.from, m.to)
	s = solo{frames: frames / m.used.wall, cpus: m.used.be, perMedia: m.used.count[beUsage] / media.Seconds()}
	if !(frames > 0 && media > 0) {
		return s, fmt.Errorf("ffmpeg alone encoded nothing in %v: is %s a film?", length, b.input)
	}
	return s, nil
}

// calibrateRate runs the service alone under trial loads. It returns the CPUs
// that the service then uses.
func (b *bench) calibrateRate(ctx context.Context) (ls float64, lines []string, caveat string, err error) {
	st, err := b.stage(ctx, traits{}, 0)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { err = st.close(err) }()
	tested := float64(b.place.Tested.Len())
	if b.Client == ClientWrk {
		m, err := st.measure(ctx, b.order(0, max(b.Duration/4, time.Second)))
		if err != nil {
			return 0, nil, "", err
		}
		return m.used.ls, []string{fmt.Sprintf("wrk offers what it can: nginx uses %.3f CPUs", m.used.ls)}, "", nil
	}
	target, first := b.LoadPercent/100*tested, 3000*tested
	length := min(max(b.Duration/4, 800*time.Millisecond), 5*time.Second)
	if emulated(b.fs) { // which is slow by jerks
		first, length = 10*tested, 3*time.Second
	}
	rate, limited, lines, err := findRate(target, first, func(rate float64) (trial, error) {
		order := b.order(0, length)
		order.Rate, order.Warmup = rate, 300*time.Millisecond
		m, err := st.measure(ctx, order)
		if err != nil {
			return trial{}, err
		}
		ls = m.used.ls
		return trial{answered: m.client.AchievedRate, ls: ls, busy: m.client.BusyRatio}, nil
	})
	if err != nil {
		return 0, lines, "", err
	}
	b.rate = rate
	lines = append(lines, fmt.Sprintf("offered in every mode: %g requests/s, for %g %% of the tested CPUs", rate, b.LoadPercent))
	if limited {
		caveat = fmt.Sprintf("the client's CPUs %v cannot offer %g %% load: %g requests/s is what they can; give it more with --client-cpus",
			b.place.Client, b.LoadPercent, rate)
	}
	return ls, lines, caveat, nil
}

// order is the load of a run of block, the same in all its modes.
func (b *bench) order(block int, length time.Duration) load.Config {
	return load.Config{
		URL: b.nginx.URL(), Rate: b.rate, Duration: length, Warmup: b.warmup(),
		Seed: b.Seed + uint64(block)<<32, Connections: b.connections(),
	}
}
