package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/machine/journal"
)

// A podName names a pod of any namespace.
type podName struct{ Namespace, Name string }

func (p podName) String() string { return p.Namespace + "/" + p.Name }

const (
	// nodeJournal is the directory, in the pod of tenond, of the journal of the process
	// that changes the modes. It is on the node, so the next process finds it.
	nodeJournal = journal.DefaultDir + "/lab"
	// silencePatience is the time without a question, beside the length of turns, after
	// which that process takes the lab for lost.
	silencePatience = 10 * time.Second
	// longestTrip is the longest time from a question to its answer. With a longer one,
	// little of a turn of a second would be measured.
	longestTrip = 400 * time.Millisecond
)

// findSwitcher finds the pod of tenond on the node, and checks that the lab can change
// modes by it.
func (b *pods) findSwitcher(ctx context.Context) error {
	var list struct {
		Items []struct{ Metadata podName }
	}
	err := b.space.Get(ctx, &list, "pods", "--all-namespaces", "-l", "app.kubernetes.io/name=tenond", "--field-selector", "spec.nodeName="+b.node.Name+",status.phase=Running")
	switch {
	case err != nil:
	case len(list.Items) == 0:
		err = errors.New("the node has no running pod of tenond")
	default:
		b.tenond = list.Items[0].Metadata
		err = b.probeSwitcher()
	}
	if err != nil {
		return fmt.Errorf("switch modes on node %s by the pod of its tenond: %w: use --design %s, which does without", b.node.Name, err, colocation.DesignBlocks)
	}
	return nil
}

// probeSwitcher starts the process that changes the modes, without containers, and
// finds out how far the times of the node may be from those of the lab.
func (b *pods) probeSwitcher() error {
	r, err := b.openSwitcher(turns.Order{}, nil)
	if err != nil {
		return err
	}
	unsure := r.Uncertainty()
	switch err := r.Close(); {
	case err != nil:
		return err
	case unsure > longestTrip/2:
		return fmt.Errorf("an answer takes %v: want %v or less: run the lab nearer to the node", 2*unsure, longestTrip)
	case !b.node.Here:
		b.unsure = unsure.Truncate(time.Millisecond) + time.Millisecond
	}
	return nil
}

// openSwitcher starts the process that changes the modes of the given containers.
func (b *pods) openSwitcher(o turns.Order, progress func([]turns.Progress) error) (*turns.Remote, error) {
	o.Tested, o.Request, o.Journal = b.Place.Tested, requestOf(b.Place.Tested.Len()), nodeJournal
	o.Patience = max(2*b.Turn, b.Warmup()) + silencePatience
	shell, err := b.space.Exec("tenon in pod "+b.tenond.String(), "-n", b.tenond.Namespace, b.tenond.Name, "-c", "tenond", "--", "/tenon", "lab", "child", turns.Role)
	if err != nil {
		return nil, err
	}
	return turns.OpenRemote(shell, o, b.node.Here, progress)
}

// Others watches the node by the process that also changes the modes: the lab may run
// on another machine.
func (b *pods) Others(_ context.Context, watch time.Duration) (report.Others, error) {
	r, err := b.openSwitcher(turns.Order{}, nil)
	if err != nil {
		return report.Others{}, err
	}
	o, err := r.Others(watch)
	return o, errors.Join(err, r.Close())
}

// switcher changes the mode by a process on the node.
func (st *podSetUp) switcher(ctx context.Context) (turns.Switcher, error) {
	// What tenond gives back later would be taken for the work of another program.
	if why := st.b.agrees(ctx, report.ModeSpec{Mode: report.Switched}); why != "" {
		return nil, fmt.Errorf("node %s: %s", st.b.node.Name, why)
	}
	var o turns.Order
	for pod, id := range map[string]*string{nginxPod: &o.Service, batchPod: &o.Batch} {
		var p struct {
			Status struct {
				ContainerStatuses []struct{ ContainerID string }
			}
		}
		if err := st.b.space.Get(ctx, &p, "pod", pod); err != nil {
			return nil, err
		}
		if len(p.Status.ContainerStatuses) != 1 {
			return nil, fmt.Errorf("pod %s has %d containers: want 1", pod, len(p.Status.ContainerStatuses))
		}
		_, *id, _ = strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		if *id == "" {
			return nil, fmt.Errorf("pod %s: its container has no id", pod)
		}
	}
	for i := range st.b.processes {
		o.Progress = append(o.Progress, progressFiles+strconv.Itoa(i+1))
	}
	r, err := st.b.openSwitcher(o, st.sampler.follow)
	if err != nil {
		return nil, err
	}
	return r, nil
}
