package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/model/node"
)

// A changeLogger logs only changes. For a fault, it writes a line when the fault
// appears, when its cause changes, and when it ends, however many ticks the fault lasts.
type changeLogger struct {
	log       *slog.Logger
	failing   map[node.Knob]string // knobs whose last step failed, with the cause
	held      map[node.Knob]bool   // knobs left to another component
	loading   bool                 // the scheduler is being loaded
	blind     string               // why the last tick could not read the node; "": it could
	known     map[node.WorkloadID]string
	remarks   []string
	mechanism mechanismReport
	// undividedShares lists the divisions that logUndivided logged last.
	undividedShares string
}

// passes reports whether a write failed for a reason that ends by itself: the cgroup
// is gone, the scheduler is being loaded, or the step waits for the next tick.
func passes(err error) bool {
	return errors.Is(err, cgroup.ErrGone) || errors.Is(err, bescheduler.ErrLoading) || errors.Is(err, errReclaimed)
}

// tick logs what a tick changed.
func (r *changeLogger) tick(t tick.Tick, err error) {
	if t.Snapshot.At.IsZero() && err != nil {
		if text := err.Error(); text != r.blind {
			r.log.Error("the node cannot be read: best-effort work is narrowed until it can", "error", err)
			r.blind = text
		}
		return
	}
	if r.blind != "" {
		r.log.Info("the node can be read again")
		r.blind = ""
	}
	if t.Shadow != nil {
		return // nothing of what follows is in force
	}
	r.logUndivided(t.Wants)
	r.logContested(t.Wants)
	r.mechanism.report(r.log, t.Selection)
	failing := map[node.Knob]string{}
	said := r.loading
	r.loading = false
	for _, o := range t.Done {
		k := o.Step.Knob
		switch {
		case errors.Is(o.Err, cgroup.ErrGone): // the cgroup disappeared since the snapshot, or is not complete yet
			r.log.Debug("the cgroup is gone", "cgroup", k.Object(), "file", k.File)
		case errors.Is(o.Err, bescheduler.ErrLoading):
			if r.loading = true; !said {
				r.log.Info("the scheduler of best-effort threads is being loaded; the next isolation mechanism holds until then")
			}
		case o.Err != nil:
			failing[k] = causeOf(o.Err)
			if r.failing[k] != failing[k] {
				r.log.Warn("a knob could not be written; tried again in each tick", "cgroup", k.Object(), "file", k.File,
					"policy", o.Step.Owner.String(), "error", o.Err)
			}
		default:
			r.log.Debug(loop.LogWritten, "cgroup", k.Object(), "file", k.File, "from", text(o.Step.From), "to", text(o.Step.To),
				"policy", o.Step.Owner.String(), "reason", o.Step.Reason)
			r.logRun(o.Step)
		}
	}
	r.addUndead(t.Wants, failing)
	for k := range r.failing {
		if _, still := failing[k]; !still {
			r.log.Info("a knob that could not be written has its value now, or is gone", "cgroup", k.Object(), "file", k.File)
		}
	}
	r.failing = failing
}

// workloads logs the workloads that have come or gone, and the remarks of the
// rules.
func (r *changeLogger) workloads(all []node.Workload, remarks []string) {
	next := make(map[node.WorkloadID]string, len(all))
	come := 0
	for _, w := range all {
		next[w.ID] = w.Rule
		if _, had := r.known[w.ID]; !had {
			come++
			r.log.Debug("workload", "cgroup", w.Cgroup, "class", w.Class, "rule", w.Rule)
		}
	}
	gone := len(r.known) + come - len(next)
	if come > 0 || gone > 0 {
		r.log.Info("workloads changed", "now", len(next), "come", come, "gone", gone)
	}
	r.known = next
	if text := strings.Join(remarks, "\n"); text != strings.Join(r.remarks, "\n") {
		for _, remark := range remarks {
			r.log.Warn(remark)
		}
	}
	r.remarks = remarks
}

// causeOf returns the part of an error that does not contain the written value:
// the kernel's errno. Without an errno, it is the innermost error.
func causeOf(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// text returns a value as text, or "?" if the value is unknown.
func text(v node.Value) string {
	if v == nil {
		return "?"
	}
	return v.String()
}
