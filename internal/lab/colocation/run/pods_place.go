package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// BatchPodModes lists the default modes of an experiment whose batch pods the scheduler
// places: without requests, with CPU requests, and with batch resources.
var BatchPodModes = []report.Mode{report.Exclusive, report.Default, report.Burstable, report.Tenon}

// countSettled is the time for which the number of batch pods that run must stand. The
// scheduler may find room for a pod that had none, when a pod of the mode before is gone.
const countSettled = 2 * time.Second

// batchPods returns the number of batch pods that the scheduler places. 0: there is one,
// which the lab binds to the node itself.
func (c Config) batchPods() int {
	if c.Pods == nil {
		return 0
	}
	return c.Pods.Batch
}

// batchPodDefaults sets the defaults of an experiment whose batch pods the scheduler
// places, and calls fault for each fault that is one there.
func (c Config) batchPodDefaults(fault func(format string, args ...any)) Config {
	switch {
	case c.Pods.Batch < 0:
		fault("--batch-pods %d: want 1 or more", c.Pods.Batch)
		return c
	case c.Pods.Batch == 0:
		if c.Pods.BatchCPU != 0 {
			fault("--batch-pod-cpu is for --batch-pods: it is what each of them asks for")
		}
		return c
	case c.Design == colocation.DesignSwitch:
		fault("--batch-pods is for --design %s: the scheduler places the pods of each mode anew", colocation.DesignBlocks)
	}
	if len(c.Modes) == 0 {
		c.Modes = slices.Clone(BatchPodModes)
	}
	for _, m := range c.Modes {
		if m != report.ExclusiveAA && !slices.Contains(BatchPodModes, m) {
			fault("mode %s: with --batch-pods want some of %s and %s", m, harness.JoinModes(BatchPodModes), report.ExclusiveAA)
		}
	}
	c.Design = colocation.DesignBlocks
	return c
}

// each returns what each batch pod asks for: together, all tested CPUs, if the user named
// no amount.
func (b *pods) each() unit.MilliCPU {
	return cmp.Or(b.Pods.BatchCPU, max(unit.CPUs(b.Place.Tested.Len())/unit.MilliCPU(b.Pods.Batch), 1))
}

// place has the scheduler place the batch pods of a mode. It returns the names of those
// that run, and what the scheduler made of all of them. Pods without room are removed, so
// that none of them begins to run while the mode is measured.
func (b *pods) place(ctx context.Context, t report.ModeSpec, rate float64) (run []string, p *colocation.BatchPods, err error) {
	found, err := nodes.Find(ctx, b.space.Client, []string{b.node.Name}) // with what the service has requested
	if err != nil {
		return nil, nil, err
	}
	p = &colocation.BatchPods{Created: b.Pods.Batch, Each: b.each()}
	switch n := found[0]; {
	case t.Isolates():
		p.Resource, p.Allocatable, p.Free = nodes.BatchCPU, n.Offers.BatchCPU, n.Free.BatchCPU
	case t.Eighths > 0:
		p.Resource, p.Allocatable, p.Free = nodes.CPU, n.Offers.CPU, n.Free.CPU
	}
	if err := b.space.Apply(ctx, b.batchPodManifests(t, rate, p)); err != nil {
		return nil, nil, err
	}
	run, rest, err := b.awaitPlaced(ctx, p.Created)
	if p.Placed = len(run); err == nil && len(rest) > 0 {
		_, err = b.space.Do(ctx, "", append([]string{"delete", "pod", "--wait", "--timeout=60s", "--ignore-not-found"}, rest...)...)
	}
	return run, p, err
}

// batchPodManifests returns the batch pods of a mode, which differ from the single one in
// that the scheduler places them. They ask for CPU only: memory is not compared.
func (b *pods) batchPodManifests(t report.ModeSpec, rate float64, p *colocation.BatchPods) []object {
	var all []object
	for i := range p.Created {
		container, labels := b.transcode(rate), object{}
		switch p.Resource {
		case nodes.BatchCPU:
			labels[nodes.ClassLabel] = "BE"
			amounts := object{nodes.BatchCPU: strconv.Itoa(int(p.Each))}
			container["resources"] = object{"requests": amounts, "limits": amounts}
		case nodes.CPU:
			container["resources"] = object{"requests": object{nodes.CPU: p.Each.String()}}
		}
		pod := b.pod(batchPod, labels, container)
		pod["metadata"].(object)["name"] = batchPodName(i)
		spec := pod["spec"].(object)
		delete(spec, "nodeName")
		spec["affinity"] = nodes.Affinity(b.node.Name)
		all = append(all, pod)
	}
	return all
}

func batchPodName(i int) string { return fmt.Sprintf("%s-%d", batchPod, i+1) }

// awaitPlaced waits until each of n batch pods runs or has found no room, and until that
// has not changed for a while. rest are those without room.
func (b *pods) awaitPlaced(ctx context.Context, n int) (run, rest []string, err error) {
	said := ""
	var before []string
	stands := time.Now()
	for deadline := time.Now().Add(podPatience); ; {
		var list struct{ Items []podState }
		if err := b.space.Get(ctx, &list, "pods", "-l", b.space.Selector("app", batchPod)); err != nil {
			return nil, nil, err
		}
		var open []string
		run, rest = nil, nil
		for _, p := range list.Items {
			switch name := p.Metadata.Name; {
			case p.Status.Phase == "Running":
				run = append(run, name)
			case p.hasNoRoom():
				rest = append(rest, name)
			case p.ended():
				return nil, nil, fmt.Errorf("pod %s/%s ended (%s) %s%w", b.space.Namespace, name, p.Status.Phase, p.why(), b.space.Complaint(ctx, name))
			default:
				open = append(open, strings.TrimSpace(name+": "+p.Status.Phase+" "+p.why()))
			}
		}
		if len(open) > 0 || len(run)+len(rest) < n || !slices.Equal(run, before) {
			before, stands = slices.Clone(run), time.Now()
		}
		switch now := strings.Join(open, "; "); {
		case time.Since(stands) >= countSettled:
			return run, rest, nil
		case time.Now().After(deadline):
			return nil, nil, fmt.Errorf("of %d batch pods %d run after %v, and %d found no room: %s", n, len(run), podPatience, len(rest), now)
		case now != said && now != "":
			b.Status.Now("waiting for the batch pods: %s", now)
			said = now
		}
		if err := testbed.Pause(ctx, 300*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
}

// A podState is the part of a pod that says whether it runs.
type podState struct {
	Metadata struct{ Name string }
	Status   struct {
		Phase, Reason, Message string
		Conditions             []struct{ Type, Status, Reason string }
		ContainerStatuses      []struct {
			State struct {
				Waiting *struct{ Reason, Message string }
			}
		}
	}
}

// ended reports whether no container of the pod will run any more.
func (p podState) ended() bool { return p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded" }

// notCovered reports whether the kubelet refused the pod, because the node does not have
// its batch resources.
func (p podState) notCovered() bool {
	return p.Status.Phase == "Failed" && slices.Contains(notCovered, p.Status.Reason)
}

// hasNoRoom reports whether the scheduler has no node for the pod, or its kubelet no
// resources.
func (p podState) hasNoRoom() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" && c.Reason == kubectl.Unschedulable {
			return true
		}
	}
	return p.notCovered()
}

// why says why the pod does not run.
func (p podState) why() string {
	text := strings.TrimSpace(p.Status.Reason + " " + p.Status.Message)
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += " " + strings.TrimSpace(w.Reason+" "+w.Message)
		}
	}
	return text
}
