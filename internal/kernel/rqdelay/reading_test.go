package rqdelay

import (
	"reflect"
	"testing"
	"time"
)

func TestDifferenceOfReadingsLeavesOutWhatHasNotGrown(t *testing.T) {
	const ls, be = First, First + 1
	early, late := waits(time.Millisecond), waits(time.Millisecond, time.Second)
	before := Reading{
		Switches: 10,
		Delays:   map[Slot]Histogram{ls: early},
		Waits:    map[Pair]time.Duration{{ls, be}: 5, {ls, Idle}: 7},
		Run:      map[Slot][]time.Duration{ls: {1, 2}, be: {3, 0}},
	}
	after := Reading{
		Switches:   25,
		Delays:     map[Slot]Histogram{ls: late},
		Waits:      map[Pair]time.Duration{{ls, be}: 8, {ls, Idle}: 7, {ls, ls}: 1},
		Run:        map[Slot][]time.Duration{ls: {1, 6}, be: {3, 0}},
		RunByClass: map[Class][]time.Duration{LS: {1, 6}},
	}
	want := Reading{
		Switches:   15,
		Delays:     map[Slot]Histogram{ls: waits(time.Second)},
		Waits:      map[Pair]time.Duration{{ls, be}: 3, {ls, ls}: 1},
		Run:        map[Slot][]time.Duration{ls: {0, 4}},
		RunByClass: map[Class][]time.Duration{LS: {1, 6}},
	}
	if got := after.Since(before); !reflect.DeepEqual(got, want) {
		t.Errorf("difference\n%+v, want\n%+v", got, want)
	}
	if got := after.Since(Reading{}); got.Switches != 25 || got.Delays[ls] != late || got.Waits[Pair{ls, Idle}] != 7 {
		t.Errorf("since the same reading: %+v", got)
	}
}

func TestTheKernelsTimeBecomesWallClockTime(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	k := delayTenonEvent{AtNs: 3_000_000, WaitNs: 1_500_000, RunnerNs: 1_000_000, Slot: 5, Runner: 6, Cpu: 3, Waits: 2}
	want := Event{
		At: now.Add(-time.Millisecond), Slot: 5, CPU: 3, Waits: 2, Wait: 1500 * time.Microsecond,
		Runner: 6, Ran: time.Millisecond,
	}
	if got := k.event(now, 4*time.Millisecond); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSlotsAndClassesPrintThemselves(t *testing.T) {
	for value, want := range map[interface{ String() string }]string{
		Untracked: "untracked", Kernel: "kernel", Idle: "idle", Elsewhere: "elsewhere", First: "slot 4", Last: "slot 255",
		Other: "OTHER", System: "SYSTEM", LS: "LS", BE: "BE", Class(9): "class 9",
	} {
		if got := value.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOptionsThatMeanNothingAreRefused(t *testing.T) {
	good := Alarm{Wait: 1, Waits: 1, Window: 1, Gap: 1}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"no version": {Options{Alarm: good}, "cgroup version 0: want 1 or 2"},
		"version 3":  {Options{CgroupVersion: 3}, "cgroup version 3: want 1 or 2"},
		"no waits":   {Options{2, Alarm{Wait: 1, Window: 1, Gap: 1}}, "alarm after 0 waits of 1ns in 1ns, every 1ns at most: want positive values"},
		"no window":  {Options{2, Alarm{Wait: 1, Waits: 1, Gap: 1}}, "alarm after 1 waits of 1ns in 0s, every 1ns at most: want positive values"},
		"no gap":     {Options{2, Alarm{Wait: 1, Waits: 1, Window: 1}}, "alarm after 1 waits of 1ns in 1ns, every 0s at most: want positive values"},
		"negative":   {Options{2, Alarm{Wait: -1}}, "alarm after 0 waits of -1ns in 0s, every 0s at most: want positive values"},
		"no alarm":   {Options{CgroupVersion: 1}, ""},
		"valid":      {Options{2, good}, ""},
	} {
		got := ""
		if err := c.o.check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestASlotHasOneClassAtATime(t *testing.T) {
	const a, b = 100, 200 // cgroup ids
	tr := newTracked()
	add := func(id uint64, slot Slot, class Class) error {
		o := owner{slot, class}
		if err := tr.check(id, o); err != nil {
			return err
		}
		tr.add(id, o)
		return nil
	}
	if err := add(a, First, LS); err != nil {
		t.Fatal(err)
	}
	if err := add(b, First, BE); err == nil {
		t.Error("two classes in one slot")
	}
	if err := add(a, First, BE); err != nil {
		t.Errorf("the only group of a slot may change its class: %v", err)
	}
	if tr.hasLS() {
		t.Error("the tracked LS slot is not reported")
	}
	if err := add(b, First, BE); err != nil {
		t.Error(err)
	}
	tr.remove(a)
	tr.remove(b)
	tr.remove(b)
	if err := add(b, First, LS); err != nil || !tr.hasLS() {
		t.Errorf("a slot without groups must accept any class: %v", err)
	}
	for _, bad := range []owner{{Idle, LS}, {First, 0}, {First, 9}} {
		if err := tr.check(a, bad); err == nil {
			t.Errorf("%v %v was accepted", bad.slot, bad.class)
		}
	}
}
