package run

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
)

// The parts of the check before an experiment that switches modes. With the start of
// the programs it takes ten seconds.
const (
	othersLength = 2 * time.Second // in which the lab only watches
	trialWarmup  = time.Second
	trialWindow  = turnLength - settleLength
	trialCount   = 7 // windows
)

// checked says before the first start what the machine is like, and what the experiment
// will decide on it. A check that fails is a line for the user, and not an error.
func (b *machine) checked(ctx context.Context) (lines []string, err error) {
	b.Status.Now("checking the machine and what can be decided on it: about 10 s (--no-check skips it)")
	check, err := b.check(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return []string{fmt.Sprintf("before the run: the machine could not be checked: %v", err)}, nil
	}
	b.record.Check = check
	return check.Lines(), nil
}

// check watches the machine, and measures one mode in a short start.
func (b *machine) check(ctx context.Context) (*colocation.Check, error) {
	o, err := b.Others(ctx, othersLength)
	if err != nil {
		return nil, err
	}
	c := &colocation.Check{Others: o}
	windows, err := b.trialWindows(ctx)
	if err != nil {
		return nil, err
	}
	starts := b.Blocks
	if starts == 0 {
		starts = b.record.Looks[len(b.record.Looks)-1]
	}
	c.Expect(windows, starts, b.rounds(), len(b.Modes), len(b.record.Looks))
	return c, nil
}

// trialWindows measures windows of the experiment in a short start, in which the service
// runs beside batch work and no mode changes.
func (b *machine) trialWindows(ctx context.Context) (windows []colocation.Window, err error) {
	set, err := b.setUp(ctx, report.Default.Spec(), 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = set.close(ctx, err) }()
	st := set.(*runSetUp) // the site is this machine
	order := b.load.WithLength(0, trialCount*trialWindow)
	order.Warmup = trialWarmup
	m, err := harness.Watch(ctx, st.counter(), st.service(), func(ctx context.Context) (harness.Measurement, error) {
		m, err := st.send(ctx, order)
		if err == nil {
			err = m.EndWarmup(trialWarmup)
		}
		return m, err
	})
	if err != nil {
		return nil, err
	}
	for i := range trialCount {
		from := m.From.Add(time.Duration(i) * trialWindow)
		turn := stay{round: i + 1, mode: report.Default, from: harness.ReadingAt(m.Readings, from), to: harness.ReadingAt(m.Readings, from.Add(trialWindow))}
		w, err := b.window(0, st, turn, m)
		if err != nil {
			return nil, fmt.Errorf("window %d of the trial: %w", i+1, err)
		}
		windows = append(windows, w)
	}
	return windows, nil
}
