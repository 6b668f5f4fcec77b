package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// podPatience is the longest time from the creation of pods until all their
	// containers run. It includes the time to download the image.
	podPatience = 5 * time.Minute
	// roomPatience is the longest time for which the scheduler may find no node
	// for a pod.
	roomPatience = 30 * time.Second
)

// A Pod is the state of a pod.
type Pod struct {
	Name, Phase string
	Started     string // when its container started; empty: the container does not run
	// Scheduled is why the scheduler has no node for the pod (a reason of the API),
	// and Waiting why its containers do not run. Both are empty if they do.
	Scheduled string
	Waiting   []string
}

// Unschedulable is the reason of the condition PodScheduled if no node takes a pod
// (k8s.io/api/core/v1: PodReasonUnschedulable).
const Unschedulable = "Unschedulable"

// Ended reports whether no container of the pod will run any more.
func (p Pod) Ended() bool { return p.Phase == "Failed" || p.Phase == "Succeeded" }

// podColumns are the fields of a Pod. kubectl would turn tabs into blanks.
const podColumns = `jsonpath={.metadata.name}{"|"}{.status.phase}{"|"}{.status.containerStatuses[*].state.running.startedAt}` +
	`{"|"}{.status.conditions[?(@.type=="PodScheduled")].reason}{" "}{.status.containerStatuses[*].state.waiting.reason}{" "}{.status.initContainerStatuses[*].state.waiting.reason}{"\n"}`

// WatchPods calls see with the states of the pods that match a selector, after
// each change. It ends when see returns true or an error.
func (k Client) WatchPods(ctx context.Context, selector string, see func(pods map[string]Pod) (done bool, err error)) error {
	pods := map[string]Pod{}
	return k.Watch(ctx, func(line string) (bool, error) {
		f := strings.Split(line, "|")
		if len(f) != 4 {
			return false, fmt.Errorf("kubectl says %.300q of a pod", line)
		}
		scheduled, waiting, _ := strings.Cut(f[3], " ")
		pods[f[0]] = Pod{f[0], f[1], strings.TrimSpace(f[2]), scheduled, strings.Fields(waiting)}
		return see(pods)
	}, "get", "pods", "-l", selector, "--watch", "-o", podColumns)
}

// Gather waits until the containers of n pods run. These are the pods that the
// objects of a kind (jobs, deployments) with a selector create. If the
// scheduler finds no node for one of them, Gather returns the reason (why). It
// returns an error if the API server refuses a pod (ErrRefused), if a pod ends,
// or after five minutes. It passes its progress to tell.
func (k Client) Gather(ctx context.Context, kind, selector string, n int, tell func(format string, args ...any)) (why string, err error) {
	return k.gather(ctx, guard(ctx, k, kind, selector, n, usualAdmission), tell)
}

func (k Client) gather(ctx context.Context, g *admissionGuard, tell func(format string, args ...any)) (why string, err error) {
	defer g.stop()
	for begun := time.Now(); ; {
		pods, err := g.gatherFor(roomPatience)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return "", err
		}
		state, unplaced := Waiting(pods, g.pods)
		if unplaced {
			return state, nil
		}
		if time.Since(begun) > podPatience {
			return "", fmt.Errorf("the pods do not run after %v: %s", podPatience, state)
		}
		tell("waiting for the pods: %s", state)
	}
}

// gatherFor does what Gather does, for a limited time, and returns the last
// state of each pod. The caller needs the limit because a watch reports only
// changes, and a pod for which there is no node does not change.
func (g *admissionGuard) gatherFor(patience time.Duration) (last map[string]Pod, err error) {
	ctx, stop := context.WithTimeout(g.ctx, patience)
	defer stop()
	err = g.WatchPods(ctx, g.selector, func(pods map[string]Pod) (bool, error) {
		last = pods
		g.saw(len(pods))
		running := 0
		for _, p := range pods {
			switch {
			case p.Ended():
				return false, fmt.Errorf("pod %s ended before its begin (%s)%w", p.Name, p.Phase, g.Complaint(ctx, p.Name))
			case p.Phase == "Running" && p.Started != "":
				running++
			}
		}
		return running == g.pods, nil
	})
	return last, g.result(err)
}

// Waiting describes which of n created pods do not run. unplaced is true if the
// scheduler finds no node for one of them.
func Waiting(pods map[string]Pod, n int) (state string, unplaced bool) {
	var waiting []string
	for _, p := range pods {
		if p.Started == "" {
			reasons := slices.DeleteFunc(append([]string{p.Scheduled}, p.Waiting...), func(text string) bool { return text == "" })
			waiting = append(waiting, strings.TrimSpace(p.Name+": "+p.Phase+" "+strings.Join(reasons, ", ")))
			unplaced = unplaced || p.Scheduled == Unschedulable
		}
	}
	slices.Sort(waiting)
	if missing := n - len(pods); missing > 0 {
		waiting = append(waiting, fmt.Sprintf("%d pods do not exist yet", missing))
	}
	if unplaced {
		return "not all pods found room at once: " + strings.Join(waiting, "; "), true
	}
	return strings.Join(waiting, "; "), false
}

// Complaint returns the last output of pods, as the end of an error.
func (k Client) Complaint(ctx context.Context, pods ...string) error {
	text := ""
	for _, pod := range pods {
		if out, err := k.Do(ctx, "", "logs", "--tail=5", pod); err == nil && len(out) > 0 {
			text += ": " + strings.TrimSpace(string(out))
		}
	}
	return errors.New(text)
}
