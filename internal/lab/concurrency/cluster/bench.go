package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/concurrency/run"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A bench is the experiment after its set-up.
type bench struct {
	Config
	*testbed.Site
	kubectl *kubectl.Space
	nodes   []nodes.Node
	height  int           // of the transcoded picture
	whole   float64       // frames of a job
	skew    time.Duration // of the nodes' clock, against that of this machine
	lead    time.Duration // from the release of a wave to its begin

	runs    []run.Cell
	refused []string
}

// Run runs the experiment. When it returns, even with an error, it has removed
// its Jobs. If it made the namespace, it has removed that, too. Outcome and
// error have the same meaning as those of [run.Run].
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	b, err := newBench(ctx, c)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	s := b.Series(b.Site, b.runs, b.measure)
	s.First, s.Calibrate = b.lead+b.Work+6*time.Second, b.calibrate
	return s.Conduct(ctx)
}

// newBench prepares the experiment. Its error has every fault that can be found
// before the first run.
func newBench(ctx context.Context, c Config) (_ *bench, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, err
	}
	b := &bench{Config: c, lead: leadOf(1)}
	b.Site, b.kubectl, err = nodes.Enter(ctx, c.Setting, c.Context, kubectl.Space{Namespace: c.Namespace, Experiment: labWord, Objects: "jobs"})
	if err != nil {
		return nil, err
	}
	b.Place = testbed.Placement{} // the lab measures no CPU of this machine
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.nodes, err = nodes.Find(ctx, b.kubectl.Client, c.Nodes); err != nil {
		return nil, err
	}
	if b.height = b.Height; b.height == 0 {
		b.height = run.HeightFor(b.smallestCPUs())
		if b.AsPublished {
			b.height = 1080
		}
	}
	cells, refused := c.combinations()
	for _, cell := range cells {
		if why := b.refuse(cell); why != "" {
			refused = append(refused, fmt.Sprintf("%v: %s", cell, why))
			continue
		}
		b.runs = append(b.runs, cell)
	}
	if len(b.runs) == 0 {
		return nil, fmt.Errorf("the cluster can run none of the cells:\n%s", strings.Join(refused, "\n"))
	}
	b.runs, b.refused = c.WithReference(b.runs), refused
	return b, nil
}

// smallestCPUs is the number of CPUs of the smallest tested node.
func (b *bench) smallestCPUs() int {
	least := b.nodes[0].CPUs
	for _, t := range b.nodes {
		least = min(least, t.CPUs)
	}
	return least
}

// firstFrames is the number of frames of the calibration job. The CPU time of
// that job shows how much work a whole job must have.
const firstFrames = 48

// calibrate runs one job alone to choose how much work a job has.
func (b *bench) calibrate(ctx context.Context, caveats []string) (report.Headed, []string, error) {
	var lines []string
	if !b.AsPublished {
		b.Status.Now("calibrating: one job alone")
		b.whole = firstFrames
		r, err := b.measure(ctx, run.Reference, 0, 0)
		if err == nil && len(r.Void) > 0 {
			err = errors.New(strings.Join(r.Void, "; "))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("a job alone: %w", err)
		}
		row := r.Rows[0]
		cost, known := row.Extra.CPUSeconds.Value()
		if !known {
			cost = row.Duration().Seconds()
			caveats = append(caveats, "the container of a job does not see the counters of its cgroup: the CPU time of a job is limit × duration")
		}
		lines = append(lines, fmt.Sprintf("a job alone takes %.2f s and %.2f s of CPU time", row.Duration().Seconds(), cost))
		if len(b.Argv) == 0 {
			frames := row.Extra.Work.Or(0)
			if !(frames > 0 && cost > 0) {
				return nil, nil, fmt.Errorf("a job alone has encoded no frame of %s", b.film())
			}
			b.whole = max(float64(int(frames/cost*b.Work.Seconds())), 1)
			lines = append(lines, fmt.Sprintf("a job is %.0f frames: about %v of CPU time, alone", b.whole, b.Work))
		}
	}
	lines = append(lines, fmt.Sprintf("%d cells in %d blocks on %s, at most %v", len(b.runs), b.Blocks, strings.Join(b.names(), ", "), b.MaxTime))
	return b.experiment(caveats), lines, nil
}

func (b *bench) names() []string {
	var names []string
	for _, t := range b.nodes {
		names = append(names, t.Name)
	}
	return names
}

func (b *bench) experiment(caveats []string) *concurrency.Experiment {
	first := b.nodes[0]
	machine := first.Machine(b.FS)
	machine.CPUs = b.smallestCPUs()
	here := slices.IndexFunc(b.nodes, func(t nodes.Node) bool { return t.Here })
	if here >= 0 {
		caveats = append(caveats, fmt.Sprintf("the lab itself runs on node %s: its kubectl takes CPU time there between the runs, at their ends, and for a moment every 20 s", b.nodes[here].Name))
	}
	caveats = append(caveats, "the lab sees neither steal time nor other work on the nodes, so that it voids no run for them")
	if b.AsPublished {
		caveats = append(caveats, "as published, the jobs of a cell have no common begin")
	}
	e := &concurrency.Experiment{
		Header: b.Header(concurrency.Kind, nil, b.Blocks), Node: concurrency.Node{CPUs: b.smallestCPUs()}, Nodes: b.names(),
		Fill: string(b.Fill), Job: b.argv(0), JobWork: b.whole,
	}
	e.Refused, e.Machine, e.Caveats = b.refused, machine, caveats
	e.Versions = map[string]string{"kubelet": first.Kubelet, "container runtime": first.Runtime, "image": b.Image}
	return e
}
