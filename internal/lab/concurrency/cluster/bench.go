package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/concurrency/sweep"
	"tenon.sh/tenon/internal/lab/frame"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/site"
)

// A bench is the experiment after its set-up.
type bench struct {
	Config
	*site.Site
	kubectl kubectl.Client
	nodes   []testedNode
	height  int           // of the transcoded picture
	whole   float64       // frames of a job
	skew    time.Duration // of the nodes' clock, against that of this machine
	lead    time.Duration // from the release of a wave to its begin
	// madeNamespace is true if the lab has made the namespace.
	madeNamespace bool

	runs    []sweep.Cell
	refused []string
	record  concurrency.Experiment
}

// A run is one measured cell.
type run struct {
	cell sweep.Cell
	rows []jobs.Job
	void []string
}

// Run runs the experiment. When it returns, even with an error, it has removed
// its Jobs. If it made the namespace, it has removed that, too. Outcome and
// error have the same meaning as those of [sweep.Run].
func Run(ctx context.Context, c Config) (frame.Outcome, error) {
	b, err := set(ctx, c)
	if err != nil {
		return frame.Outcome{}, site.InterruptError(ctx, err)
	}
	return (&frame.Series[sweep.Cell, run]{
		Site: b.Site, Cells: b.runs, Blocks: b.Blocks, Most: b.MaxTime, InOrder: b.AsPublished,
		First: b.lead + b.Work + 6*time.Second, Calibrate: b.calibrate, Run: b.run, Tell: tell, Open: concurrency.Open,
		Save: func(r run) error { return concurrency.AddJobs(b.Out, r.rows) },
		Void: func(r run) []string { return r.void },
	}).Conduct(ctx)
}

// set makes a bench. It returns every fault that can be found before the first
// run.
func set(ctx context.Context, c Config) (_ *bench, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, err
	}
	b := &bench{Config: c, lead: leadOf(1)}
	if b.kubectl, err = kubectl.Find(c.Context, c.Namespace); err != nil {
		return nil, err
	}
	if b.Site, err = site.Away(c.Setting); err != nil {
		return nil, err
	}
	b.Place = site.Placement{} // the lab measures no CPU of this machine
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := b.settleIn(ctx); err != nil {
		return nil, err
	}
	if err := b.findNodes(ctx); err != nil {
		return nil, err
	}
	if b.height = b.Height; b.height == 0 {
		b.height = sweep.HeightFor(b.smallestCPUs())
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
	least := b.nodes[0].cpus
	for _, t := range b.nodes {
		least = min(least, t.cpus)
	}
	return least
}

// cleanPatience is the longest time that the lab takes to remove what it made.
// This also holds after an interruption.
const cleanPatience = 2 * time.Minute

// settleIn makes the namespace. Before that, it removes the jobs of a lab that
// was killed.
func (b *bench) settleIn(ctx context.Context) error {
	var space struct {
		Metadata struct{ Labels map[string]string }
	}
	switch err := b.kubectl.Get(ctx, &space, "namespace", b.Namespace); {
	case err == nil:
		b.madeNamespace = space.Metadata.Labels[labLabel] == labWord
	case strings.Contains(err.Error(), "NotFound"):
		b.madeNamespace = true
	default:
		return err
	}
	b.Undo = append(b.Undo, b.cleanUp)
	// The pods of the killed lab must be gone before the lab computes how much
	// of each node others use.
	removeJobs := func() error { return b.clear(ctx, labLabel+"="+labWord, "foreground") }
	if !b.madeNamespace {
		return removeJobs()
	}
	_, err := b.kubectl.Do(ctx, kubectl.Manifest([]kubectl.Object{{
		"apiVersion": "v1", "kind": "Namespace", "metadata": kubectl.Object{"name": b.Namespace, "labels": kubectl.Object{labLabel: labWord}},
	}}), "apply", "-f", "-")
	if err == nil {
		err = removeJobs()
	}
	return err
}

// cleanUp removes what the experiment made. It must finish even if the
// experiment was interrupted.
func (b *bench) cleanUp() error {
	ctx, stop := context.WithTimeout(context.Background(), cleanPatience)
	defer stop()
	if b.madeNamespace {
		_, err := b.kubectl.Do(ctx, "", "delete", "namespace", b.Namespace, "--ignore-not-found", "--wait")
		return err
	}
	_, err := b.kubectl.Do(ctx, "", "delete", "jobs", "-l", labLabel+"="+labWord, "--cascade=foreground", "--wait", "--ignore-not-found")
	return err
}

// clear removes Jobs. With the cascade "foreground" it waits until their pods
// have ended. With "background" it does not wait, because the pods of a run
// have ended, or end within a second.
func (b *bench) clear(ctx context.Context, selector, cascade string) error {
	_, err := b.kubectl.Do(ctx, "", "delete", "jobs", "-l", selector, "--cascade="+cascade, "--wait", "--timeout=60s", "--ignore-not-found")
	return err
}

// firstFrames is the length of the job from which the lab computes how much
// work a whole job has.
const firstFrames = 48

// calibrate runs one job alone to choose how much work a job has.
func (b *bench) calibrate(ctx context.Context, caveats []string) (frame.Record, []string, error) {
	var lines []string
	if !b.AsPublished {
		b.Status.Now("calibrating: one job alone")
		b.whole = firstFrames
		r, err := b.measure(ctx, sweep.Reference, 0, 0)
		if err == nil && len(r.void) > 0 {
			err = errors.New(strings.Join(r.void, "; "))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("a job alone: %w", err)
		}
		row := r.rows[0]
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
	for _, why := range b.refused {
		lines = append(lines, "left out: "+why)
	}
	lines = append(lines, fmt.Sprintf("%d cells in %d blocks on %s, at most %v", len(b.runs), b.Blocks, strings.Join(b.names(), ", "), b.MaxTime))
	b.record = b.experiment(caveats)
	return b.record, lines, nil
}

func (b *bench) names() []string {
	var names []string
	for _, t := range b.nodes {
		names = append(names, t.name)
	}
	return names
}

func (b *bench) experiment(caveats []string) concurrency.Experiment {
	first := b.nodes[0]
	machine := report.Machine{Kernel: first.kernel, OS: first.os, CPUs: b.smallestCPUs(), MemoryBytes: int64(first.memory)}
	here := slices.IndexFunc(b.nodes, func(t testedNode) bool { return t.here })
	if here >= 0 && len(b.nodes) == 1 {
		machine = site.ThisMachine(b.FS)
		machine.CPUs = b.smallestCPUs()
	}
	if here >= 0 {
		caveats = append(caveats, fmt.Sprintf("the lab itself runs on node %s: between the runs and at their ends its kubectl takes CPU time there", b.nodes[here].name))
	}
	caveats = append(caveats, "the lab sees neither steal time nor other work on the nodes, so that it voids no run for them")
	if b.AsPublished {
		caveats = append(caveats, "as published, the jobs of a cell have no common begin")
	}
	e := concurrency.Experiment{
		Schema: report.Schema, Kind: concurrency.Kind, Started: time.Now(), Command: b.Command, Version: b.Version,
		Node: concurrency.Node{CPUs: b.smallestCPUs()}, Nodes: b.names(), Blocks: b.Blocks, Caveats: caveats,
		Fill: string(b.Fill), Seed: b.Seed, Job: b.argv(0), JobWork: b.whole, Refused: b.refused, Machine: &machine,
		Versions: map[string]string{"kubelet": first.kubelet, "container runtime": first.runtime, "image": b.Image},
	}
	return e
}

func (b *bench) run(ctx context.Context, cell sweep.Cell, index, block int) (run, error) {
	r, err := b.measure(ctx, cell, index, block)
	if err != nil {
		return r, fmt.Errorf("cell %v: %w", cell, err)
	}
	return r, nil
}

func tell(r run) string {
	if len(r.rows) == 0 {
		return ""
	}
	seconds, cost, on := 0.0, 0.0, map[string]int{}
	for _, j := range r.rows {
		seconds += j.Seconds() / float64(len(r.rows))
		s, _ := j.CPUSeconds()
		cost += s / float64(len(r.rows))
		on[j.Host]++
	}
	text := fmt.Sprintf("%7.2f s a job, %6.2f CPU-s", seconds, cost)
	if len(on) > 1 {
		var each []string
		for _, n := range slices.Sorted(maps.Keys(on)) {
			each = append(each, fmt.Sprintf("%d on %s", on[n], n))
		}
		text += ", " + strings.Join(each, ", ")
	}
	return text
}
