package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/psi"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// pressureWindow is the shortest window that all kernels accept for a PSI
	// trigger from a process with CAP_SYS_RESOURCE. For other processes, it is
	// unprivilegedWindow (Documentation/accounting/psi.rst).
	pressureWindow     = 500 * time.Millisecond
	unprivilegedWindow = 2 * time.Second
	// A trigger fires when threads have waited for a tenth of the window
	// (docs/decisions/0016-wake-ups.md).
	stallDivisor = 10
	// maxTriggered is the maximum number of workloads with triggers, because the
	// kernel runs a real-time thread for each cgroup with a trigger.
	maxTriggered = 32
	// retryPause is the time before Tenon sets lost triggers again.
	retryPause = 10 * time.Second
)

// A triggerTarget is a resource of a workload, or of the node if id is empty.
type triggerTarget struct {
	id       node.WorkloadID
	cgroup   node.CgroupPath
	resource string
}

// pressure keeps PSI triggers for the CPU and memory of latency-sensitive
// workloads. On cgroup v1, only the node has pressure files, and its CPU needs no
// trigger: if best-effort work fills the node, some thread always waits for a CPU.
type pressure struct {
	tree *cgroup.Tree
	proc string // where procfs is mounted
	log  *slog.Logger
	send func(tick.Event)

	triggers map[triggerTarget]*psi.Trigger
	window   time.Duration
	said     map[remark]bool // faults of triggers that have been logged
	lost     atomic.Bool     // a trigger has ended without Close since the last follow
	retried  time.Time
	passing  sync.WaitGroup
}

// A remark identifies a fault of triggers that was logged before.
type remark struct {
	what        string
	errno       syscall.Errno
	unsupported bool
}

func newPressure(tree *cgroup.Tree, proc string, log *slog.Logger, send func(tick.Event)) *pressure {
	return &pressure{
		tree: tree, proc: proc, log: log, send: send,
		triggers: map[triggerTarget]*psi.Trigger{}, window: pressureWindow, said: map[remark]bool{},
	}
}

// follow sets triggers for these workloads, or none if on is false. It removes
// all others. If cpu is set, the CPU also gets triggers, not only memory.
func (p *pressure) follow(workloads []node.Workload, on, cpu bool) {
	p.lost.Store(false)
	want := map[triggerTarget]bool{}
	if on {
		want = p.wanted(workloads, cpu)
	}
	for w, tr := range p.triggers {
		if !want[w] || tr.Err() != nil { // after an error, there may be a new cgroup of the same name
			tr.Close()
			delete(p.triggers, w)
		}
	}
	for w := range want {
		if p.triggers[w] == nil {
			p.watch(w)
		}
	}
}

func (p *pressure) wanted(workloads []node.Workload, cpu bool) map[triggerTarget]bool {
	if p.tree.Version() == 1 {
		return map[triggerTarget]bool{{resource: "memory"}: true}
	}
	want := map[triggerTarget]bool{}
	n := 0
	for _, w := range workloads {
		if !w.Class.Sensitive() {
			continue
		}
		if n++; n > maxTriggered {
			p.sayOnce(fmt.Sprintf("pressure wakes the loop for the first %d latency-sensitive workloads only", maxTriggered), nil)
			break
		}
		want[triggerTarget{w.ID, w.Cgroup, "memory"}] = true
		if cpu {
			want[triggerTarget{w.ID, w.Cgroup, "cpu"}] = true
		}
	}
	return want
}

// retry reports whether to call follow again, because a trigger has ended
// without Close. It returns true at most once per retryPause.
func (p *pressure) retry(now time.Time) bool {
	if !p.lost.Load() || now.Sub(p.retried) < retryPause {
		return false
	}
	p.retried = now
	return true
}

// watch sets one trigger, and forwards its events. It logs each kind of failure once.
func (p *pressure) watch(w triggerTarget) {
	tr, err := p.trigger(w)
	if errors.Is(err, cgroup.ErrGone) {
		return // the cgroup is gone, and the next follow drops it
	}
	if err != nil {
		p.sayOnce(w.resource+" pressure does not wake the loop", err)
		return
	}
	p.triggers[w] = tr
	e := p.eventOf(w)
	p.passing.Go(func() {
		for range tr.Fired() {
			e.At = time.Now()
			p.send(e)
		}
		if tr.Err() != nil {
			p.lost.Store(true)
		}
	})
}

// eventOf returns the event of a trigger, without its time.
func (p *pressure) eventOf(w triggerTarget) tick.Event {
	stall := p.window / stallDivisor
	e := tick.Event{Kind: tick.EventPressure, Workload: w.id, Text: fmt.Sprintf("%s: some thread waited for %v in %v", w.resource, stall, p.window)}
	if w.resource == "cpu" {
		e.Wait = stall
	}
	return e
}

func (p *pressure) trigger(w triggerTarget) (*psi.Trigger, error) {
	set := func() (*psi.Trigger, error) {
		if w.id == "" {
			return cgroup.NodeTrigger(p.proc, w.resource, p.window/stallDivisor, p.window)
		}
		return p.tree.Trigger(string(w.cgroup), w.resource, p.window/stallDivisor, p.window)
	}
	tr, err := set()
	refused := errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) // the kernel refused the window
	if refused && p.window == pressureWindow {
		p.window = unprivilegedWindow
		tr, err = set()
	}
	return tr, err
}

func (p *pressure) sayOnce(what string, err error) {
	r := remark{what: what, unsupported: errors.Is(err, cgroup.ErrUnsupported)}
	_ = errors.As(err, &r.errno) // errno 0: the error does not come from the kernel
	if p.said[r] {
		return
	}
	p.said[r] = true
	if err != nil {
		p.log.Warn(what, "error", err)
		return
	}
	p.log.Warn(what)
}

func (p *pressure) close() {
	for _, tr := range p.triggers {
		tr.Close()
	}
	p.triggers = nil
	p.passing.Wait()
}
