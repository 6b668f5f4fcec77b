package run

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
)

// The parts of the check before an experiment that switches modes. With the start of
// the programs it takes ten seconds, and the start of pods comes to that.
const (
	othersLength = 2 * time.Second // in which the lab only watches
	trialCount   = 6               // windows
)

// checked says before the first start what the tested machine is like, and what the
// experiment will decide on it. A check that fails is a line for the user, and not an
// error.
func (b *bench) checked(ctx context.Context, on site) (lines []string, err error) {
	b.Status.Now("checking the machine and what can be decided on it: about 10 s (--no-check skips it)")
	check, err := b.check(ctx, on)
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
func (b *bench) check(ctx context.Context, on site) (*colocation.Check, error) {
	o, err := on.Others(ctx, othersLength)
	if err != nil {
		return nil, err
	}
	c := &colocation.Check{Others: o}
	windows, err := b.trialWindows(ctx, on)
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

// trialWindows returns the windows of a short start with a single mode, whose turns
// follow each other as those of the experiment do.
func (b *bench) trialWindows(ctx context.Context, on site) ([]colocation.Window, error) {
	trial := *b
	trial.Modes, trial.Turn, trial.Duration = []report.Mode{report.Default}, turnLength, trialCount*turnLength
	trial.load.Duration, trial.load.Warmup = trial.Duration, trial.Warmup()
	r := colocation.Run{Run: report.Run{Mode: report.Switched, Started: time.Now(), PSICPU: -1}}
	err := trial.runSwitched(ctx, on, &r)
	return r.Windows, err
}
