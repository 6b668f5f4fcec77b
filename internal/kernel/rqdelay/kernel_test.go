package rqdelay

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// The tests of this file run the program in the running kernel. The slots:
const (
	lsSlot = First + iota
	beSlot
	innerSlot
	systemSlot
)

// watch is the time for which a test observes a contended CPU.
const watch = time.Second

func TestDelayOfLSBesideBEAgreesWithSchedStat(t *testing.T) {
	s := newStage(t)
	cpu := s.narrow()
	be, beID := s.Group("be")
	_, lsID := s.Group("ls")
	inner, _ := s.Group("ls/inner") // has no slot, so it counts for ls
	p := s.open(Alarm{})
	s.track(p, beSlot, beID, BE)
	s.track(p, lsSlot, lsID, LS)
	s.start("spin", be)
	pid := s.start("pulse", inner)
	time.Sleep(watch / 4) // until both processes run

	was, before := s.take(p, pid)
	time.Sleep(watch)
	now, after := s.take(p, pid)
	delay, run := now.Delay-was.Delay, now.Run-was.Run

	r := after.Since(before)
	h := r.Delays[lsSlot]
	p50, _ := h.Quantile(0.5)
	p99, _ := h.Quantile(0.99)
	t.Logf("schedstat: waited %v in %d slices; probe: %v in %d, P50 < %v, P99 < %v; waits %v, %d switches",
		delay, now.Slices-was.Slices, h.Sum, h.Count(), p50, p99, r.Waits, r.Switches)
	if delay < watch/20 {
		t.Fatalf("LS waited only %v beside a spinner: the set-up of the test failed", delay)
	}
	// The two sums may differ slightly. On some kernels, one switch in a
	// thousand does not pass the trace point, and this may be the switch that
	// ends a long wait.
	if !isNear(h.Sum, delay, 0.2) {
		t.Errorf("histogram holds %v of waiting, schedstat %v", h.Sum, delay)
	}
	if !isNear(time.Duration(h.Count()), time.Duration(now.Slices-was.Slices), 0.05) {
		t.Errorf("histogram holds %d waits, schedstat %d", h.Count(), now.Slices-was.Slices)
	}
	// LS may have waited mostly for other processes, so it is enough if a tenth
	// of the time is the wait for BE.
	if behind, ran := r.Waits[Pair{lsSlot, beSlot}], r.Run[beSlot][cpu]; behind < ran/10 {
		t.Errorf("while BE ran %v, LS waited only %v of it", ran, behind)
	}
	var sum time.Duration
	for pair, waited := range r.Waits {
		if pair.Waiter != lsSlot {
			t.Errorf("%v is not LS and has waits: %v", pair.Waiter, waited)
		}
		sum += waited
	}
	if !isNear(sum, h.Sum, 0.01) {
		t.Errorf("the waits by runner add up to %v, the histogram to %v", sum, h.Sum)
	}

	for c, got := range r.Run[lsSlot] {
		if c != int(cpu) && got != 0 {
			t.Errorf("LS ran %v on CPU %d, which it may not use", got, c)
		}
	}
	if got := r.Run[lsSlot][cpu]; !isNear(got, run, 0.2) {
		t.Errorf("LS ran %v on CPU %d, schedstat says %v", got, cpu, run)
	}
	if ls, be := r.RunByClass[LS][cpu], r.RunByClass[BE][cpu]; ls != r.Run[lsSlot][cpu] || be != r.Run[beSlot][cpu] {
		t.Errorf("class LS ran %v and BE %v on CPU %d, their only slots %v and %v", ls, be, cpu, r.Run[lsSlot][cpu], r.Run[beSlot][cpu])
	}
}

func TestWaitsOfThreadsThatAreMovedAreNotLost(t *testing.T) {
	s := newStage(t)
	if s.cpus.Len() < 2 {
		t.Skip("needs 2 CPUs")
	}
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	p := s.open(Alarm{})
	s.track(p, lsSlot, lsID, LS)
	s.track(p, beSlot, beID, BE)
	var pids []int
	for range s.cpus.Len() {
		s.start("spin", be)
		pids = append(pids, s.start("pulse", ls))
	}
	pids = append(pids, s.start("pulse", ls))
	time.Sleep(watch / 4)

	was, before := s.take(p, pids...)
	time.Sleep(watch)
	now, after := s.take(p, pids...)

	r := after.Since(before)
	h := r.Delays[lsSlot]
	t.Logf("schedstat: waited %v; probe: %v in %d; waits %v", now.Delay-was.Delay, h.Sum, h.Count(), r.Waits)
	if !isNear(h.Sum, now.Delay-was.Delay, 0.2) {
		t.Errorf("histogram holds %v of waiting, schedstat %v", h.Sum, now.Delay-was.Delay)
	}
}

func TestWaitsBeyondTheAlarmAreToldAtOnce(t *testing.T) {
	s := newStage(t)
	s.narrow()
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	alarm := Alarm{Wait: 500 * time.Microsecond, Waits: 3, Window: watch, Gap: 100 * time.Millisecond}
	p := s.open(alarm)
	s.track(p, lsSlot, lsID, LS)
	s.track(p, beSlot, beID, BE)
	begun := time.Now()
	s.start("spin", be)
	s.start("pulse", ls)

	events := 0
	for over := time.After(2 * watch); ; {
		select {
		case e := <-p.Events():
			events++
			if events <= 3 {
				t.Logf("%+v, read %v later", e, time.Since(e.At))
			}
			if e.Slot != lsSlot || e.Wait < alarm.Wait || e.Waits < alarm.Waits || e.Ran > e.Wait || !s.cpus.Has(e.CPU) {
				t.Errorf("event %+v, want %d waits of %v of slot %d on CPU %v", e, alarm.Waits, alarm.Wait, lsSlot, s.cpus)
			}
			if e.At.Before(begun) || e.At.After(time.Now()) {
				t.Errorf("event at %v, between %v and %v", e.At, begun, time.Now())
			}
			continue
		case <-over:
		}
		break
	}
	if most := int(time.Since(begun)/alarm.Gap) + 1; events < 2 || events > most {
		t.Errorf("%d events in %v, want several and at most %d", events, time.Since(begun), most)
	}
}

func TestEachSlotHasALimitOfItsOwn(t *testing.T) {
	s := newStage(t)
	s.narrow()
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	patient, patientID := s.Group("patient")
	p := s.open(Alarm{Waits: 1, Window: watch, Gap: time.Millisecond})
	s.track(p, lsSlot, lsID, LS)
	s.track(p, innerSlot, patientID, LS)
	s.track(p, beSlot, beID, BE)
	for slot, wait := range map[Slot]time.Duration{lsSlot: 500 * time.Microsecond, innerSlot: time.Hour} {
		if err := p.Limit(slot, wait); err != nil {
			t.Fatal(err)
		}
	}
	s.start("spin", be)
	s.start("pulse", ls)
	s.start("pulse", patient)
	count := func() (n int) {
		for over := time.After(watch / 2); ; {
			select {
			case e := <-p.Events():
				if e.Slot != lsSlot {
					t.Errorf("event %+v of the slot with a limit of an hour", e)
				}
				n++
			case <-over:
				return n
			}
		}
	}
	if count() == 0 {
		t.Error("no event of the slot with the small limit")
	}
	quiet := func(when string, change error) {
		t.Helper()
		if change != nil {
			t.Fatal(change)
		}
		for drained := false; !drained; { // drain the events from before the change
			select {
			case <-p.Events():
			case <-time.After(watch / 20):
				drained = true
			}
		}
		if n := count(); n != 0 {
			t.Errorf("%s: %d events", when, n)
		}
	}
	quiet("no limit", p.Limit(lsSlot, 0))
	if err := p.Limit(lsSlot, 500*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	if count() == 0 {
		t.Error("no event after the limit was set again")
	}
	quiet("what runs is not BE", p.Track(systemSlot, beID, System))
}

func TestNothingIsToldWithoutAnAlarm(t *testing.T) {
	s := newStage(t)
	s.narrow()
	be, _ := s.Group("be")
	ls, lsID := s.Group("ls")
	p := s.open(Alarm{})
	s.track(p, lsSlot, lsID, LS)
	s.start("spin", be)
	s.start("pulse", ls)
	time.Sleep(watch / 4)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if e, open := <-p.Events(); open {
		t.Errorf("event %+v", e)
	}
}

func TestTheNearestTrackedGroupCounts(t *testing.T) {
	s := newStage(t)
	s.narrow()
	ls, lsID := s.Group("ls")
	inner, innerID := s.Group("ls/inner")
	p := s.open(Alarm{})
	s.track(p, lsSlot, lsID, LS)
	if s.CgroupVersion() == 1 { // on v2 a group with child groups has no processes
		s.start("pulse", ls)
	}
	s.start("spin", inner)
	ran := func() (outer, nested time.Duration) {
		t.Helper()
		before := s.read(p)
		time.Sleep(watch / 4)
		r := s.read(p).Since(before)
		for _, d := range r.Run[lsSlot] {
			outer += d
		}
		for _, d := range r.Run[innerSlot] {
			nested += d
		}
		return outer, nested
	}
	time.Sleep(watch / 10)
	if outer, nested := ran(); outer == 0 || nested != 0 {
		t.Errorf("without its own slot, the inner group counts %v for the outer slot and %v for the inner slot", outer, nested)
	}
	s.track(p, innerSlot, innerID, LS)
	time.Sleep(watch / 10)
	if _, nested := ran(); nested == 0 {
		t.Error("with its own slot, the inner group counts nothing for that slot")
	}
	if err := p.Forget(innerID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(watch / 10)
	if outer, nested := ran(); outer == 0 || nested != 0 {
		t.Errorf("after Forget, the inner group counts %v for the outer slot and %v for the inner slot", outer, nested)
	}
}

// hooks counts the kernel's links of a program.
func hooks(t *testing.T, program ebpf.ProgramID) int {
	t.Helper()
	n := 0
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Program == program {
			n++
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheProgramIsAttachedOnlyWhileThereIsLS(t *testing.T) {
	s := newStage(t)
	_, lsID := s.Group("ls")
	_, beID := s.Group("be")
	p := s.open(Alarm{})
	info, err := p.kernel.TenonSwitch.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, ok := info.ID()
	if !ok {
		t.Skip("this kernel has no program ids")
	}
	expect := func(when string, want int) {
		t.Helper()
		// The kernel frees a link shortly after it is closed.
		for range 100 {
			if hooks(t, id) == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: %d links, want %d", when, hooks(t, id), want)
	}
	expect("open", 0)
	s.track(p, beSlot, beID, BE)
	expect("with BE", 0)
	s.track(p, lsSlot, lsID, LS)
	expect("with LS", 1)
	if err := p.Forget(lsID); err != nil {
		t.Fatal(err)
	}
	expect("without LS again", 0)
	s.track(p, lsSlot, lsID, LS)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	expect("closed", 0)
	for range 100 {
		left, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err == nil {
			_ = left.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("program %d is still loaded", id)
}

func TestTimeWithoutTheProgramIsNotCounted(t *testing.T) {
	s := newStage(t)
	cpu := s.narrow()
	be, beID := s.Group("be")
	_, lsID := s.Group("ls")
	p := s.open(Alarm{})
	s.track(p, beSlot, beID, BE)
	s.track(p, lsSlot, lsID, LS)
	s.start("spin", be)
	time.Sleep(watch / 4)
	if err := p.Forget(lsID); err != nil { // detaches the program
		t.Fatal(err)
	}
	time.Sleep(watch / 20) // a switch in progress still counts
	before := s.read(p)
	time.Sleep(watch / 4)
	if r := s.read(p).Since(before); r.Switches != 0 || len(r.Run) != 0 {
		t.Errorf("counted while detached: %d switches, %v", r.Switches, r.Run)
	}
	attached := time.Now()
	s.track(p, lsSlot, lsID, LS)
	time.Sleep(watch / 4)
	r := s.read(p).Since(before)
	if got, most := r.Run[beSlot][cpu], time.Since(attached); got > most {
		t.Errorf("BE ran %v in the %v since the program was attached again", got, most)
	}
}

func TestAClosedProbeSaysSo(t *testing.T) {
	s := newStage(t)
	p := s.open(Alarm{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := p.Read(); !errors.Is(err, ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if err := p.Track(First, 1, LS); !errors.Is(err, ErrClosed) {
		t.Errorf("track: %v", err)
	}
	if err := p.Limit(First, time.Second); err == nil {
		t.Error("Limit accepted a closed probe")
	}
	if err := p.Forget(1); !errors.Is(err, ErrClosed) {
		t.Errorf("forget: %v", err)
	}
	if _, open := <-p.Events(); open {
		t.Error("Events delivered an event of a closed probe")
	}
}

// TestAFullTableIsNamed tracks one cgroup more than the table has entries. The
// cgroups need not exist, and no program is attached for best-effort ones.
func TestAFullTableIsNamed(t *testing.T) {
	p := newStage(t).open(Alarm{})
	for id := range Groups {
		if err := p.Track(First, uint64(id+1), BE); err != nil {
			t.Fatal(err)
		}
	}
	err := p.Track(First, uint64(Groups+1), BE)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "4096 entries") {
		t.Errorf("one more: %v", err)
	}
}
