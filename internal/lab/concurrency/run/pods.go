package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/testbed"
)

// pods is the experiment on nodes of a cluster, after its set-up. Close removes its
// Jobs. If it made the namespace, Close removes that, too.
type pods struct {
	bench
	space  *kubectl.Space
	nodes  []nodes.Node
	height int           // of the transcoded picture
	skew   time.Duration // of the nodes' clock, against that of this machine
	lead   time.Duration // from the release of a wave to its begin
}

// enterPods prepares the experiment on a cluster. Its error has every fault that
// can be found before the first run.
func enterPods(ctx context.Context, c Config) (_ site, err error) {
	b := &pods{bench: bench{Config: c}, lead: leadOf(1)}
	b.Site, b.space, err = nodes.Enter(ctx, c.Setting, kubectl.Space{Target: c.Pods.Target, Experiment: labWord, Objects: "jobs"})
	if err != nil {
		return nil, err
	}
	b.Place = testbed.Placement{} // the lab measures no CPU of this machine
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.nodes, err = nodes.Find(ctx, b.space.Client, c.Pods.Nodes); err != nil {
		return nil, err
	}
	if b.height = b.Height; b.height == 0 {
		b.height = heightFor(b.smallestCPUs())
		if b.AsPublished {
			b.height = 1080
		}
	}
	first := b.nodes[0]
	b.versions = map[string]string{"kubelet": first.Kubelet, "container runtime": first.Runtime, "image": c.Pods.Image}
	return b, nil
}

func (b *pods) length() time.Duration { return b.lead + b.Work + 6*time.Second }

// smallestCPUs is the number of CPUs of the smallest tested node.
func (b *pods) smallestCPUs() int {
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
func (b *pods) calibrate(ctx context.Context) (lines []string, err error) {
	if b.AsPublished {
		return nil, nil
	}
	b.Status.Now("calibrating: one job alone")
	b.whole = firstFrames
	r, err := b.measure(ctx, Reference, 0, 0)
	if err == nil && len(r.Void) > 0 {
		err = errors.New(strings.Join(r.Void, "; "))
	}
	if err != nil {
		return nil, fmt.Errorf("a job alone: %w", err)
	}
	row := r.Rows[0]
	cost, known := row.Extra.CPUSeconds.Value()
	if !known {
		cost = row.Duration().Seconds()
		b.caveats = append(b.caveats, "the container of a job does not see the counters of its cgroup: the CPU time of a job is limit × duration")
	}
	lines = append(lines, fmt.Sprintf("a job alone takes %.2f s and %.2f s of CPU time", row.Duration().Seconds(), cost))
	if len(b.Argv) == 0 {
		frames := row.Extra.Work.Or(0)
		if !(frames > 0 && cost > 0) {
			return nil, fmt.Errorf("a job alone has encoded no frame of %s", b.film())
		}
		b.whole = max(float64(int(frames/cost*b.Work.Seconds())), 1)
		lines = append(lines, fmt.Sprintf("a job is %.0f frames: about %v of CPU time, alone", b.whole, b.Work))
	}
	return lines, nil
}

func (b *pods) names() []string {
	var names []string
	for _, t := range b.nodes {
		names = append(names, t.Name)
	}
	return names
}

func (b *pods) describe(e *concurrency.Experiment) {
	caveat := func(format string, args ...any) { b.caveats = append(b.caveats, fmt.Sprintf(format, args...)) }
	if here := slices.IndexFunc(b.nodes, func(t nodes.Node) bool { return t.Here }); here >= 0 {
		caveat("the lab itself runs on node %s: its kubectl takes CPU time there between the runs, at their ends, and for a moment every 20 s", b.nodes[here].Name)
	}
	caveat("the lab sees neither steal time nor other work on the nodes, so that it voids no run for them")
	if b.AsPublished {
		caveat("as published, the jobs of a cell have no common begin")
	}
	e.Machine, e.Node, e.Nodes, e.Job = b.nodes[0].Machine(b.FS), concurrency.Node{CPUs: b.smallestCPUs()}, b.names(), b.argv(0)
	e.Machine.CPUs = b.smallestCPUs()
}
