// Package run runs the reaction experiment on this machine: it measures how soon
// tenond responds to a step of load.
package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stepservice"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// An environment is the reaction experiment after its set-up.
type environment struct {
	Config
	*testbed.Site
	saved int // number of saved steps
}

// Run runs the reaction experiment. A service is busy for a moment at random
// times. Spinners of equal weight run beside it, and tenond limits them by CPU
// suppress. The experiment measures how soon tenond narrows the spinners, and
// the run-queue delay of the service. The files and the result have the same
// form as those of the colocation experiment.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.orDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	b := &environment{Config: c}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	if err := b.settle(); err != nil {
		return harness.Outcome{}, errors.Join(err, b.Close())
	}
	return (&harness.Series[report.Mode, []reaction.Step]{
		Site: b.Site, Cells: b.Modes, Blocks: b.Blocks, Whole: b.estimate(),
		Calibrate: b.calibrate, Run: b.run, Tell: reaction.Summary, Open: reaction.Open,
		Save:    func(steps []reaction.Step) error { return reaction.AddSteps(b.Out, steps) },
		Void:    func(steps []reaction.Step) []string { return steps[0].Void }, // the same for all steps of a run
		Decides: func(blocks int) string { return reaction.Decides(b.Modes, blocks) },
	}).Conduct(ctx)
}

// settle chooses the modes that this kernel supports.
func (b *environment) settle() error {
	v2 := b.Tree.Version() == 2
	if len(b.Modes) == 0 {
		b.Modes = slices.DeleteFunc(slices.Clone(Modes), func(m report.Mode) bool { return m == report.PSI && !v2 })
	}
	if slices.Contains(b.Modes, report.PSI) && !v2 {
		return errors.New("mode psi needs cgroup v2: cgroup v1 measures no pressure per cgroup")
	}
	return b.StepAside()
}

// calibrate measures nothing.
func (b *environment) calibrate(_ context.Context, caveats []string) (report.Headed, []string, error) {
	return b.record(caveats), nil, nil
}

func (b *environment) record(caveats []string) *reaction.Experiment {
	e := &reaction.Experiment{
		Header: b.Header(reaction.Kind, b.Modes, b.Blocks), Steps: map[report.Mode]int{}, Lengths: map[report.Mode]time.Duration{},
		LeastPause: b.LeastPause, MostPause: b.MostPause, CyclePeriod: cyclePeriod, CycleWork: cycleWork,
		Threshold: b.threshold(), Objective: b.Objective,
	}
	e.ClientCPUs, e.Caveats, e.Tenond = b.Place.Lab, caveats, map[report.Mode]string{}
	e.Machine = testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	e.Machine.Mechanisms = []string{"cpu.max"}
	for _, m := range b.Modes {
		e.Steps[m], e.Lengths[m] = b.steps(m), b.length(m)
		e.Tenond[m] = b.tenondConfig(m).Record(b.Agent)
	}
	if b.Place.SharesCore(b.Topology) {
		e.Caveats = append(slices.Clone(caveats), "tenond and the tested CPUs share a core")
	}
	return e
}

// run makes all steps that one mode has in one block.
func (b *environment) run(ctx context.Context, mode report.Mode, _, block int) (made []reaction.Step, err error) {
	defer func() {
		if err = errors.Join(err, testbed.Clear(b.Root, b.Host, b.Tree)); err != nil {
			made, err = nil, fmt.Errorf("mode %s: %w", mode, err)
		}
	}()
	if err := b.build(); err != nil {
		return nil, err
	}
	spinners, err := testbed.Start(b.Host, testbed.Child{
		Name: "the spinners", Argv: b.Child("burn", b.Place.Tested.String()), Group: b.job(), CPUs: b.Place.Tested,
	})
	if err != nil {
		return nil, err
	}
	defer spinners.Kill()
	g, err := b.Tenond(ctx, b.tenondConfig(mode))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Stop()) }()
	plan := stepservice.Plan{CPUs: b.Place.Tested, Period: cyclePeriod, Work: cycleWork}
	n := b.stepsInBlock(mode, block)
	plan.Steps = stepservice.Schedule(b.Seed+uint64(block)<<32, n, b.lead, b.length(mode), b.LeastPause, b.MostPause)
	order, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("order the steps: %w", err)
	}
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	out, err := b.Await(ctx, testbed.Child{
		Name: "the service", Argv: b.Child("step"), Group: b.service(), CPUs: b.Place.Tested, Stdin: bytes.NewReader(order),
	})
	if err != nil {
		return nil, err
	}
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	courses, err := stepservice.Parse(out, n)
	if err != nil {
		return nil, err
	}
	turns, err := stepTicks(g)
	if err != nil {
		return nil, err
	}
	_, faults := g.Report()
	void := append(faults, b.disturbedBy(before, after)...)
	if spinners.HasEnded() {
		void = append(void, errors.Join(spinners.Err(), spinners.EndedEarly()).Error())
	}
	for i, c := range courses {
		s := stepOf(c, turns, b.job(), plan.Steps[i].Length)
		s.Index, s.Block, s.Mode, s.Void = b.saved+i+1, block, mode, void
		made = append(made, s)
	}
	b.saved += len(made)
	return made, nil
}

// build makes the cgroups of the service and the batch work. Both have the
// default weight.
func (b *environment) build() error {
	if err := b.Host.MakeGroup(b.Root); err != nil {
		return err
	}
	if err := b.Tree.WriteCPUs(string(b.Root), b.Place.Tested); err != nil {
		return err
	}
	for _, p := range []node.CgroupPath{b.service(), b.job()} {
		if err := b.Host.MakeGroup(p); err != nil {
			return err
		}
	}
	return nil
}

// usage reads how much the tested CPUs are used. It is called only before the
// first and after the last step, because a reading between two steps would
// disturb them.
func (b *environment) usage() (harness.Reading, error) {
	s := harness.Sampler{Tree: b.Tree, FS: b.FS, Tested: b.Place.Tested, Service: b.service(), Batch: b.job(), Root: b.job(), Recording: harness.Recording{NoPSI: true}}
	return s.Reading()
}

// disturbedBy returns which disturbances make the steps of a run void.
func (b *environment) disturbedBy(before, after harness.Reading) []string {
	var r report.Run
	used := harness.Between(before, after, b.Place.Tested.Len())
	r.StealRatio = used.StealRatio
	harness.AddDisturbances(&r, harness.Measurement{Used: used}, b.StealPercent)
	return r.Void
}
