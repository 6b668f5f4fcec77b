package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// pods is the experiment with pods of a cluster, after its set-up. Close removes
// its objects. If it made the namespace, Close removes that, too.
type pods struct {
	bench
	space *kubectl.Space
	node  nodes.Node
	cpus  nodeCPUs

	limit, serverLimit int           // CPUs of the job, and of each server
	memory             unit.Bytes    // of each server
	failed             int           // number of runs in a row that failed
	blind              bool          // the image of the servers has no shell, so their counters are unknown
	patience           time.Duration // longest time from the start of the servers until the Service leads to both
}

// enterPods prepares the experiment on a cluster. Its error has every fault that
// can be found before the first run.
func enterPods(ctx context.Context, c Config) (_ site, err error) {
	b := &pods{bench: bench{Config: c, versions: map[string]string{}}, patience: answerPatience}
	if slices.Contains(c.Parts, pinning.NGINX) {
		if b.wrk, err = work.WrkProgram.Find(); err != nil {
			return nil, err
		}
	}
	b.Site, b.space, err = nodes.Enter(ctx, c.Setting, kubectl.Space{Target: c.Pods.Target, Experiment: pinning.Kind, Objects: "deployments,services,configmaps,pods"})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	b.Place.Client = b.Place.Client.Union(b.Place.Lab) // wrk has all of them, as published
	b.refuseUnsuited()
	return b, b.look(ctx)
}

// refuseUnsuited leaves out the modes that need the machine itself.
func (b *pods) refuseUnsuited() {
	b.Modes = slices.DeleteFunc(slices.Clone(b.Modes), func(m pinning.Mode) bool {
		if why := unsuited[m]; why != "" {
			b.refused = append(b.refused, fmt.Sprintf("%s: %s", m, why))
			return true
		}
		return false
	})
}

// podsBegin is the time that pods need to begin.
const podsBegin = 10 * time.Second

func (b *pods) length() time.Duration { return b.loop() + podsBegin }

// look chooses the node and the amounts of the pods.
func (b *pods) look(ctx context.Context) error {
	var names []string
	if b.Pods.Node != "" {
		names = []string{b.Pods.Node}
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

// calibrate makes the Service. There is nothing to measure: the loads are those of
// the published experiment.
func (b *pods) calibrate(ctx context.Context) ([]string, error) {
	b.Rounds = 1
	if slices.Contains(b.Parts, pinning.NGINX) {
		if _, err := b.space.Do(ctx, kubectl.Manifest(b.service()), "create", "-f", "-"); err != nil {
			return nil, err
		}
	}
	return []string{fmt.Sprintf("%s in %s on node %s, at most %v",
		textlayout.Plural(len(b.cells), "cell", "cells"), textlayout.Plural(b.Blocks, "block", "blocks"), b.node.Name, b.MaxTime)}, nil
}

func (b *pods) describe(e *pinning.Experiment) {
	e.Limit, e.Node, e.ClientOnNode, e.Machine = b.limit, b.node.Name, b.node.Here, b.node.Machine(b.FS)
	e.Versions["kubelet"], e.Versions["container runtime"] = b.node.Kubelet, b.node.Runtime
	caveat := func(format string, args ...any) { e.Caveats = append(e.Caveats, fmt.Sprintf(format, args...)) }
	caveat("the lab sees neither steal time nor other work on the node, so that it voids no run for them")
	if slices.Contains(b.Parts, pinning.Pi) {
		e.Versions["image of the job"] = b.Pods.Pi
	}
	e.ClientCPUs = unit.CPUSet{}
	if !slices.Contains(b.Parts, pinning.NGINX) {
		return
	}
	e.Servers, e.ServerLimit, e.ClientCPUs = replicas, b.serverLimit, b.Place.Client
	e.Versions["image of the servers"] = b.Pods.NGINX
	if b.memory < publishedMemory {
		caveat("each server has %.2f GiB of memory; the published manifest has 8 GiB, which the node has not free for two", float64(b.memory)/(1<<30))
	}
	caveat("without a CPU limit (shared-free, pinned) a server is Burstable and not Guaranteed: it has another parent cgroup and another OOM score, too")
	if b.serverLimit < publishedLimit {
		caveat("each server has %s; the published manifest has %d", textlayout.Plural(b.serverLimit, "CPU", "CPUs"), publishedLimit)
	}
	if b.node.Here {
		caveat("wrk ran on the tested node itself and shared its CPUs with the servers")
	}
}

// measure measures one cell. Its pods are gone when it returns.
func (b *pods) measure(ctx context.Context, c cell, r *pinning.Run) (err error) {
	selector := b.space.Selector(runLabel, strconv.Itoa(r.Index))
	defer func() {
		err = errors.Join(err, b.space.Clean(ctx, selector, "foreground"))
	}()
	if _, err := b.space.Do(ctx, kubectl.Manifest(b.manifest(c, r.Index)), "create", "-f", "-"); err != nil {
		return err
	}
	if c.part == pinning.Pi {
		err = b.runPi(ctx, c.mode, selector, r)
	} else {
		err = b.runServers(ctx, c.mode, selector, r)
	}
	if err == nil {
		b.failed = 0
		return nil
	}
	// A pod that fails, or a call that gets no answer, ends this run only.
	hopeless := errors.Is(err, kubectl.ErrLeaseLost) || errors.Is(err, kubectl.ErrRefused)
	if b.failed++; ctx.Err() != nil || hopeless || b.failed >= mostFailed {
		return err
	}
	r.Void = append(r.Void, err.Error())
	return nil
}

// mostFailed is the number of runs in a row that fail before the lab gives up.
const mostFailed = 3

// givesCPUs reports whether a pod has CPUs of its own or a pool in a mode.
func givesCPUs(m pinning.Mode) bool {
	return m == pinning.Pinned || m == pinning.PinnedQuota || m == pinning.StaticBurst
}
