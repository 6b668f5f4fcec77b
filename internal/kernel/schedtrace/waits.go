package schedtrace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A By holds one value for each kind of work that may run on a CPU while LS waits.
type By[T any] struct {
	Idle  T `json:"idle"`
	BE    T `json:"be"`
	Own   T `json:"own"`   // another thread of LS
	Other T `json:"other"` // all other threads
}

func (b *By[T]) of(c Class) *T {
	switch c {
	case idle:
		return &b.Idle
	case BE:
		return &b.BE
	case LS:
		return &b.Own
	}
	return &b.Other
}

// Waits says what ran while threads of LS waited, between two times of a trace.
// A wait begins when a thread is woken or preempted, and ends when the thread
// runs.
type Waits struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
	// Wakes is the number of wake-ups of LS threads. The kernel sends each woken
	// thread to a CPU. Found counts the wake-ups by what ran on this CPU then.
	Wakes int     `json:"wakes"`
	Found By[int] `json:"found"`
	// Late is the number of wake-ups with a wait longer than Rules.Late, by
	// what ran for the largest part of the wait.
	Late By[int] `json:"late"`
	// Preempted is the number of times that a running thread lost its CPU.
	Preempted int `json:"preempted"`
	// Waited is the sum of all waits, by what ran meanwhile on the CPU to which
	// the kernel first sent the thread. This stays so if the kernel moves the
	// waiting thread.
	Waited By[time.Duration] `json:"waited_ns"`
	// CPU is the time of the judged CPUs, by what ran. Own is the time of all threads of LS.
	CPU By[time.Duration] `json:"cpu_ns"`
	// OtherWakes is the number of wake-ups of threads that are neither LS nor
	// BE.
	OtherWakes int `json:"other_wakes"`
}

// JudgeWaits computes from a complete record what ran while threads of LS
// waited. It does not use rules.Epsilon and rules.Hold. Judge computes
// everything else.
func JudgeWaits(events []Event, rules Rules) (Waits, error) {
	if len(events) == 0 || rules.To <= rules.From {
		return Waits{}, fmt.Errorf("judge the waits of a trace: %d events from %v to %v: %w", len(events), rules.From, rules.To, ErrVoid)
	}
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	q := queues{rules: rules, cpus: map[unit.CPU]*runner{}, waiting: map[int]*wait{}, running: map[int]bool{}}
	q.report.From, q.report.To = rules.From, rules.To
	for _, e := range sorted {
		if _, judged := rules.Cores[e.CPU]; judged && e.Kind == Switch && q.cpus[e.CPU] == nil {
			q.cpus[e.CPU] = &runner{class: q.classOf(e.Prev), since: sorted[0].At}
			q.running[e.Prev.TID] = true
		}
	}
	if len(q.cpus) == 0 {
		return Waits{}, fmt.Errorf("judge the waits of a trace: no judged CPU has a switch: %w", ErrVoid)
	}
	for i := range sorted {
		q.hear(&sorted[i])
	}
	for cpu, r := range q.cpus {
		q.put(cpu, r.class, rules.To)
	}
	return q.report, nil
}

// A runner is the thread that runs on a CPU, or the idle loop.
type runner struct {
	class Class
	since time.Duration
}

// A wait is the state of an LS thread that sleeps or waits for a CPU.
type wait struct {
	woken  bool // the thread was woken; false: it lost its CPU, and nothing has woken it since
	since  time.Duration
	cpu    unit.CPU
	found  Class
	behind By[time.Duration]
	at     time.Duration // the time up to which count has counted
}

// queues holds the state after the events that JudgeWaits has read so far.
type queues struct {
	rules   Rules
	cpus    map[unit.CPU]*runner
	waiting map[int]*wait
	running map[int]bool
	report  Waits
}

func (q *queues) classOf(t Thread) Class {
	if t.TID == 0 {
		return idle
	}
	return q.rules.ClassOf(t)
}

func (q *queues) judged(at time.Duration) bool { return at >= q.rules.From && at <= q.rules.To }

func (q *queues) hear(e *Event) {
	class := q.classOf(e.Thread)
	switch {
	case e.Kind == Wake:
		if class == Other && q.judged(e.At) {
			q.report.OtherWakes++
		}
		// A thread may be woken twice, or while it runs.
		if w := q.waiting[e.Thread.TID]; class == LS && !q.running[e.Thread.TID] && (w == nil || !w.woken) {
			q.begin(e.Thread.TID, e.Target, e.At, true)
		}
	case q.cpus[e.CPU] != nil:
		q.count(e.CPU, e.At)
		if w := q.waiting[e.Thread.TID]; w != nil {
			q.end(w, e.At)
			delete(q.waiting, e.Thread.TID)
		}
		delete(q.running, e.Prev.TID)
		q.running[e.Thread.TID] = true
		q.put(e.CPU, class, e.At)
		if q.classOf(e.Prev) == LS && e.Prev.TID != e.Thread.TID {
			q.begin(e.Prev.TID, e.CPU, e.At, false)
		}
	}
}

// begin makes a thread wait for a CPU.
func (q *queues) begin(tid int, cpu unit.CPU, at time.Duration, woken bool) {
	w := &wait{woken: woken, since: at, cpu: cpu, at: at}
	if r := q.cpus[cpu]; r != nil {
		w.found = r.class
	}
	q.waiting[tid] = w
}

// count adds the time since the last switch of a CPU to the waits for that CPU.
func (q *queues) count(cpu unit.CPU, now time.Duration) {
	for _, w := range q.waiting {
		if w.cpu == cpu {
			q.charge(w, now)
		}
	}
}

func (q *queues) charge(w *wait, now time.Duration) {
	if r := q.cpus[w.cpu]; r != nil {
		*w.behind.of(r.class) += now - w.at
	}
	w.at = now
}

// end counts the wait of a thread that runs now.
func (q *queues) end(w *wait, now time.Duration) {
	q.charge(w, now)
	if !q.judged(w.since) || !q.judged(now) {
		return
	}
	r := &q.report
	for _, c := range []Class{idle, BE, LS, Other} {
		*r.Waited.of(c) += *w.behind.of(c)
	}
	if !w.woken {
		r.Preempted++
		return
	}
	r.Wakes++
	*r.Found.of(w.found)++
	if now-w.since <= q.rules.Late {
		return
	}
	most := idle
	for _, c := range []Class{BE, LS, Other} {
		if *w.behind.of(c) > *w.behind.of(most) {
			most = c
		}
	}
	*r.Late.of(most)++
}

// put records that a thread of a class runs on a CPU from now on.
func (q *queues) put(cpu unit.CPU, next Class, at time.Duration) {
	r := q.cpus[cpu]
	if from, to := max(r.since, q.rules.From), min(at, q.rules.To); to > from {
		*q.report.CPU.of(r.class) += to - from
	}
	r.class, r.since = next, at
}
