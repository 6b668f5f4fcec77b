package bescheduler

import (
	"maps"
	"slices"
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
	return statusOf(raw, x.now())
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

var classNames = map[scx.Class]node.SchedulerClass{
	scx.Normal: node.SchedulerNormal, scx.BE: node.SchedulerBE, scx.LS: node.SchedulerLS, scx.LSX: node.SchedulerLSX,
}

// statusOf converts a status of package scx to the type of package node.
func statusOf(s scx.Status, at time.Time) *node.SchedulerStatus {
	v := &node.SchedulerStatus{
		At: at, State: s.State, Running: s.Running, Variant: string(s.Variant), Since: s.Since,
		Run: map[node.SchedulerClass]time.Duration{}, Strayed: s.Strayed, Idle: s.Idle,
		ExpelIdle: s.ExpelIdle, HoldIdle: s.HoldIdle, ExpelDelay: slices.Clone(s.ExpelDelay[:]),
		OldestWait: s.OldestWait, Parked: s.Parked,
		SchedulerCounts: node.SchedulerCounts{
			Switches: s.Switches, Starts: s.Starts, Expels: s.Expels, Refusals: s.Refusals, Violations: s.Violations,
			Races: s.Races, Resumed: s.Resumed, Relief: s.Relief, Preempted: s.Preempted, Reenqueued: s.Reenqueued,
			Throttled: s.Exhausted, Capped: s.Capped, Headroom: s.Headroom, Urgent: s.Urgent, Pinned: s.Pinned,
			Drift: s.Drift, LongWaits: s.LongWaits, Lost: s.Lost,
			KicksExpel: s.KicksExpel, KicksWake: s.KicksWake, KicksTimer: s.KicksReaper,
		},
	}
	for class, name := range classNames {
		v.Run[name] = s.Run[class]
	}
	for _, p := range s.Pods {
		v.Wait += p.Wait
	}
	for _, l := range s.LLCs {
		v.Queues = append(v.Queues, node.SchedulerQueue{Waiting: l.Queued, Urgent: l.Urgent, Pinned: l.Pinned})
	}
	return v
}
