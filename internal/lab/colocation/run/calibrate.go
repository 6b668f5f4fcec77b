package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A SoloResult is the result of a run in which only the batch work ran on the
// tested CPUs.
type SoloResult struct {
	Frames   float64 // per second
	CPUs     float64 // in use
	PerMedia float64 // CPU seconds per second of media
}

// calibrate runs once per experiment. It measures how fast the batch work is
// when it runs alone, and chooses the rate of requests.
func (b *environment) calibrate(ctx context.Context, caveats []string) (experiment report.Headed, lines []string, err error) {
	b.Status.Now("calibrating: the batch work alone")
	s, err := b.calibrateSolo(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(b.works) > 0 {
		var rates []string
		for i, w := range b.works {
			rates = append(rates, fmt.Sprintf("%s %.3g %s/s", w.Name, b.solo[i], w.Unit))
		}
		lines = append(lines, fmt.Sprintf("batch work alone on %.2f CPUs: %s", s.CPUs, strings.Join(rates, ", ")))
	} else {
		lines = append(lines, fmt.Sprintf("ffmpeg alone (%d processes of %d threads): %.1f frames/s on %.2f CPUs, %.2f CPU seconds per second of film",
			b.processes, b.threads, s.Frames, s.CPUs, s.PerMedia))
	}
	b.Status.Now("calibrating: the offered rate")
	ls, found, caveat, err := b.calibrateRate(ctx)
	if err != nil {
		return nil, nil, err
	}
	lines = append(lines, found...)
	if caveat != "" {
		caveats = append(caveats, caveat)
	}
	b.pacer = Pacer{Tested: b.Place.Tested.Len(), Processes: b.processes, PerMedia: s.PerMedia, LSCPUs: ls}
	b.record = b.experiment(s, lines, caveats)
	return &b.record, lines, nil
}

// calibrateSolo runs only the batch work.
func (b *environment) calibrateSolo(ctx context.Context) (s SoloResult, err error) {
	st, err := b.setUp(ctx, report.ModeSpec{Batch: true, Alone: true}, 0)
	if err != nil {
		return s, err
	}
	defer func() { err = st.close(err) }()
	length := min(max(b.Duration, 1500*time.Millisecond), 10*time.Second)
	if len(b.works) > 0 {
		length = max(length, 2*time.Second) // a command of the user may print its progress rarely
	}
	m, err := st.measureAlone(ctx, 0, length)
	if err != nil {
		return s, err
	}
	if err := st.work.ExitError(); err != nil {
		return s, err
	}
	// Wait for the progress report after the end of the run: the progress at
	// the end is interpolated between two reports.
	time.Sleep(harness.SamplePeriod)
	if len(b.works) > 0 {
		return b.calibrateWorks(st, m)
	}
	_, frames, media := b.progress(st.work, m.From, m.To, m.Used.Wall)
	s = SoloResult{Frames: frames / m.Used.Wall, CPUs: m.Used.BE, PerMedia: m.Used.Count[harness.BEUsage] / media.Seconds()}
	if !(frames > 0 && media > 0) {
		return s, fmt.Errorf("ffmpeg alone encoded nothing in %v: is %s a film?", length, b.input)
	}
	return s, nil
}

// calibrateWorks stores the rate at which each batch work progresses when it runs alone.
func (b *environment) calibrateWorks(st *runSetUp, m harness.Measurement) (SoloResult, error) {
	b.solo, _, _ = b.progress(st.work, m.From, m.To, m.Used.Wall)
	for i, w := range b.works {
		if b.solo[i] <= 0 {
			return SoloResult{}, fmt.Errorf("batch work %s alone showed no progress in %v", w.Name, m.To.Sub(m.From).Round(time.Second/10))
		}
	}
	return SoloResult{Frames: 1, CPUs: m.Used.BE}, nil
}

// calibrateRate runs only the service, under several loads, and chooses the rate
// of requests. ls is the number of CPUs that the service uses at this rate.
func (b *environment) calibrateRate(ctx context.Context) (ls float64, lines []string, caveat string, err error) {
	st, err := b.setUp(ctx, report.ModeSpec{}, 0)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { err = st.close(err) }()
	tested := float64(b.Place.Tested.Len())
	if b.Client == harness.ClientWrk || b.Workloads.ByCommand() {
		m, err := st.measure(ctx, b.load.WithLength(0, max(b.Duration/4, time.Second)))
		if err != nil {
			return 0, nil, "", err
		}
		return m.Used.LS, []string{fmt.Sprintf("the load generator offers what it can: the service uses %.3f CPUs", m.Used.LS)}, "", nil
	}
	target, first := b.LoadPercent/100*tested, 3000*tested
	length := min(max(b.Duration/4, 800*time.Millisecond), 5*time.Second)
	if testbed.Emulated(b.FS) { // emulated CPUs are slow, and their speed varies
		first, length = 10*tested, 3*time.Second
	}
	rate, limited, lines, err := harness.FindRate(target, first, length, func(rate float64) (harness.Trial, error) {
		m, err := st.measure(ctx, b.load.Trial(rate, length))
		if err != nil {
			return harness.Trial{}, err
		}
		ls = m.Used.LS
		return harness.TrialOf(m.Client, ls), nil
	})
	if err != nil {
		return 0, lines, "", err
	}
	b.load.Rate = rate
	lines = append(lines, fmt.Sprintf("offered in every mode: %g requests/s, for %g %% of the tested CPUs", rate, b.LoadPercent))
	if limited {
		caveat = fmt.Sprintf("the client's CPUs %v cannot offer %g %% load: %g requests/s is what they can; give it more with --client-cpus",
			b.Place.Client, b.LoadPercent, rate)
	}
	return ls, lines, caveat, nil
}
