package usage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A tally is a counter of delays whose counts a test sets. It refuses what the
// real counter refuses.
type tally struct {
	slots  map[uint64]rqdelay.Slot
	class  map[rqdelay.Slot]rqdelay.Class
	limits map[rqdelay.Slot]time.Duration
	read   rqdelay.Reading
	beside map[unit.CPU]unit.CPU
	events chan rqdelay.Event
	broken error
	room   int // maximum number of cgroups; 0: no maximum
}

func newTally() *tally {
	return &tally{
		slots: map[uint64]rqdelay.Slot{}, class: map[rqdelay.Slot]rqdelay.Class{}, limits: map[rqdelay.Slot]time.Duration{}, events: make(chan rqdelay.Event),
		read: rqdelay.Reading{Delays: map[rqdelay.Slot]rqdelay.Histogram{}, Waits: map[rqdelay.Pair]time.Duration{}, Run: map[rqdelay.Slot][]time.Duration{}},
	}
}

func (y *tally) Track(slot rqdelay.Slot, id uint64, class rqdelay.Class) error {
	for other, at := range y.slots {
		if at == slot && other != id && y.class[slot] != class {
			return fmt.Errorf("%v is used for class %v", slot, y.class[slot])
		}
	}
	if _, known := y.slots[id]; !known && y.room > 0 && len(y.slots) >= y.room {
		return fmt.Errorf("track cgroup %d: %w: it has %d entries", id, rqdelay.ErrFull, y.room)
	}
	y.slots[id], y.class[slot] = slot, class
	return y.broken
}
func (y *tally) Forget(id uint64) error {
	delete(y.slots, id)
	return y.broken
}
func (y *tally) Limit(slot rqdelay.Slot, wait time.Duration) error {
	y.limits[slot] = wait
	return y.broken
}
func (y *tally) ReadInto(r *rqdelay.Reading) error {
	*r = y.read
	return y.broken
}
func (y *tally) WatchSiblings(of map[unit.CPU]unit.CPU) error {
	y.beside = of
	return y.broken
}
func (y *tally) Events() <-chan rqdelay.Event { return y.events }
func (y *tally) Close() error {
	close(y.events)
	return nil
}

// wait adds a wait. waiter is the id of the cgroup that waits, and runner the
// id of the cgroup that runs meanwhile.
func (y *tally) wait(waiter, runner uint64, long time.Duration) {
	s := y.slots[waiter]
	h := y.read.Delays[s]
	h.Counts[3]++
	h.Sum += long
	y.read.Delays[s] = h
	y.read.Waits[rqdelay.Pair{Waiter: s, Runner: y.slots[runner]}] += long
}

// A delayBench is the Delays of a node with its workloads. inodes holds the
// inode of each workload's cgroup.
type delayBench struct {
	*testing.T
	Delays
	tally  *tally
	inodes map[node.CgroupPath]uint64
	alarms <-chan Delayed
}

func newDelayBench(t *testing.T) *delayBench {
	h := &delayBench{T: t, tally: newTally(), inodes: map[node.CgroupPath]uint64{}}
	var err error
	if h.alarms, err = h.start(h.tally); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *delayBench) look(workloads ...node.Workload) node.Snapshot {
	h.Helper()
	s := node.Snapshot{Workloads: workloads}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		w.Cgroup, w.Usage = node.CgroupPath(w.ID), node.Usage{}
		if h.inodes[w.Cgroup] == 0 {
			h.inodes[w.Cgroup] = uint64(1000 + len(h.inodes))
		}
	}
	s.Topology.CPUs = []node.LogicalCPU{{ID: 0}, {ID: 1}}
	h.Expire()
	h.Fill(&s, func(p node.CgroupPath) (uint64, error) { return h.inodes[p], nil })
	return s
}

var (
	web   = node.Workload{ID: "web", Class: node.LS, Objective: node.Objective{RunQueueDelay: node.Some(time.Millisecond)}}
	api   = node.Workload{ID: "api", Class: node.LS}
	batch = node.Workload{ID: "batch", Class: node.BE}
)

func TestDelaysAreThoseOfTheWorkloadSinceItIsCounted(t *testing.T) {
	h := newDelayBench(t)
	h.look(web, batch)
	h.tally.wait(h.inodes["web"], h.inodes["batch"], 3*time.Millisecond)
	s := h.look(web, batch)
	delay := s.Workloads[0].Usage.Delay
	if delay.Sum != node.Some(3*time.Millisecond) || len(delay.Counts) != rqdelay.Buckets || delay.Counts[3] != 1 {
		t.Errorf("web waited %+v", delay)
	}
	if s.Workloads[1].Usage.Delay.Sum.Known() {
		t.Error("the waits of best-effort work are not counted")
	}
	if len(s.Waits) != 1 || s.Waits[0] != (node.Wait{Waiter: "web", Runner: "batch", Time: 3 * time.Millisecond}) {
		t.Errorf("waits %v", s.Waits)
	}

	// A cgroup that was removed and made again is a new group. Its counts must
	// start at 0, although its slot may still have the counts of an earlier
	// group.
	for range 300 { // every slot has been used once
		h.inodes["web"] += 10000
		h.look(web, batch)
		h.tally.wait(h.inodes["web"], h.inodes["batch"], time.Millisecond)
	}
	s = h.look(web, batch)
	if got := s.Workloads[0].Usage.Delay; got.Sum != node.Some(time.Millisecond) || got.Counts[3] != 1 {
		t.Errorf("the new web waited %+v", got)
	}
	if len(s.Waits) != 1 || s.Waits[0].Time != time.Millisecond {
		t.Errorf("waits of the new web %v", s.Waits)
	}
}

func TestWhatWasWaitedForARunnerThatLeftStaysWithItsClass(t *testing.T) {
	h := newDelayBench(t)
	h.look(web, batch)
	h.tally.wait(h.inodes["web"], h.inodes["batch"], 3*time.Millisecond)
	h.look(web, batch)
	s := h.look(web)
	if len(s.Waits) != 1 || s.Waits[0] != (node.Wait{Waiter: "web", Runner: node.RestOf(node.BE), Time: 3 * time.Millisecond}) {
		t.Errorf("waits %v", s.Waits)
	}
}

// TestARunnerThatGoesDuringASnapshotStaysInItsClass removes the cgroup of a batch pod
// after the agent has listed the cgroups: the pod has its slot, but is not in the
// snapshot. Else what a service ever waited for it would seem to be a wait of the
// second in which the pod loses its slot.
func TestARunnerThatGoesDuringASnapshotStaysInItsClass(t *testing.T) {
	h := newDelayBench(t)
	h.look(web, batch)
	h.tally.wait(h.inodes["web"], h.inodes["batch"], 3*time.Millisecond)
	h.look(web, batch)
	s := node.Snapshot{Workloads: []node.Workload{web}}
	h.Fill(&s, func(p node.CgroupPath) (uint64, error) { return h.inodes[p], nil })
	if len(s.Waits) != 1 || s.Waits[0] != (node.Wait{Waiter: "web", Runner: node.RestOf(node.BE), Time: 3 * time.Millisecond}) {
		t.Errorf("waits %v", s.Waits)
	}
}

func TestOnlyTheLongestWaitsAreNamed(t *testing.T) {
	h := newDelayBench(t)
	all := []node.Workload{web}
	all[0].Objective = node.Objective{}
	for i := range 20 {
		all = append(all, node.Workload{ID: node.WorkloadID(fmt.Sprintf("job-%02d", i)), Class: node.BE})
	}
	h.look(all...)
	for i, w := range all[1:] {
		h.tally.wait(h.inodes["web"], h.inodes[w.Cgroup], time.Duration(i+1)*time.Millisecond)
	}
	s := h.look(all...)
	var sum time.Duration
	names := map[node.WorkloadID]time.Duration{}
	for _, w := range s.Waits {
		sum += w.Time
		names[w.Runner] = w.Time
	}
	if len(s.Waits) != namedRunners+1 || names["job-19"] != 20*time.Millisecond || names[node.RestOf(node.BE)] == 0 || sum != 210*time.Millisecond {
		t.Errorf("waits %v", s.Waits)
	}
	all[0].Objective.RunQueueDelay = node.Some(time.Millisecond)
	if s := h.look(all...); len(s.Waits) != 20 {
		t.Errorf("of a service with an objective, waits %v", s.Waits)
	}
}

// TestTheRunnerOfNowHasAName has a service with an objective that waited for 100 jobs for
// long. Then it waits for one of those for which it waited least, and for a new one. All
// others count together, and nothing gets lost.
func TestTheRunnerOfNowHasAName(t *testing.T) {
	h := newDelayBench(t)
	all := []node.Workload{web}
	for i := range 100 {
		all = append(all, node.Workload{ID: node.WorkloadID(fmt.Sprintf("job-%03d", i)), Class: node.BE})
	}
	h.look(all...)
	for i, w := range all[1:] {
		h.tally.wait(h.inodes["web"], h.inodes[w.Cgroup], time.Duration(i+1)*time.Second)
	}
	sum := 5050 * time.Second
	read := func(more ...node.Workload) map[node.WorkloadID]time.Duration {
		names, got := map[node.WorkloadID]time.Duration{}, time.Duration(0)
		for _, w := range h.look(append(all, more...)...).Waits {
			names[w.Runner] = w.Time
			got += w.Time
		}
		if len(names) != namedForObjective+1 || names[node.RestOf(node.BE)] == 0 || got != sum {
			t.Fatalf("%d names, %v together, want %v: %v", len(names), got, sum, names)
		}
		return names
	}
	if names := read(); names["job-099"] != 100*time.Second || names["job-000"] != 0 {
		t.Errorf("at first, those with the longest waits have names: %v", names)
	}
	fresh := node.Workload{ID: "fresh", Class: node.BE}
	read(fresh)
	for range 3 {
		for _, w := range all[1:] {
			h.tally.wait(h.inodes["web"], h.inodes[w.Cgroup], time.Millisecond)
		}
		h.tally.wait(h.inodes["web"], h.inodes["job-000"], 300*time.Millisecond)
		h.tally.wait(h.inodes["web"], h.inodes["fresh"], 200*time.Millisecond)
		sum += 600 * time.Millisecond
		if names := read(fresh); names["job-000"] == 0 || names["fresh"] == 0 {
			t.Errorf("the runners of now have no name: %v", names)
		}
	}
}

func TestServicesComeFirstWhenThereAreMoreWorkloadsThanSlots(t *testing.T) {
	h := newDelayBench(t)
	var jobs, services []node.Workload
	for i := range 300 {
		jobs = append(jobs, node.Workload{ID: node.WorkloadID(fmt.Sprintf("job-%03d", i)), Class: node.BE})
	}
	for i := range 200 {
		services = append(services, node.Workload{ID: node.WorkloadID(fmt.Sprintf("web-%03d", i)), Class: node.LS})
	}
	h.look(jobs...)
	if text := h.Trouble(); !strings.Contains(text, "workloads of class BE") {
		t.Errorf("trouble %q", text)
	}
	s := h.look(append(jobs, services...)...)
	for _, w := range s.Workloads {
		if w.Class == node.LS && !w.Usage.Delay.Sum.Known() {
			t.Fatalf("%s shares its slot, and there are jobs that do not", w.ID)
		}
	}
	alone := map[rqdelay.Slot]int{}
	for _, slot := range h.tally.slots {
		alone[slot]++
	}
	if n := alone[h.shared[rqdelay.BE]]; len(h.tally.slots) != 500 || n != 251 {
		t.Errorf("%d groups are tracked, %d of them in the slot that jobs share; want 500 and 251", len(h.tally.slots), n)
	}

	// There are more services than slots. If services share a slot, they are
	// not counted one by one.
	for i := range 100 {
		services = append(services, node.Workload{ID: node.WorkloadID(fmt.Sprintf("api-%03d", i)), Class: node.LS})
	}
	known := 0
	for _, w := range h.look(services...).Workloads {
		if w.Usage.Delay.Sum.Known() {
			known++
		}
	}
	if known != 249 || !strings.Contains(h.Trouble(), "51 workloads of class LS") {
		t.Errorf("%d of 300 services are counted alone; %q", known, h.Trouble())
	}
	for _, w := range h.look(services[:100]...).Workloads {
		if !w.Usage.Delay.Sum.Known() {
			t.Errorf("%s still shares a slot", w.ID)
		}
	}
	if h.Trouble() != "" {
		t.Errorf("trouble %q", h.Trouble())
	}
}

// TestAFullTableIsNamed has more workloads than the table of cgroups has
// entries. The text must say this in words. It must not change with each
// workload that is refused.
func TestAFullTableIsNamed(t *testing.T) {
	h := newDelayBench(t)
	h.tally.room = 2
	h.look(web, batch, api, node.Workload{ID: "more", Class: node.BE})
	const want = "the table of cgroups of the tracing program is full: it has 4096 entries; run-queue delays of 2 workloads are not counted, and waits of others for them count as (others)"
	if got := h.Trouble(); got != want {
		t.Errorf("trouble %q, want %q", got, want)
	}
	h.look(web, batch)
	if got := h.Trouble(); got != "" {
		t.Errorf("with room: %q", got)
	}
}

func TestTheAlarmIsTheObjectiveOfEach(t *testing.T) {
	h := newDelayBench(t)
	h.look(api, web, batch)
	slot := func(id node.CgroupPath) rqdelay.Slot { return h.tally.slots[h.inodes[id]] }
	if got := h.tally.limits; len(got) != 2 || got[slot("web")] != time.Millisecond || got[slot("api")] != tooLong {
		t.Errorf("limits %v", got)
	}
	event := rqdelay.Event{Slot: slot("web"), Runner: slot("batch"), Waits: 3, Wait: 4 * time.Millisecond}
	for _, runner := range []rqdelay.Slot{slot("web"), slot("api"), rqdelay.Kernel, rqdelay.Untracked} {
		e := event
		e.Runner = runner
		h.tally.events <- e // there must be no alarm, because best-effort work cannot cause or prevent this wait
	}
	h.tally.events <- event
	a := <-h.alarms
	if a.Workload != "web" || a.At.IsZero() || a.Wait != 4*time.Millisecond || a.Text != "waited 3 times its 1ms in 50ms, the last 4ms for batch" {
		t.Errorf("alarm %+v", a)
	}
}

func TestACounterThatBreaksIsLetGo(t *testing.T) {
	h := newDelayBench(t)
	h.look(web)
	h.tally.broken = rqdelay.ErrClosed
	s := h.look(web)
	if s.Workloads[0].Usage.Delay.Sum.Known() || s.Waits != nil {
		t.Errorf("%+v", s)
	}
	if _, open := <-h.alarms; open {
		t.Error("the alarms go on")
	}
	if !errors.Is(h.why, rqdelay.ErrClosed) || !strings.Contains(h.Trouble(), "no longer counted") || h.assigned["web"] != nil {
		t.Errorf("why %v, trouble %q", h.why, h.Trouble())
	}
	if err := h.Stop(); err != nil || h.Trouble() != "" {
		t.Errorf("stop: %v; trouble %q", err, h.Trouble())
	}
}

// BenchmarkDelays measures what a tick with a hundred workloads costs, but
// without reading the counters (see BenchmarkRead of package rqdelay).
func BenchmarkDelays(b *testing.B) {
	var d Delays
	y := newTally()
	if _, err := d.start(y); err != nil {
		b.Fatal(err)
	}
	var s node.Snapshot
	for i := range 100 {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprintf("work-%02d", i)), Class: node.LS}
		if i%2 == 1 {
			w.Class = node.BE
		}
		w.Cgroup = node.CgroupPath(w.ID)
		s.Workloads = append(s.Workloads, w)
	}
	inode := func(p node.CgroupPath) (uint64, error) {
		var n uint64
		_, err := fmt.Sscanf(string(p), "work-%d", &n)
		return n + 1, err
	}
	d.Fill(&s, inode)
	for waiter := range uint64(50) {
		for runner := range uint64(100) {
			y.wait(2*waiter+1, runner+1, time.Millisecond)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		d.Fill(&s, inode)
	}
	b.ReportMetric(float64(len(s.Waits)), "waits")
}
