package run

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
)

// The parts of the check before an experiment that switches modes. With the start of the
// programs and three modes it takes twenty seconds, and the start of pods comes to that.
const (
	othersLength = 2 * time.Second // in which the lab only watches
	trialRounds  = 5
)

// checked says before the first start what the tested machine is like, and what the
// experiment will decide on it. A check that fails is a line for the user, and not an
// error.
func (b *bench) checked(ctx context.Context, on site) (lines []string, err error) {
	length := othersLength + b.Warmup() + trialRounds*turnLength*time.Duration(len(colocation.TrialModes(b.Modes)))
	b.Status.Now("checking the machine and what can be decided on it: about %.0f s (--no-check skips it)", length.Seconds())
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

// check watches the machine, and measures the modes of the last sentences in a short
// start.
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
	c.Expect(windows, b.Modes, starts, b.rounds(), len(b.record.Looks))
	return c, nil
}

// trialWindows returns the windows of a short start, in which the modes that the check
// needs take turns as in the experiment. It returns none if there is nothing to decide.
func (b *bench) trialWindows(ctx context.Context, on site) ([]colocation.Window, error) {
	trial := *b
	trial.Modes, trial.Turn = colocation.TrialModes(b.Modes), turnLength
	if len(trial.Modes) == 0 {
		return nil, nil
	}
	trial.Duration = trialRounds * turnLength * time.Duration(len(trial.Modes))
	trial.load.Duration, trial.load.Warmup = trial.Duration, trial.Warmup()
	r := colocation.Run{Run: report.Run{Mode: report.Switched, Started: time.Now(), PSICPU: -1}}
	err := trial.runSwitched(ctx, on, &r)
	return r.Windows, err
}
