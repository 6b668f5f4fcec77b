package host

import (
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// IsolationStatus returns the state and the counters of the isolation
// mechanisms since this host was opened. It reads the counters of a loaded
// scheduler.
func (h *Host) IsolationStatus() node.IsolationStatus {
	i := &h.isolation
	i.mu.Lock()
	s := i.scheduler.loaded
	i.mu.Unlock()
	var now *node.SchedulerStatus
	if s != nil {
		now = h.lastStatus(s)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if now != nil {
		i.status.Scheduler = now
	}
	all := i.status
	all.Exits = maps.Clone(i.status.Exits)
	all.Demoted, all.Refused = len(i.spills), i.scheduler.refusals()
	for k, n := range i.apart {
		switch k.File {
		case node.FilePolicy:
			all.Realtime += n
		case node.FileSlice:
			all.OwnSlices += n
		}
	}
	return all
}

// lastStatus reads the counters of a scheduler; nil: it cannot be read.
func (h *Host) lastStatus(s extScheduler) *node.SchedulerStatus {
	raw, err := s.Status()
	if err != nil {
		return nil
	}
	return schedulerStatus(raw, h.now())
}

// ended records the end of a scheduler, and its last counters.
func (i *isolation) ended(e scx.Exit, at time.Time, last *node.SchedulerStatus) {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := exitKind(e.Kind)
	i.status.Exits[kind]++
	i.status.LastExit = node.SchedulerExit{At: at, Kind: kind, Code: e.Code, Reason: e.Reason, Message: e.Message}
	if last != nil {
		last.Running = false
		i.status.Scheduler = last
	} else if i.status.Scheduler != nil {
		ended := *i.status.Scheduler
		ended.Running = false
		i.status.Scheduler = &ended
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

var schedulerClasses = map[scx.Class]node.SchedulerClass{
	scx.Normal: node.SchedulerNormal, scx.BE: node.SchedulerBE, scx.LS: node.SchedulerLS, scx.LSX: node.SchedulerLSX,
}

// schedulerStatus converts a status to package node.
func schedulerStatus(s scx.Status, at time.Time) *node.SchedulerStatus {
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
	for class, name := range schedulerClasses {
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
