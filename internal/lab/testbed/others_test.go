package testbed

import (
	"errors"
	"math"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// TestOthersAreNamedByTheirPrograms has a compiler whose children come and go, a
// process that was there before, a new one, the lab, and a PID that is used again.
func TestOthersAreNamedByTheirPrograms(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	process := func(comm string, pid, start, ppid, own, children int) proc.PIDStat {
		return proc.PIDStat{PID: pid, Comm: comm, StartTime: ms(start), PPID: ppid, UserTime: ms(own), ChildUserTime: ms(children)}
	}
	at := time.Unix(1000, 0)
	cpu := func(user, idle, steal int) proc.CPUTimes {
		return proc.CPUTimes{User: ms(user), Idle: ms(idle), Steal: ms(steal)}
	}
	a := look{at, proc.Stat{PerCPU: map[unit.CPU]proc.CPUTimes{0: cpu(0, 0, 0), 1: cpu(0, 0, 0)}}, unit.Stall{Total: ms(100), Known: true}, map[int]proc.PIDStat{
		1: process("make", 1, 1, 0, 10, 1000), 2: process("cc1", 2, 5, 1, 700, 0), 3: process("old", 3, 2, 0, 5000, 0), 4: process("lab", 4, 3, 0, 100, 0), 5: process("first", 5, 4, 0, 9000, 0),
	}}
	b := look{at.Add(2 * time.Second), proc.Stat{PerCPU: map[unit.CPU]proc.CPUTimes{0: cpu(1500, 480, 20), 1: cpu(1000, 1000, 0)}}, unit.Stall{Total: ms(500), Known: true}, map[int]proc.PIDStat{
		1: process("make", 1, 1, 0, 30, 2500), 3: process("old", 3, 2, 0, 5400, 0), 4: process("lab", 4, 3, 0, 300, 0), 5: process("second", 5, 9, 0, 180, 0), 6: process("n\x1b]w", 6, 8, 0, 40, 0),
	}}
	o, err := othersBetween(a, b, unit.CPUSetOf(0), 4)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got report.Number, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("used", o.Used, 1.25-0.1)
	near("tested", o.Tested, 0.75)
	near("steal", o.Steal, 0.01)
	near("waited", o.Waited, 0.2)
	// The children of make used 1500 ms, 700 of them before.
	for i, want := range []report.Program{{Name: "make", CPUs: 0.41}, {Name: "old", CPUs: 0.2}, {Name: "second", CPUs: 0.09}, {Name: "n?]w", CPUs: 0.02}} {
		if i >= len(o.Programs) || o.Programs[i].Name != want.Name || math.Abs(o.Programs[i].CPUs-want.CPUs) > 1e-9 {
			t.Errorf("programs %+v, want %+v in place %d", o.Programs, want, i)
		}
	}
	if o.CPUs != 2 || len(o.Programs) != 4 {
		t.Errorf("%+v", o)
	}
	b.stat.Unread.Lose("cpu0 steal", errors.New("too large"))
	b.waited.Known = false
	if o, err := othersBetween(a, b, unit.CPUSetOf(0), 4); err != nil || o.Steal.Known() || o.Waited.Known() {
		t.Errorf("%+v, error %v", o, err)
	}
	if _, err := othersBetween(a, a, unit.CPUSetOf(0), 4); err == nil {
		t.Error("two looks at the same time are no error")
	}
}

// TestWhatAnEndedChildUsedBeforeIsNotOfNow has a shell whose child ended, with a child of
// its own that ended as well.
func TestWhatAnEndedChildUsedBeforeIsNotOfNow(t *testing.T) {
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	before := map[int]proc.PIDStat{
		1: {PID: 1, Comm: "sh"},
		2: {PID: 2, Comm: "go", PPID: 1, StartTime: 5, UserTime: s(10), ChildUserTime: s(30)},
		3: {PID: 3, Comm: "compile", PPID: 2, StartTime: 6, UserTime: s(7)},
	}
	after := map[int]proc.PIDStat{1: {PID: 1, Comm: "sh", ChildUserTime: s(10 + 30 + 7 + 1)}}
	if got := usedBetween(before, after); len(got) != 1 || got[1] != s(1) {
		t.Errorf("%v, want one second for the shell", got)
	}
}
