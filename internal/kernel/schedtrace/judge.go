package schedtrace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Class is the class of a thread in a Report.
type Class uint8

// The classes. Other holds kernel threads, the system, the recorder itself, and
// all other threads.
const (
	Other Class = iota
	BE
	LS
	idle // the CPU's idle loop
)

// Rules are the parameters of Judge.
type Rules struct {
	// Cores holds the core of each judged CPU. On other CPUs, only wake-ups are
	// counted. Cores must not contain an offline CPU: its time would seem to be
	// idle time that BE could have used.
	Cores map[unit.CPU]int
	// ClassOf returns the class of a thread. It is not called for the idle loop.
	ClassOf func(Thread) Class
	// Epsilon is a tolerance, because both CPUs of a core may switch at the
	// same moment. A start of BE beside LS is a fault only if LS has run for
	// longer than Epsilon.
	Epsilon time.Duration
	// Hold is the time for which BE should stay off the siblings of a CPU after an
	// LS thread has left that CPU. Report.BEIdeal depends on it.
	Hold time.Duration
	// Late is the waiting time above which JudgeWaits counts a wake-up as late.
	Late time.Duration
	// From and To are the bounds of the judged time, on the clock of the
	// events. A zero From is the time of the first event, and a zero To that of
	// the last. Events before From still determine which thread runs.
	From, To time.Duration
}

// Judge finds out from a complete record which threads ran on the same core at
// the same time, and how long threads waited. The events may come in any order,
// but no event of a CPU may be missing. Judge assumes that the thread that
// leaves a CPU at its first switch has run there from the beginning.
func Judge(events []Event, rules Rules) (Report, error) {
	if len(events) == 0 {
		return Report{}, fmt.Errorf("judge a trace: no events: %w", ErrVoid)
	}
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	if rules.From == 0 {
		rules.From = sorted[0].At
	}
	if rules.To == 0 {
		rules.To = sorted[len(sorted)-1].At
	}
	if rules.To <= rules.From {
		return Report{}, fmt.Errorf("judge a trace from %v to %v: no time in between: %w", rules.From, rules.To, ErrVoid)
	}
	c := newCourt(sorted, rules)
	for i := range sorted {
		c.hear(&sorted[i])
	}
	return c.verdict()
}

// A core holds the state of the CPUs of one core.
type core struct {
	threads []*hardwareThread
	at      time.Duration // the time up to which account has counted
}

// A hardwareThread is a CPU, with the class of the thread that runs on it.
type hardwareThread struct {
	id    unit.CPU
	core  *core
	class Class
	since time.Duration // the time at which class began; may be before Rules.From
	// hold is the time until which BE must stay off the siblings because LS has
	// just left this CPU.
	hold time.Duration
	// expelling says that BE runs on this CPU although LS has started on a
	// sibling. expel is the time at which LS started.
	expelling bool
	expel     time.Duration
}

// A judgement holds the state after the events that Judge has read so far.
type judgement struct {
	rules   Rules
	cpus    map[unit.CPU]*hardwareThread
	cores   []*core
	running map[int]bool          // threads that are on a CPU
	woken   map[int]time.Duration // threads that are ready and not yet on a CPU
	report  Report

	expels, starts []time.Duration
	waits          map[Class][]time.Duration
}

func newCourt(sorted []Event, rules Rules) *judgement {
	c := &judgement{
		rules: rules, cpus: map[unit.CPU]*hardwareThread{},
		running: map[int]bool{}, woken: map[int]time.Duration{}, waits: map[Class][]time.Duration{},
	}
	first := map[unit.CPU]Thread{}
	for _, e := range sorted {
		if _, seen := first[e.CPU]; e.Kind == Switch && !seen {
			first[e.CPU] = e.Prev
		}
	}
	cores := map[int]*core{}
	for cpu, id := range rules.Cores {
		who, seen := first[cpu]
		if !seen {
			c.report.Unseen = append(c.report.Unseen, cpu)
			continue
		}
		if cores[id] == nil {
			cores[id] = &core{at: rules.From}
			c.cores = append(c.cores, cores[id])
		}
		h := &hardwareThread{id: cpu, core: cores[id], class: c.classOf(who), since: sorted[0].At}
		h.core.threads = append(h.core.threads, h)
		c.cpus[cpu] = h
	}
	for _, who := range first {
		c.running[who.TID] = true
	}
	slices.Sort(c.report.Unseen)
	return c
}

func (c *judgement) classOf(t Thread) Class {
	if t.TID == 0 {
		return idle
	}
	return c.rules.ClassOf(t)
}

// isJudged reports whether a time is between Rules.From and Rules.To.
func (c *judgement) isJudged(at time.Duration) bool { return at >= c.rules.From && at <= c.rules.To }

func (c *judgement) hear(e *Event) {
	switch e.Kind {
	case Wake:
		// A thread may be woken twice, or while it runs. Only the first wake-up
		// of a thread that does not run counts.
		if _, twice := c.woken[e.Thread.TID]; !twice && !c.running[e.Thread.TID] {
			c.woken[e.Thread.TID] = e.At
		}
	case Switch:
		delete(c.running, e.Prev.TID)
		c.running[e.Thread.TID] = true
		if woken, ok := c.woken[e.Thread.TID]; ok && e.Thread.TID != 0 {
			delete(c.woken, e.Thread.TID)
			if class := c.classOf(e.Thread); c.isJudged(woken) && c.isJudged(e.At) {
				c.waits[class] = append(c.waits[class], e.At-woken)
			}
		}
		if h := c.cpus[e.CPU]; h != nil {
			c.change(h, c.classOf(e.Thread), e.At)
		}
	}
}

// change records that another thread runs on a CPU. Both threads may have the
// same class.
func (c *judgement) change(h *hardwareThread, next Class, at time.Duration) {
	c.account(h.core, min(at, c.rules.To))
	if next == BE {
		c.start(h, at)
	}
	if next == h.class {
		return
	}
	prev := h.class
	h.class, h.since = next, at
	switch {
	case prev == BE:
		c.recordExpulsion(h, at, true)
	case prev == LS:
		h.hold = at + c.rules.Hold
		for _, sibling := range h.core.threads {
			if sibling != h && !c.besideLS(sibling) {
				c.recordExpulsion(sibling, at, false)
			}
		}
	}
	if next == LS {
		for _, sibling := range h.core.threads {
			if sibling != h && sibling.class == BE && !sibling.expelling {
				sibling.expelling, sibling.expel = true, at
			}
		}
		if c.isJudged(at) {
			c.report.Bursts++
		}
	}
}

// start counts the start of a BE thread on a CPU. If LS runs on a sibling at
// that time, start also records for how long.
func (c *judgement) start(h *hardwareThread, at time.Duration) {
	if !c.isJudged(at) {
		return
	}
	c.report.BEStarts++
	after, beside := time.Duration(0), false
	for _, sibling := range h.core.threads {
		if sibling != h && sibling.class == LS {
			after, beside = max(after, at-sibling.since), true
		}
	}
	if !beside {
		return
	}
	c.starts = append(c.starts, after)
	if after > c.rules.Epsilon {
		c.report.BEStartsBesideLS++
	}
}

// recordExpulsion records for how long BE stayed on h after LS had started on
// a sibling. left is true if BE has left h, and false if LS ended first.
func (c *judgement) recordExpulsion(h *hardwareThread, at time.Duration, left bool) {
	if !h.expelling {
		return
	}
	h.expelling = false
	if !c.isJudged(h.expel) || !c.isJudged(at) {
		return
	}
	c.expels = append(c.expels, at-h.expel)
	if !left {
		c.report.Unexpelled++
	}
}

func (c *judgement) besideLS(h *hardwareThread) bool {
	return slices.ContainsFunc(h.core.threads, func(s *hardwareThread) bool { return s != h && s.class == LS })
}

// account adds the time since the last change on a core to the report.
func (c *judgement) account(k *core, now time.Duration) {
	if now <= k.at {
		return
	}
	spent := now - k.at
	begun := k.at
	k.at = now
	running := slices.ContainsFunc(k.threads, func(h *hardwareThread) bool { return h.class == LS })
	for _, h := range k.threads {
		switch h.class {
		case LS:
			c.report.LSTime += spent
			if slices.ContainsFunc(k.threads, func(s *hardwareThread) bool { return s != h && s.class == BE }) {
				c.report.BesideTime += spent
			}
		case BE:
			c.report.BETime += spent
		case idle:
			c.report.IdleTime += spent
		default:
			c.report.OtherTime += spent
		}
		if running {
			continue
		}
		legal := begun
		for _, sibling := range k.threads {
			if sibling != h {
				legal = max(legal, sibling.hold)
			}
		}
		c.report.BEIdeal += max(0, now-legal)
	}
}

// verdict completes the report.
func (c *judgement) verdict() (Report, error) {
	for _, k := range c.cores {
		c.account(k, c.rules.To)
	}
	if len(c.cores) == 0 {
		return Report{}, fmt.Errorf("judge a trace: no judged CPU has a switch: %w", ErrVoid)
	}
	r := c.report
	r.From, r.To = c.rules.From, c.rules.To
	r.Expel = quantilesOf(c.expels)
	r.BEStartAfter = quantilesOf(c.starts)
	r.LSWake, r.BEWake = quantilesOf(c.waits[LS]), quantilesOf(c.waits[BE])
	for _, at := range c.woken {
		if c.isJudged(at) {
			r.LongestWait = max(r.LongestWait, c.rules.To-at)
		}
	}
	return r, nil
}
