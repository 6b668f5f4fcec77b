package bescheduler

import (
	"maps"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// Status returns the fields of an IsolationStatus that are about the scheduler:
// its state, and its counters since New. It reads the counters if a scheduler
// is loaded.
func (x *Scheduler) Status() node.IsolationStatus {
	var now *node.SchedulerStatus
	if s := x.program(); s != nil {
		now = x.lastStatus(s)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if now != nil {
		x.status.Scheduler = now
	}
	all := x.status
	all.Exits, all.Refused = maps.Clone(x.status.Exits), x.orders.refusals()
	return all
}

// lastStatus reads the counters of a scheduler. It returns nil if they cannot
// be read.
func (x *Scheduler) lastStatus(s Program) *node.SchedulerStatus {
	raw, err := s.Status()
	if err != nil {
		return nil
	}
	v := raw.SchedulerStatus
	v.At = x.now()
	return &v
}

// ended records that a scheduler has ended, and its last counters.
func (x *Scheduler) ended(e scx.Exit, at time.Time, last *node.SchedulerStatus) {
	x.mu.Lock()
	defer x.mu.Unlock()
	kind := exitKind(e.Kind)
	x.status.Exits[kind]++
	x.status.LastExit = node.SchedulerExit{At: at, Kind: kind, Code: e.Code, Reason: e.Reason, Message: e.Message}
	if last != nil {
		last.Running = false
		x.status.Scheduler = last
	} else if x.status.Scheduler != nil {
		ended := *x.status.Scheduler
		ended.Running = false
		x.status.Scheduler = &ended
	}
}

func exitKind(k scx.ExitKind) node.ExitKind {
	switch k {
	case scx.ExitDone, scx.ExitUnload:
		return node.ExitUnload
	case scx.ExitSelf:
		return node.ExitSilent
	case scx.ExitKernel:
		return node.ExitKernel
	case scx.ExitSysrq:
		return node.ExitSysrq
	case scx.ExitErrorStall:
		return node.ExitStall
	}
	return node.ExitError
}
