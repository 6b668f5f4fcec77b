package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// A bench is the experiment after its set-up.
type bench struct {
	Config
	*testbed.Site
	space *kubectl.Space
	node  nodes.Node
	cpus  nodeCPUs

	limit, serverLimit int        // CPUs of the job, and of each server
	memory             unit.Bytes // of each server
	wrk                string     // path of wrk
	cells              []cell
	refused            []string
	failed             int           // number of runs in a row that failed
	blind              bool          // the image of the servers has no shell, so their counters are unknown
	patience           time.Duration // longest time from the start of the servers until the Service leads to both
}

// Run runs the experiment. When it returns, even with an error, it has removed
// its objects. If it made the namespace, it has removed that, too. If it
// returns both an Outcome and an error, the Outcome has the runs that had ended
// before the error.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	b, err := newBench(ctx, c)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	const podsBegin = 10 * time.Second
	return (&harness.Series[cell, pinning.Run]{
		Site: b.Site, Cells: b.cells, Blocks: b.Blocks, Most: b.MaxTime, First: b.Duration + podsBegin,
		Calibrate: b.describe, Run: b.run, Tell: tell, Open: pinning.Open,
		Save:    func(r pinning.Run) error { return pinning.AddRun(b.Out, r) },
		Void:    func(r pinning.Run) []string { return r.Void },
		Decides: pinning.Decides,
	}).Conduct(ctx)
}

// newBench prepares the experiment. Its error has every fault that can be found
// before the first run.
func newBench(ctx context.Context, c Config) (_ *bench, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, err
	}
	b := &bench{Config: c, patience: answerPatience}
	client, err := kubectl.Find(c.Context, c.Namespace)
	if err != nil {
		return nil, err
	}
	if slices.Contains(c.Parts, pinning.NGINX) {
		if b.wrk, err = work.WrkProgram.Find(); err != nil {
			return nil, err
		}
	}
	if b.Site, err = testbed.Away(c.Setting); err != nil {
		return nil, err
	}
	b.Place.Client = b.Place.Client.Union(b.Place.Lab) // wrk has all of them, as published
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	b.space = &kubectl.Space{Client: client, Namespace: c.Namespace, Experiment: pinning.Kind, Objects: "deployments,services,configmaps,pods", Tell: b.Status.Now}
	b.Undo = append(b.Undo, b.space.Leave)
	b.Status.Now("looking at the cluster")
	// First remove the pods of a lab that was killed. Otherwise they would
	// count as pods of other users.
	if err := b.space.Enter(ctx); err != nil {
		return nil, err
	}
	if err := b.look(ctx); err != nil {
		return nil, err
	}
	if b.cells, b.refused = b.choose(); len(b.cells) == 0 {
		return nil, fmt.Errorf("node %s can run nothing of this:\n%s", b.node.Name, strings.Join(b.refused, "\n"))
	}
	if slices.Contains(c.Parts, pinning.NGINX) {
		_, err = b.space.Do(ctx, kubectl.Manifest(b.service()), "create", "-f", "-")
	}
	return b, err
}

// look chooses the node and the amounts of the pods.
func (b *bench) look(ctx context.Context) error {
	var names []string
	if b.Node != "" {
		names = []string{b.Node}
	}
	all, err := nodes.Find(ctx, b.space.Client, names)
	if err != nil {
		return err
	}
	if len(all) > 1 {
		return fmt.Errorf("the cluster has %d nodes that take ordinary pods: name one with --node, such as %s", len(all), all[0].Name)
	}
	b.node = all[0]
	if b.cpus, err = readCPUs(ctx, b.space.Client, b.node.Name); err != nil {
		return err
	}
	if b.node.Address == "" && slices.Contains(b.Parts, pinning.NGINX) {
		return fmt.Errorf("node %s has no InternalIP, so there is no address for wrk", b.node.Name)
	}
	b.limit, b.serverLimit, b.memory = b.Limit, b.Limit, publishedMemory
	if b.Limit == 0 {
		// One CPU of a node stays shared while pods have CPUs of their own.
		free := min(b.node.CPUs-1, int(b.node.Free.CPU/1000))
		b.limit = min(publishedLimit, max(free, 1))
		b.serverLimit = min(publishedLimit, max(free/replicas, 1))
	}
	if most := b.node.Free.Memory / replicas; most < b.memory {
		b.memory = max(most>>20<<20, 1<<20)
	}
	return nil
}

// describe returns the content of experiment.json. There is nothing to
// calibrate: the loads are those of the published experiment.
func (b *bench) describe(_ context.Context, caveats []string) (report.Headed, []string, error) {
	lines := []string{fmt.Sprintf("%s in %s on node %s, at most %v",
		textlayout.Plural(len(b.cells), "cell", "cells"), textlayout.Plural(b.Blocks, "block", "blocks"), b.node.Name, b.MaxTime)}
	e := &pinning.Experiment{
		Header: b.Header(pinning.Kind, b.Modes, b.Blocks), Parts: b.Parts, Limit: b.limit,
		Node: b.node.Name, ClientOnNode: b.node.Here, Threads: b.Threads, Digits: b.Digits, Rounds: b.Rounds,
	}
	e.Refused, e.Machine, e.Versions = b.refused, b.node.Machine(b.FS), map[string]string{"kubelet": b.node.Kubelet, "container runtime": b.node.Runtime}
	e.Caveats = append(caveats, "the lab sees neither steal time nor other work on the node, so that it voids no run for them")
	e.ClientCPUs = unit.CPUSet{}
	if slices.Contains(b.Parts, pinning.NGINX) {
		e.Servers, e.ServerLimit, e.ClientCPUs = replicas, b.serverLimit, b.Place.Client
		e.Versions["image of the servers"] = b.NGINX
		e.Caveats = append(e.Caveats, "the closed loop waits for answers before it asks again: its average follows from its requests per second")
		if b.memory < publishedMemory {
			e.Caveats = append(e.Caveats, fmt.Sprintf("each server has %.2f GiB of memory; the published manifest has 8 GiB, which the node has not free for two", float64(b.memory)/(1<<30)))
		}
		e.Caveats = append(e.Caveats, "without a CPU limit (shared-free, pinned) a server is Burstable and not Guaranteed: it has another parent cgroup and another OOM score, too")
		if b.serverLimit < publishedLimit {
			e.Caveats = append(e.Caveats, fmt.Sprintf("each server has %s; the published manifest has %d", textlayout.Plural(b.serverLimit, "CPU", "CPUs"), publishedLimit))
		}
		if b.node.Here {
			e.Caveats = append(e.Caveats, "wrk ran on the tested node itself and shared its CPUs with the servers")
		}
	}
	if slices.Contains(b.Parts, pinning.Pi) {
		e.Versions["image of the job"] = b.Pi
	}
	return e, lines, nil
}

func tell(r pinning.Run) string {
	if r.Closed != nil {
		return fmt.Sprintf("%8.0f requests/s  average %6.0f µs", r.Closed.Rate, r.Closed.Mean)
	}
	if r.PiResult != nil {
		return fmt.Sprintf("%8.2f s", r.PiResult.Seconds)
	}
	return ""
}

// run measures one cell. Its pods are gone when it returns.
func (b *bench) run(ctx context.Context, c cell, index, block int) (r pinning.Run, err error) {
	r = pinning.Run{Index: index, Block: block, Part: c.part, Mode: c.mode, Started: time.Now()}
	selector := b.space.Selector(runLabel, strconv.Itoa(index))
	defer func() {
		if err = errors.Join(err, b.space.Clean(ctx, selector, "foreground")); err != nil {
			err = fmt.Errorf("%v: %w", c, err)
		}
	}()
	if _, err := b.space.Do(ctx, kubectl.Manifest(b.manifest(c, index)), "create", "-f", "-"); err != nil {
		return r, err
	}
	if c.part == pinning.Pi {
		err = b.runPi(ctx, c.mode, selector, &r)
	} else {
		err = b.runServers(ctx, c.mode, selector, &r)
	}
	if err == nil {
		b.failed = 0
		return r, nil
	}
	// A pod that fails, or a call that gets no answer, ends this run only.
	hopeless := errors.Is(err, kubectl.ErrLeaseLost) || errors.Is(err, kubectl.ErrRefused)
	if b.failed++; ctx.Err() != nil || hopeless || b.failed >= mostFailed {
		return r, err
	}
	r.Void = append(r.Void, err.Error())
	return r, nil
}

// mostFailed is the number of runs in a row that fail before the lab gives up.
const mostFailed = 3

// givesCPUs reports whether a pod has CPUs of its own or a pool in a mode.
func givesCPUs(m pinning.Mode) bool {
	return m == pinning.Pinned || m == pinning.PinnedQuota || m == pinning.StaticBurst
}
