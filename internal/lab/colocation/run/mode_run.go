package run

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
)

func (b *environment) run(ctx context.Context, mode report.Mode, index, block int) (r colocation.Run, err error) {
	r.Run = report.Run{Index: index, Block: block, Mode: mode, Started: time.Now(), PSICPU: -1}
	t := mode.Spec()
	var rate float64
	if t.Paced {
		rate = b.pacer.Rate()
	}
	st, err := b.setUp(ctx, t, rate)
	if err != nil {
		return r, fmt.Errorf("mode %s: %w", mode, err)
	}
	defer func() {
		if err = st.close(err); err != nil {
			err = fmt.Errorf("mode %s: %w", mode, err)
		}
	}()
	var m harness.Measurement
	if t.Alone {
		m, err = st.measureAlone(ctx, b.Warmup(), b.Duration)
	} else {
		m, err = st.measure(ctx, b.load.InBlock(block))
	}
	if err != nil {
		return r, err
	}
	if b.kernelQOS {
		var why error
		if r.Traced, why = st.trace(ctx, block); ctx.Err() != nil {
			return r, ctx.Err()
		} else if why != nil {
			r.Warnings = append(r.Warnings, "the kernel's record of its scheduler is missing: "+why.Error())
		}
	}
	if err := st.work.ExitError(); err != nil {
		r.Void = append(r.Void, err.Error())
	} else if st.work != nil {
		// Wait for the progress report after the end of the run: the progress
		// at the end is interpolated between two reports.
		time.Sleep(harness.SamplePeriod)
	}
	r.Work, r.Frames, _ = b.progress(st.work, m.From, m.To, m.Used.Wall)
	r.FramesPerS = r.Frames / m.Used.Wall
	var faults []string
	r.Writes, faults = st.agentRunner.Report()
	r.Void = append(r.Void, faults...)
	if st.agentRunner != nil {
		if err := st.agentRunner.CheckMechanism(t.Mechanism); err != nil {
			r.Void = append(r.Void, err.Error())
		}
	}
	harness.Fill(&r.Run, m, !st.sampler.NoPSI, b.Place.Tested.Len())
	b.judge(&r.Run, m, t)
	return r, nil
}

// judge adds warnings to a run, and the reasons why the run is void. The
// client's reasons are in it already, from harness.Fill.
func (b *environment) judge(r *report.Run, m harness.Measurement, t report.ModeSpec) {
	m.Judge(r, b.StealPercent, b.Duration)
	b.pacer.Judge(r, t)
	if t.Tenon && len(r.Writes) == 0 {
		r.Warnings = append(r.Warnings, "Tenon changed nothing: the cgroups already had what it wants, so this mode is the same as "+string(report.Default))
	}
}
