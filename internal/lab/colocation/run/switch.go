package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/turns"
)

// SwitchedModes lists the default modes of an experiment that switches modes.
var SwitchedModes = []report.Mode{report.Frozen, report.Default, report.Burstable, report.Tenon}

// The defaults of an experiment that switches modes.
const (
	startLength = 40 * time.Second // of all turns of a start
	turnLength  = time.Second
	// settleLength is the first part of a turn, which is not measured: requests of
	// the turn before are answered meanwhile.
	settleLength = 200 * time.Millisecond
	switchWarmup = 3 * time.Second
	// A campaign takes an hour: 45 starts of twelve rounds of CampaignModes.
	campaignStarts, campaignLength = 45, 72 * time.Second
	// jiffy is the unit in which the kernel counts steal time.
	jiffy = 10 * time.Millisecond
)

// canSwitch reports whether a mode can be entered and left while the service and the
// batch work run: by writing the cgroup of the batch work and the attributes of its
// threads, once for each turn.
func canSwitch(m report.Mode) bool {
	t := m.Spec()
	attended := t.Mechanism != "" && t.Mechanism.Row().Attended
	return t.Batch && !t.Alone && !t.Spinner && !t.Paced && !t.Suppress && !t.AllFeatures && !t.Sessions && !attended && m != report.TenonVendor
}

// switchedDefaults returns c with the design that its settings ask for, and with the
// defaults of that design. Without --design, modes are switched if all of them can
// be switched, and if no setting of blocks was given.
func (c Config) switchedDefaults(fault func(format string, args ...any)) Config {
	if c.Campaign {
		c.Design = cmp.Or(c.Design, colocation.DesignSwitch)
		c.Starts, c.StartLength = cmp.Or(c.Starts, campaignStarts), cmp.Or(c.StartLength, campaignLength)
		if len(c.Modes) == 0 {
			c.Modes = CampaignModes
		}
	}
	cannot := slices.DeleteFunc(slices.Clone(c.Modes), canSwitch)
	blocks := c.Blocks != 0 || c.Duration != 0
	possible := !c.kernelQOS && c.Agent == "" && c.Client != harness.ClientWrk && len(cannot) == 0 && len(c.Modes) != 1
	if c.Design == "" {
		c.Design = colocation.DesignBlocks
		if asked := c.Starts != 0 || c.StartLength != 0 || c.Turn != 0; possible && (asked || !blocks) {
			c.Design = colocation.DesignSwitch
		}
	}
	switch c.Design {
	case colocation.DesignSwitch:
	case colocation.DesignBlocks:
		if c.Starts != 0 || c.StartLength != 0 || c.Turn != 0 {
			fault("--campaign, --starts, --start-length and --turn are for --design %s", colocation.DesignSwitch)
		}
		if c.NoCheck {
			fault("--no-check is for --design %s: with %s there is no check before the run", colocation.DesignSwitch, colocation.DesignBlocks)
		}
		for _, m := range c.Modes {
			switch {
			case m.Spec().Frozen:
				fault("mode %s: only --design %s has it", m, colocation.DesignSwitch)
			case c.Pods != nil && !m.Spec().Cluster && c.batchPods() == 0:
				fault("mode %s: on a cluster only --design %s has it", m, colocation.DesignSwitch)
			}
		}
		return c
	default:
		fault("--design %q: want %s or %s", c.Design, colocation.DesignSwitch, colocation.DesignBlocks)
		return c
	}
	switch {
	case c.kernelQOS || c.Agent != "" || c.Client == harness.ClientWrk:
		fault("--design %s: with --agent and with --client %s the modes cannot be switched: want %s", c.Design, harness.ClientWrk, colocation.DesignBlocks)
	case len(cannot) > 0:
		fault("--design %s: modes %s cannot be switched while they run: leave them out, or use --design %s", c.Design, harness.JoinModes(cannot), colocation.DesignBlocks)
	case len(c.Modes) == 1:
		fault("--design %s: mode %s alone: want two modes or more", c.Design, c.Modes[0])
	}
	if len(c.Modes) == 0 {
		c.Modes = SwitchedModes
	}
	if c.Starts == 0 && !c.UntilResolved {
		c.Starts = stat.Starts
	}
	c.Turn, c.StartLength = cmp.Or(c.Turn, turnLength), cmp.Or(c.StartLength, startLength)
	round := time.Duration(len(c.Modes)) * c.Turn
	switch {
	case c.Starts < 0:
		fault("--starts %d: want 1 or more", c.Starts)
	case c.Turn < time.Second:
		fault("--turn %v: want 1s or more", c.Turn)
	case c.StartLength < round:
		fault("--start-length %v: want %v or more, for one round of %d modes", c.StartLength, round, len(c.Modes))
	case blocks:
		fault("--blocks and --duration are for --design %s: want --starts and --start-length", colocation.DesignBlocks)
	default:
		c.Blocks, c.Duration = c.Starts, c.StartLength/round*round // whole rounds
	}
	return c
}

// switches reports whether the experiment switches modes.
func (c Config) switches() bool { return c.Design == colocation.DesignSwitch }

// rounds returns the number of rounds in a start.
func (c Config) rounds() int { return int(c.Duration / (time.Duration(len(c.Modes)) * c.Turn)) }

// decides says what a planned number of starts cannot decide.
func (c Config) decides(starts int) string {
	if starts >= stat.LeastStarts && starts*c.rounds() >= stat.LeastRounds {
		return ""
	}
	return fmt.Sprintf("%d rounds of %d starts can decide nothing: a verdict needs %d of %d (--starts, --start-length)", starts*c.rounds(), starts, stat.LeastRounds, stat.LeastStarts)
}

// switchModes makes a series of starts of a series of blocks.
func (b *bench) switchModes(series *harness.Series[report.Mode, colocation.Run], on site) {
	series.Called = "start"
	series.Cells, series.Tell, series.Decides = []report.Mode{report.Switched}, tellStart, b.decides
	series.Run = func(ctx context.Context, mode report.Mode, index, start int) (r colocation.Run, err error) {
		r.Run = report.Run{Index: index, Block: start, Mode: mode, Started: time.Now(), PSICPU: -1}
		err = b.runSwitched(ctx, on, &r)
		return r, err
	}
	if b.UntilResolved {
		series.Resolved = func(runs []colocation.Run) bool { return colocation.AnalyseSwitched(b.record, runs).IsResolved() }
	}
}

// A stay is one turn of a mode, with the readings at the ends of its measured part.
// The turn is not complete if to has no time.
type stay struct {
	round    int
	mode     report.Mode
	from, to harness.Reading
	undone   string // what another program changed of the mode; empty: nothing
}

// A schedule changes the mode while a load runs. It takes the place of the sampler,
// because the counters have to be read at the changes and not beside them.
type schedule struct {
	harness.Recording
	b        *bench
	st       stage
	switcher turns.Switcher
	seed     uint64 // of the order of the modes
	fail     context.CancelCauseFunc
	turns    []stay
	err      error
}

// Capacity returns the number of tested CPUs.
func (s *schedule) Capacity() int { return s.b.Place.Tested.Len() }

// Run waits for the end of the warm-up, and then changes the mode after each turn. It
// returns when ctx ends.
func (s *schedule) Run(ctx context.Context) {
	if err := s.rounds(ctx); err != nil && ctx.Err() == nil {
		s.err = err
		s.fail(err)
	}
	<-ctx.Done()
	if s.err == nil {
		_, _ = s.note() // a missing last reading makes the measurement fail
	}
}

func (s *schedule) rounds(ctx context.Context) error {
	b := s.b
	if _, err := s.note(); err != nil {
		return err
	}
	due := time.Now().Add(b.Warmup())
	for round := range b.rounds() {
		for _, mode := range harness.Block(b.Modes, s.seed, round) {
			if err := s.end(ctx, due); err != nil {
				return err
			}
			due = time.Now().Add(b.Turn)
			if err := s.switcher.Enter(ctx, mode); err != nil {
				return fmt.Errorf("enter mode %s: %w", mode, err)
			}
			if err := testbed.Pause(ctx, settleLength+b.unsure); err != nil {
				return err
			}
			from, err := s.note()
			if err != nil {
				return err
			}
			s.turns = append(s.turns, stay{round: round + 1, mode: mode, from: from.Reading})
		}
	}
	return s.end(ctx, due)
}

// end waits for the time due, and ends the measured part of the last turn.
func (s *schedule) end(ctx context.Context, due time.Time) error {
	if err := testbed.Pause(ctx, time.Until(due)); err != nil {
		return err
	}
	r, err := s.note()
	if n := len(s.turns); n > 0 && err == nil {
		s.turns[n-1].to, s.turns[n-1].undone = r.Reading, r.Undone
	}
	return err
}

// note reads the counters and keeps the reading.
func (s *schedule) note() (turns.Reading, error) {
	r, err := s.switcher.Reading()
	if err == nil {
		err = s.st.look(r.At)
	}
	if err != nil {
		return r, fmt.Errorf("read the counters at the end of a turn: %w", err)
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.NoPSI = r.NoPSI
	s.Readings = append(s.Readings, r.Reading)
	return r, nil
}

// runSwitched measures one start, in which the modes take turns.
func (b *bench) runSwitched(ctx context.Context, on site, r *colocation.Run) (err error) {
	t := report.ModeSpec{Mode: report.Switched, Batch: true}
	st, err := on.setUp(ctx, t, 0)
	if err != nil {
		return err
	}
	defer func() { err = st.close(ctx, err) }()
	switcher, err := st.switcher(ctx)
	if err != nil {
		return err
	}
	s := &schedule{b: b, st: st, switcher: switcher, seed: b.Seed + uint64(r.Block)<<32}
	var loading context.Context
	loading, s.fail = context.WithCancelCause(ctx)
	defer s.fail(nil)
	m, err := harness.Watch(loading, s, st.service(), func(ctx context.Context) (harness.Measurement, error) {
		order := b.load.InBlock(r.Block)
		// The changes take time, and each of them waits for an answer of the node.
		order.Duration += b.Duration/20 + time.Duration(b.rounds()*len(b.Modes))*2*b.unsure
		m, err := st.send(ctx, order)
		if err == nil {
			err = m.EndWarmup(b.Warmup())
		}
		return m, err
	})
	// The batch work must not stay frozen until the start is cleared away.
	closed := switcher.Close()
	switch {
	case s.err != nil:
		return errors.Join(s.err, closed)
	case err != nil || closed != nil:
		return errors.Join(err, closed)
	}
	if err := st.check(ctx, t, m, r); err != nil {
		return err
	}
	var faults []string
	r.Writes, faults = switcher.Report()
	r.Discard(report.NotItsMode, faults...)
	if err := st.exitError(); err != nil {
		r.Discard(report.NotItsMode, err.Error())
	}
	var done float64
	r.Work, done, _ = b.done(st, m)
	r.Frames, r.FramesPerS = done, done/m.Used.Wall
	if !(done > 0) {
		r.Discard(report.NotItsMode, "the batch work reported no progress")
	}
	harness.Fill(&r.Run, m)
	b.fillWindows(r, st, s.turns, m)
	return nil
}

// fillWindows adds the windows of the turns to a run, and judges the start by them.
func (b *bench) fillWindows(r *colocation.Run, st stage, turns []stay, m harness.Measurement) {
	missing := false
	for _, t := range turns {
		w, err := b.window(r.Block, st, t, m)
		if err != nil {
			missing = true
			continue
		}
		r.Windows = append(r.Windows, w)
	}
	if missing {
		r.Warnings = append(r.Warnings, "the load ended before the last turns, or began after the first")
	}
	judgeStart(r, len(b.Modes), b.rounds())
}

// judgeStart makes a start void if fewer than half of its rounds were measured: in the
// others a window was disturbed or is missing. What the service failed is an outcome of
// single modes, however often it failed. It does not void the start, because a start that
// is repeated would forget it.
func judgeStart(r *colocation.Run, modes, rounds int) {
	if r.Cause == report.Failed {
		r.Warnings = append(r.Warnings, r.Void...)
		r.Void, r.Cause = nil, report.NotVoid
	}
	measured := map[int]int{}
	for _, w := range r.Windows {
		if len(w.Void) == 0 || w.VoidCause() == report.Failed {
			measured[w.Round]++
		}
	}
	whole := 0
	for _, n := range measured {
		if n == modes {
			whole++
		}
	}
	if 2*whole < rounds && len(r.Void) == 0 {
		r.Discard(report.Disturbed, fmt.Sprintf("only %d of %d rounds were measured: in the others a window was disturbed or is missing", whole, rounds))
	}
}

// window returns the measured part of a turn.
func (b *bench) window(start int, st stage, t stay, m harness.Measurement) (colocation.Window, error) {
	w := colocation.Window{Run: report.Run{Block: start, Mode: t.mode, Started: t.from.At, PSICPU: -1}, Round: t.round}
	if t.to.At.IsZero() {
		return w, errors.New("the turn has no end")
	}
	part, err := m.Part(t.from, t.to)
	if err != nil {
		return w, err
	}
	w.Early, w.Late = part.Client.Halves()
	// The limits of a client are for runs of seconds: a P99 of 24 requests says
	// nothing about its lag, and a queue at the end of a turn is answered in the
	// next. The latencies of such requests are known all the same.
	part.Client.Void, part.Client.Hints = nil, nil
	harness.Fill(&w.Run, part)
	if failed := part.Client.Errors.Total(); failed > 0 {
		w.Discard(report.Failed, fmt.Sprintf("%d requests failed", failed))
	}
	if t.undone != "" {
		w.Discard(report.NotItsMode, t.undone)
	}
	if part.Client.DependsOnStalls() {
		w.Discard(report.Disturbed, fmt.Sprintf("the client itself did not run for %.1f %% of the requests: P90 is %s with them, and %s without",
			100*w.Spoiled, load.Micros(part.Client.WithStalls.P90), load.Micros(part.Client.Latency.P90)))
	}
	w.Length, w.Histogram, w.Log = part.To.Sub(part.From), nil, nil
	// The kernel counts steal time in jiffies, so one of them is no excess.
	steal := b.StealPercent + 100*jiffy.Seconds()/w.Length.Seconds()/float64(b.Place.Tested.Len())
	harness.AddDisturbances(&w.Run, part, steal)
	_, done, _ := b.rates(st.between(t.from.At, t.to.At), part.Used.Wall)
	w.Frames, w.FramesPerS = done, done/part.Used.Wall
	return w, nil
}

// tellStart describes a start in one line.
func tellStart(r colocation.Run) string {
	disturbed := 0
	for _, w := range r.Windows {
		if len(w.Void) > 0 {
			disturbed++
		}
	}
	p90 := r.Latency.P90
	if r.WithStalls != nil { // the headline has all requests
		p90 = r.WithStalls.P90
	}
	return fmt.Sprintf("%d windows, %d of them disturbed or failed  P90 %5.0f µs  CPU %5.1f %%", len(r.Windows), disturbed, p90, r.CPUPercent)
}
