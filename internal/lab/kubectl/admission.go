package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ErrRefused says that the API server refuses to create pods of the lab.
var ErrRefused = errors.New("the API server refuses the pods")

// admissionTimes are the times for pods that do not exist yet.
type admissionTimes struct {
	look  time.Duration // time between two questions for the reason
	stand time.Duration // time for which a refusal must stand
	// quota is the time for which a refusal by a quota must stand. A quota
	// still counts the pods of the last run for a while.
	quota time.Duration
}

var usualAdmission = admissionTimes{look: 4 * time.Second, stand: 8 * time.Second, quota: 30 * time.Second}

// Admitted watches the pods that match a selector, as WatchPods does. The
// objects of a kind (jobs, deployments) with this selector must create n pods.
// If the API server refuses to create these pods, for example because of a
// quota, Admitted returns ErrRefused and the reason.
func (k Client) Admitted(ctx context.Context, kind, selector string, n int, see func(pods map[string]Pod) (done bool, err error)) error {
	g := guard(ctx, k, kind, selector, n, usualAdmission)
	defer g.stop()
	return g.result(k.WatchPods(g.ctx, selector, func(pods map[string]Pod) (bool, error) {
		g.saw(len(pods))
		return see(pods)
	}))
}

// An admissionGuard asks why pods do not exist, until all of them have been seen.
type admissionGuard struct {
	Client
	ctx            context.Context // ends if the pods are refused
	refuse         context.CancelCauseFunc
	kind, selector string
	missing        atomic.Bool
	ended          chan struct{}
	pods           int
}

func guard(ctx context.Context, k Client, kind, selector string, pods int, times admissionTimes) *admissionGuard {
	g := &admissionGuard{Client: k, kind: kind, selector: selector, pods: pods, ended: make(chan struct{})}
	g.ctx, g.refuse = context.WithCancelCause(ctx)
	g.missing.Store(true)
	go g.ask(times)
	return g
}

// saw takes the number of pods that exist.
func (g *admissionGuard) saw(pods int) {
	if pods >= g.pods {
		g.missing.Store(false)
	}
}

func (g *admissionGuard) stop() {
	g.refuse(nil)
	<-g.ended
}

// result returns the refusal in place of an error that it has caused.
func (g *admissionGuard) result(err error) error {
	if cause := context.Cause(g.ctx); err != nil && errors.Is(cause, ErrRefused) {
		return cause
	}
	return err
}

func (g *admissionGuard) ask(times admissionTimes) {
	defer close(g.ended)
	var since time.Time // begin of the refusals; zero: there was none
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-time.After(times.look):
		}
		if !g.missing.Load() {
			return
		}
		why := g.refusal(g.ctx, g.kind, g.selector)
		if why == "" {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		stand := times.stand
		if strings.Contains(why, "exceeded quota") {
			stand = times.quota
		}
		if time.Since(since) >= stand && g.missing.Load() {
			g.refuse(fmt.Errorf("%w: %s", ErrRefused, why))
			return
		}
	}
}

// refusal returns why the API server refuses to create the pods of objects, or
// "". A Deployment has the reason in its status. For a Job, only events have the
// reason. If the user may not read events, refusal returns "" for every Job.
func (k Client) refusal(ctx context.Context, kind, selector string) string {
	var owners struct {
		Items []struct {
			Metadata struct{ UID string }
			Status   struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
	}
	if k.Get(ctx, &owners, kind, "-l", selector) != nil {
		return "" // the watch fails for the same reason, and returns it
	}
	var uids []string
	for _, o := range owners.Items {
		uids = append(uids, o.Metadata.UID)
		for _, c := range o.Status.Conditions {
			if c.Type == "ReplicaFailure" && c.Status == "True" && isRefusal(c.Message) {
				return c.Message
			}
		}
	}
	var events struct {
		Items []struct {
			InvolvedObject struct{ UID string }
			Message        string
		}
	}
	if k.Get(ctx, &events, "events", "--field-selector", "reason=FailedCreate") != nil {
		return ""
	}
	for _, e := range events.Items {
		if slices.Contains(uids, e.InvolvedObject.UID) && isRefusal(e.Message) {
			return strings.TrimPrefix(e.Message, "Error creating: ")
		}
	}
	return ""
}

// isRefusal reports whether a message comes from an admission controller or
// webhook that refuses a pod. Two other failures do not count: a webhook that does
// not answer, and a service account that does not exist yet in a new namespace.
func isRefusal(message string) bool {
	return strings.Contains(message, "is forbidden: ") && !strings.Contains(message, "error looking up service account") ||
		strings.Contains(message, " denied the request")
}
