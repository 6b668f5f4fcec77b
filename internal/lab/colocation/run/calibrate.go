package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/testbed"
)

// calibrate runs once per experiment. It chooses the rate of requests, and measures
// how fast the batch work is without load on the service. lines are for the user.
func (b *bench) calibrate(ctx context.Context, s site) (lines []string, err error) {
	b.Status.Now("calibrating: the service")
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if b.Resume {
		return nil, b.takeUp(s)
	}
	b.Status.Now("calibrating: the offered rate")
	ls, lines, err := b.calibrateRate(ctx, s)
	if err != nil {
		return nil, err
	}
	b.pacer = pacer{Tested: b.Place.Tested.Len(), Processes: b.processes, LSCPUs: ls, Follows: followed(b.Modes)}
	var frames, cpus float64
	// Pods of a batch work that no mode has would need its image for nothing.
	if b.Pods == nil || slices.ContainsFunc(b.Modes, func(m report.Mode) bool { return m.Spec().Batch }) {
		b.Status.Now("calibrating: the batch work alone")
		var line string
		if frames, cpus, line, err = b.calibrateBatch(ctx, s); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	h := b.Header(b.kind(), b.Modes, b.Blocks)
	h.Versions = b.versions
	b.record = colocation.Experiment{Experiment: report.Experiment{
		Header: h, Looks: report.LooksOf(b.Blocks), Duration: b.Duration, Margin: b.Margin, LabCPUs: b.Place.Lab, Client: b.Client,
		OfferedRate: b.load.Rate, LoadPercent: b.LoadPercent, BEProcesses: b.processes, BEThreads: b.threads,
		SoloFramesPerSecond: frames, SoloCPU: cpus, Calibration: lines,
	}, Skipped: b.skipped}
	if b.switches() {
		b.record.Looks = stat.StartLooks(b.Blocks, b.UntilResolved)
		b.record.Design, b.record.Turn, b.record.Settle = b.Design, b.Turn, settleLength+b.unsure
	}
	s.describe(&b.record)
	b.record.Caveats = b.caveats
	if b.switches() && !b.NoCheck {
		said, err := b.checked(ctx, s)
		if err != nil {
			return nil, err
		}
		lines = append(lines, said...)
	}
	return lines, nil
}

// size sets the size of the batch work. It depends on the number of tested CPUs.
func (b *bench) size() {
	processes, threads := batch(b.Place.Tested.Len())
	if n := b.batchPods(); n > 0 { // of each pod
		processes = (processes + n - 1) / n
	}
	b.processes, b.threads = cmp.Or(b.BEProcesses, processes), cmp.Or(b.BEThreads, threads)
}

// calibrateBatch runs the batch work without load on the service. frames are per
// second, and cpus is the number of CPUs in use.
func (b *bench) calibrateBatch(ctx context.Context, s site) (frames, cpus float64, line string, err error) {
	st, err := s.setUp(ctx, report.ModeSpec{Batch: true, Alone: true}, 0)
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = st.close(ctx, err) }()
	length := min(max(b.trial(), 3*s.least()/2, 1500*time.Millisecond), 10*time.Second)
	if len(b.works) > 0 {
		length = max(length, 2*time.Second) // a command of the user may print its progress rarely
	}
	m, err := harness.WatchAlone(ctx, st.counter(), 0, length)
	if err == nil {
		err = st.exitError()
	}
	if err != nil {
		return 0, 0, "", err
	}
	cpus = m.Used.BE
	each, encoded, media := b.done(st, m)
	if len(b.works) > 0 {
		var rates []string
		for i, w := range b.works {
			if each[i] <= 0 {
				return 0, 0, "", fmt.Errorf("batch work %s alone showed no progress in %v", w.Name, m.To.Sub(m.From).Round(time.Second/10))
			}
			rates = append(rates, fmt.Sprintf("%s %.3g %s/s", w.Name, each[i], w.Unit))
		}
		b.solo = each
		return 1, cpus, fmt.Sprintf("batch work alone on %.2f CPUs: %s", cpus, strings.Join(rates, ", ")), nil
	}
	if !(encoded > 0 && media > 0) {
		return 0, 0, "", fmt.Errorf("ffmpeg alone encoded nothing in %v: is %s a film?", length, cmp.Or(b.Input, "the clip"))
	}
	frames, b.pacer.PerMedia = encoded/m.Used.Wall, m.Used.Count[harness.BEUsage]/media.Seconds()
	return frames, cpus, fmt.Sprintf("ffmpeg without load on the service (%d processes of %d threads): %.1f frames/s on %.2f CPUs, %.2f CPU seconds per second of film",
		b.processes*max(b.batchPods(), 1), b.threads, frames, cpus, b.pacer.PerMedia), nil
}

// calibrateRate runs only the service, under several loads, and chooses the rate
// of requests. ls is the number of CPUs that the service uses at this rate.
func (b *bench) calibrateRate(ctx context.Context, s site) (ls float64, lines []string, err error) {
	st, err := s.setUp(ctx, report.ModeSpec{}, 0)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = st.close(ctx, err) }()
	tested := float64(b.Place.Tested.Len())
	if b.Client == harness.ClientWrk || b.Workloads.ByCommand() {
		m, err := measure(ctx, st, b.load.WithLength(0, max(b.trial()/4, time.Second)))
		if err != nil {
			return 0, nil, err
		}
		return m.Used.LS, []string{fmt.Sprintf("the load generator offers what it can: the service uses %.3f CPUs", m.Used.LS)}, nil
	}
	target, first := b.LoadPercent/100*tested, 3000*tested
	length := min(max(b.trial()/4, s.least()), 8*time.Second)
	if testbed.Emulated(b.FS) { // emulated CPUs are slow, and their speed varies
		first, length = 10*tested, 3*time.Second
	}
	rate, limited, lines, err := harness.FindRate(target, first, length, func(rate float64) (harness.Trial, error) {
		m, err := measure(ctx, st, b.load.Trial(rate, length))
		if err != nil {
			return harness.Trial{}, err
		}
		ls = m.Used.LS
		return harness.TrialOf(m.Client, ls), nil
	})
	if err != nil {
		return 0, lines, err
	}
	b.load.Rate = rate
	lines = append(lines, fmt.Sprintf("offered in every mode: %g requests/s, for %g %% of the tested CPUs", rate, b.LoadPercent))
	if limited {
		b.caveats = append(b.caveats, fmt.Sprintf("the client's CPUs %v cannot offer %g %% load: %g requests/s is what they can; give it more with --client-cpus",
			b.Place.Client, b.LoadPercent, rate))
	}
	return ls, lines, nil
}
