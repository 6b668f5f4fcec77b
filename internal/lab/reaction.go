package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
)

// A reactionBench is the reaction experiment set up.
type reactionBench struct {
	ReactionConfig
	*site
	saved int // steps
	time  eta
}

// A ReactionOutcome is where a reaction experiment's data is, and what it
// showed.
type ReactionOutcome struct {
	Dir    string
	Steps  int
	Result report.ReactionResult
}

// Report is the path of the HTML page.
func (o ReactionOutcome) Report() string { return filepath.Join(o.Dir, "report.html") }

// React runs the reaction experiment: a service that is quiet and then, at
// random times, works hard for a moment, beside spinners of equal weight that
// tenond bounds by CPU suppress. How soon tenond narrows them, and for how long
// the service waits, is measured. What it leaves and returns is as with
// Colocate.
func React(ctx context.Context, c ReactionConfig) (o ReactionOutcome, err error) {
	if c, err = c.orDefaults(); err != nil {
		return o, err
	}
	b := &reactionBench{ReactionConfig: c}
	if b.site, err = enter(ctx, c.Setting); err != nil {
		return o, interrupted(ctx, err)
	}
	err = interrupted(ctx, b.experiment(ctx))
	err = errors.Join(err, b.Close())
	if b.saved == 0 {
		return o, err
	}
	o = ReactionOutcome{Dir: b.Out, Steps: b.saved}
	var buildErr error
	o.Result, buildErr = report.BuildReaction(b.Out)
	return o, errors.Join(err, buildErr)
}

func (b *reactionBench) experiment(ctx context.Context) error {
	v2 := b.tree.Version() == 2
	if len(b.Modes) == 0 {
		b.Modes = slices.DeleteFunc(slices.Clone(ReactionModes), func(m report.Mode) bool { return m == report.PSI && !v2 })
	}
	if slices.Contains(b.Modes, report.PSI) && !v2 {
		return errors.New("mode psi needs cgroup v2: cgroup v1 counts no pressure of groups")
	}
	if err := b.Setting.claim(); err != nil {
		return err
	}
	b.status.Now("is the machine quiet")
	caveats, err := b.watch(ctx)
	if err != nil {
		os.Remove(b.Out) // if it is empty
		return err
	}
	for _, c := range caveats {
		b.status.Keep("%s", c)
	}
	if err := report.CreateReaction(b.Out, b.record(caveats)); err != nil {
		return err
	}
	if err := b.stepAside(); err != nil {
		return err
	}
	b.time.begun = time.Now()
	for block := 1; block <= b.Blocks; block++ {
		for _, mode := range Block(b.Modes, b.Seed, block) {
			left := b.estimate() - time.Since(b.time.begun)
			b.status.Now("block %d of %d: %s, %d steps, about %s left", block, b.Blocks, mode, b.inBlock(mode, block), clock(max(left, 0)))
			steps, err := b.run(ctx, mode, block)
			if err == nil {
				err = report.AddSteps(b.Out, steps)
			}
			if err != nil {
				return err
			}
			b.saved += len(steps)
			b.status.Keep("block %d %-7s %s", block, mode, report.Summary(steps))
		}
	}
	return nil
}

func (b *reactionBench) record(caveats []string) report.Reaction {
	e := report.Reaction{
		Started: time.Now(), Command: b.Command, Version: b.Version, Modes: b.Modes, Blocks: b.Blocks,
		Steps: map[report.Mode]int{}, Lengths: map[report.Mode]time.Duration{}, Tenond: map[report.Mode]string{},
		LeastPause: b.LeastPause, MostPause: b.MostPause, Seed: b.Seed,
		TestedCPUs: b.place.Tested, ClientCPUs: b.place.Client, CyclePeriod: cyclePeriod, CycleWork: cycleWork,
		Threshold: b.threshold(), Objective: b.Objective,
		Machine: describe(b.fs, b.topology, b.host.Capabilities(), b.tree.Version()), Caveats: caveats,
	}
	e.Machine.Mechanisms = []string{"cpu.max"}
	for _, m := range b.Modes {
		e.Steps[m], e.Lengths[m] = b.steps(m), b.length(m)
		e.Tenond[m] = b.tenondConfig(m).record(b.Agent)
	}
	if b.place.SharesCore(b.topology) {
		e.Caveats = append(slices.Clone(caveats), "tenond and the tested CPUs share a core")
	}
	return e
}

// run makes the steps of one mode in one block.
func (b *reactionBench) run(ctx context.Context, mode report.Mode, block int) (steps []report.Step, err error) {
	defer func() {
		if err = errors.Join(err, clear(b.Root, b.host, b.tree)); err != nil {
			steps, err = nil, fmt.Errorf("mode %s: %w", mode, err)
		}
	}()
	if err := b.build(); err != nil {
		return nil, err
	}
	spinners, err := start(b.host, child{
		name: "the spinners", argv: b.child("burn", b.place.Tested.String()), group: b.job(), cpus: b.place.Tested,
	})
	if err != nil {
		return nil, err
	}
	defer spinners.Kill()
	g, err := b.tenond(ctx, b.tenondConfig(mode))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	plan := stepPlan{CPUs: b.place.Tested, Period: cyclePeriod, Work: cycleWork}
	n := b.inBlock(mode, block)
	plan.Steps = stepSchedule(b.Seed+uint64(block)<<32, n, b.lead, b.length(mode), b.LeastPause, b.MostPause)
	order, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("order the steps: %w", err)
	}
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	out, err := b.await(ctx, child{
		name: "the service", argv: b.child("step"), group: b.service(), cpus: b.place.Tested, stdin: bytes.NewReader(order),
	})
	if err != nil {
		return nil, err
	}
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	courses, err := parseCourses(out, n)
	if err != nil {
		return nil, err
	}
	turns, err := g.turns()
	if err != nil {
		return nil, err
	}
	_, faults := g.report()
	void := append(faults, b.disturbedBy(before, after)...)
	if spinners.Ended() {
		void = append(void, errors.Join(spinners.Err(), spinners.endedEarly()).Error())
	}
	for i, c := range courses {
		s := stepOf(c, turns, b.job(), plan.Steps[i].Length)
		s.Index, s.Block, s.Mode, s.Void = b.saved+i+1, block, mode, void
		steps = append(steps, s)
	}
	return steps, nil
}

// build makes the two groups, of equal weight as every new group is.
func (b *reactionBench) build() error {
	if err := b.host.MakeGroup(b.Root); err != nil {
		return err
	}
	if err := b.tree.WriteCPUs(string(b.Root), b.place.Tested); err != nil {
		return err
	}
	for _, p := range []node.CgroupPath{b.service(), b.job()} {
		if err := b.host.MakeGroup(p); err != nil {
			return err
		}
	}
	return nil
}

// usage reads what the tested CPUs have been used for. It is read twice in a
// run, before and after the steps: reading between them would disturb them.
func (b *reactionBench) usage() (reading, error) {
	s := sampler{tree: b.tree, fs: b.fs, tested: b.place.Tested, service: b.service(), batch: b.job(), meet: b.job(), recording: recording{noPSI: true}}
	return s.reading()
}

// disturbedBy says what makes the steps of a run useless.
func (b *reactionBench) disturbedBy(before, after reading) []string {
	var r report.Run
	used := between(before, after, b.place.Tested.Len())
	r.StealRatio = used.stealRatio
	disturbed(&r, measurement{used: used}, b.StealPercent)
	return r.Void
}

func parseCourses(out []byte, want int) ([]stepCourse, error) {
	var all []stepCourse
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var c stepCourse
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("read the course of the steps: %w", err)
		}
		all = append(all, c)
	}
	if len(all) != want {
		return nil, fmt.Errorf("the service made %d of %d steps", len(all), want)
	}
	return all, nil
}
