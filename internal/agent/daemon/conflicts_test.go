package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/writeconflict"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/runtimes/inventory"
)

var contestedKnob = node.Knob{Cgroup: "kubepods/burstable/poda", File: node.FileCPUWeight}

func weightOf(w unit.Weight) node.Value { return node.CPUWeight{Weight: w} }

// play simulates a tick in each period. in is the simulated time. Tenon wants a
// weight of 100, and another component writes 200 at the interval every. writes
// is the number of Tenon's writes, and late the longest time from a write of the
// other component to Tenon's next write.
func play(be bool, period, every, in time.Duration) (writes int, late time.Duration, last node.Snapshot) {
	var c writeConflicts
	value := weightOf(51200)
	start := time.Unix(1e9, 0)
	var other time.Duration // the time of the other component's last write
	for passed := time.Duration(0); passed < in; passed += period {
		if at := passed.Truncate(every); at > passed-period {
			value, other = weightOf(51200), at
		}
		last = node.Snapshot{At: start.Add(passed), Knobs: node.Knobs{Now: map[node.Knob]node.Value{contestedKnob: value}}}
		c.see(&last)
		wants := writeconflict.Pause(last, []plan.Want{{Intent: plan.Set, Knob: contestedKnob, Value: weightOf(25600), BE: be}})
		for _, s := range plan.Diff(last.Knobs, wants) {
			value = s.To
			c.note(s, s.To)
			writes++
			late = max(late, passed-other)
		}
	}
	return writes, late, last
}

func TestTheKubeletsMinutelyWriteIsPutRightEachTime(t *testing.T) {
	// The ticks drift against the clock of the kubelet, as they do on a node.
	for _, period := range []time.Duration{time.Second, 1003 * time.Millisecond} {
		writes, late, last := play(false, period, time.Minute, 10*time.Hour)
		if writes != 600 || late > period {
			t.Errorf("ticks each %v: %d of 600, at most %v late", period, writes, late)
		}
		if remarks := writeconflict.Remarks(last); len(remarks) != 1 || !strings.Contains(remarks[0], "10 times in") {
			t.Errorf("ticks each %v: %q", period, remarks)
		}
	}
}

// TestEachWriteOfAnotherComponentCounts lets another component write after each
// write of Tenon. Tenon writes in the tick in which it finds the other value.
func TestEachWriteOfAnotherComponentCounts(t *testing.T) {
	for n := 1; n < 4; n++ {
		_, _, last := play(true, time.Second, time.Second, time.Duration(n+1)*time.Second)
		if found := last.Conflicts[0].Found; len(found) != n {
			t.Errorf("%d conflicts after %d writes of another component", len(found), n)
		}
	}
}

func TestTwoAgentsDoNotWriteBackAndForthAllDay(t *testing.T) {
	writes, _, _ := play(false, time.Second, time.Second, time.Hour)
	if writes < 50 || writes > 120 {
		t.Errorf("%d writes in an hour while another component writes each second: want about one a minute", writes)
	}
}

func TestNarrowingBestEffortWorkDoesNotWait(t *testing.T) {
	if writes, _, _ := play(true, time.Second, time.Second, time.Minute); writes != 60 {
		t.Errorf("%d of 60", writes)
	}
}

// A foreignWriter is another component that writes a quota beside Tenon.
type foreignWriter struct {
	group  node.CgroupPath
	value  node.Value
	writes func(second int) bool
}

// against simulates an hour of ticks, one each second, of a Tenon that wants a quota which
// changes all the time. It returns the seconds after which the quota was contested, or -1,
// and the number of ticks at whose end the quota was not Tenon's.
func (f foreignWriter) against() (contested, lost int) {
	before := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	k := node.Knob{Cgroup: f.group, File: node.FileCPUMax}
	start := time.Unix(1e9, 0)
	var c writeConflicts
	var value node.Value = before
	contested = -1
	for second := range 3600 {
		if f.writes(second) {
			value = f.value
		}
		s := node.Snapshot{At: start.Add(time.Duration(second) * time.Second)}
		s.Knobs.Now, s.Knobs.Before = map[node.Knob]node.Value{k: value}, map[node.Knob]node.Value{}
		if second > 0 {
			s.Knobs.Before[k] = before
		}
		c.see(&s)
		if contested < 0 && c.trouble(s) != "" {
			contested = second
		}
		want := node.LimitIn(unit.MilliCPU(500+second%7), 10*time.Millisecond)
		for _, step := range plan.Diff(s.Knobs, writeconflict.Pause(s, []plan.Want{{Intent: plan.Set, Knob: k, Value: want, BE: true}})) {
			value = step.To
			c.note(step, step.To)
		}
		if value != node.Value(want) {
			lost++
		}
	}
	return contested, lost
}

// TestSystemdDoesNotContestAQuota lets systemd reset the quota of a slice, as it does when
// the kubelet sets a weight: each minute, and when pods start and end. Another value, a
// cgroup that is no unit, and a reset in each tick are the work of another component.
func TestSystemdDoesNotContestAQuota(t *testing.T) {
	const slice = "kubepods.slice/kubepods-besteffort.slice"
	reset := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	each := func(n int) func(int) bool { return func(second int) bool { return second%n == n-1 } }
	for name, c := range map[string]struct {
		foreignWriter
		first, last int // the seconds within which it is contested; -1: never
	}{
		"each minute":                     {foreignWriter{group: slice, value: reset, writes: each(60)}, -1, -1},
		"and at the starts of pods":       {foreignWriter{group: slice, value: reset, writes: func(s int) bool { return s%60 == 0 || s%300 < 20 }}, -1, -1},
		"and of a job each nine seconds":  {foreignWriter{group: slice, value: reset, writes: func(s int) bool { return s%60 == 0 || s%9 < 4 }}, -1, -1},
		"in a scope":                      {foreignWriter{group: slice + "/cri-containerd-1.scope", value: reset, writes: each(60)}, -1, -1},
		"another value, each minute":      {foreignWriter{group: slice, value: node.Limit(3000), writes: each(60)}, 120, 240},
		"in a cgroup that is no unit":     {foreignWriter{group: "kubepods/besteffort", value: reset, writes: each(60)}, 120, 240},
		"in each tick":                    {foreignWriter{group: slice, value: reset, writes: each(1)}, 295, 305},
		"each three seconds":              {foreignWriter{group: slice, value: reset, writes: each(3)}, -1, -1},
		"in each tick for a while":        {foreignWriter{group: slice, value: reset, writes: func(s int) bool { return s > 600 && s < 1200 }}, 895, 905},
		"another value beside the resets": {foreignWriter{group: slice, value: node.Limit(3000), writes: func(s int) bool { return s == 60 }}, -1, -1},
	} {
		contested, lost := c.against()
		if contested < c.first || contested > c.last {
			t.Errorf("%s: contested after %d s, want %d to %d", name, contested, c.first, c.last)
		}
		if c.last < 0 && lost > 0 {
			t.Errorf("%s: the quota was not Tenon's after %d ticks", name, lost)
		}
	}
}

// TestAResetIsJudgedByPart resets a part of a knob. What systemd does not write stays as
// Tenon has written it.
func TestAResetIsJudgedByPart(t *testing.T) {
	const pod = "kubepods.slice/kubepods-poda.slice"
	quota := func(ms, burst time.Duration) node.Value {
		return node.CPUMax{Quota: ms * time.Millisecond, Period: node.DefaultPeriod, Burst: burst * time.Millisecond}
	}
	for name, c := range map[string]struct {
		file               node.File
		wrote, before, now node.Value
		want               bool
	}{
		"a borrowed quota":        {node.FileCPUMax, quota(80, 20), quota(50, 0), quota(50, 20), true},
		"also its burst":          {node.FileCPUMax, quota(80, 20), quota(50, 0), quota(50, 0), true},
		"another quota":           {node.FileCPUMax, quota(80, 20), quota(50, 0), quota(60, 20), false},
		"another burst":           {node.FileCPUMax, quota(80, 20), quota(50, 0), quota(50, 10), false},
		"the protection":          {node.FileMemory, node.Memory{Low: 4096, High: 8192, Max: 16384}, node.Memory{High: unit.MaxBytes, Max: 16384}, node.Memory{High: unit.MaxBytes, Max: 16384}, true},
		"with another limit":      {node.FileMemory, node.Memory{Low: 4096, High: 8192, Max: 16384}, node.Memory{High: unit.MaxBytes, Max: 16384}, node.Memory{High: unit.MaxBytes, Max: 4096}, false},
		"idle":                    {node.FileCPUWeight, node.CPUWeight{Idle: true}, weightOf(256), weightOf(256), true},
		"idle, by another weight": {node.FileCPUWeight, node.CPUWeight{Idle: true}, weightOf(256), weightOf(512), false},
	} {
		if got := isReset(node.Knob{Cgroup: pod, File: c.file}, c.wrote, c.before, c.now); got != c.want {
			t.Errorf("%s: a reset is %v, want %v", name, got, c.want)
		}
	}
}

func TestAValueOfOursThatChangesIsNoConflict(t *testing.T) {
	var c writeConflicts
	now := time.Unix(1e9, 0)
	for v := unit.Weight(100); v < 400; v++ {
		s := node.Snapshot{At: now, Knobs: node.Knobs{Now: map[node.Knob]node.Value{contestedKnob: weightOf(v)}}}
		c.see(&s)
		if len(s.Conflicts) > 0 {
			t.Fatalf("%+v", s.Conflicts)
		}
		c.note(plan.Step{Knob: contestedKnob, To: weightOf(v + 1)}, weightOf(v+1))
		now = now.Add(time.Second)
	}
}

// TestAWriteOfSeveralKnobsIsNoConflict writes knobs one at a time and together.
// The next snapshot shows the values that Tenon wrote, so no conflict may be
// found.
func TestAWriteOfSeveralKnobsIsNoConflict(t *testing.T) {
	_, tree := treeOfFiles(t)
	d := &daemon{host: hostOf(t, tree), guard: &guard{}}
	defer func() {
		if err := d.host.Close(); err != nil {
			t.Error(err)
		}
	}()
	one, two := node.Knob{Cgroup: "be", File: node.FileCPUMax}, node.Knob{Cgroup: "two", File: node.FileCPUMax}
	for i, knobs := range [][]node.Knob{{one}, {one, two}, {two}, {one, two}, {one}} {
		s := node.Snapshot{At: time.Unix(int64(1e9+i), 0), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
		for _, k := range []node.Knob{one, two} {
			v, err := d.host.Knob(k)
			if err != nil {
				t.Fatal(err)
			}
			s.Knobs.Now[k] = v
		}
		if d.conflicts.see(&s); len(s.Conflicts) > 0 {
			t.Fatalf("before write %d: %+v", i, s.Conflicts)
		}
		var steps []plan.Step
		for _, k := range knobs {
			steps = append(steps, plan.Step{Knob: k, From: s.Knobs.Now[k], To: node.Limit(unit.CPUs(i + 1))})
		}
		if errs := d.ApplyAll(t.Context(), steps); len(errs) != len(steps) || errors.Join(errs...) != nil {
			t.Fatalf("write %d: %v", i, errs)
		}
	}
}

func TestAReleaseEndsAConflict(t *testing.T) {
	var c writeConflicts
	c.note(plan.Step{Knob: contestedKnob, To: weightOf(25600)}, weightOf(25600))
	c.note(plan.Step{Knob: contestedKnob, To: weightOf(51200), Release: true}, weightOf(51200))
	if len(c.knobs) != 0 {
		t.Error("a write is still recorded after a long time")
	}
}

// TestAChangeByTheKernelIsNoConflict checks changes that the kernel itself
// makes: it removes offline CPUs from a cpuset, and the threads of a cgroup
// start and end.
func TestAChangeByTheKernelIsNoConflict(t *testing.T) {
	k := node.Knob{Cgroup: "kubepods/besteffort", File: node.FileCPUs}
	run := node.Knob{Cgroup: "kubepods/besteffort", File: node.FileRun}
	shown := node.CPUs{Set: unit.CPUSetOf(0, 1)}
	begun := time.Unix(1e9, 0)
	var c writeConflicts
	c.see(&node.Snapshot{At: begun}) // otherwise the writes would be too long ago to count
	c.note(plan.Step{Knob: k, To: node.CPUs{Set: unit.CPUSetOf(0, 1, 2)}}, shown)
	c.note(plan.Step{Knob: run, To: node.AskedToEnd}, node.AskedToEnd)
	slices := node.Knob{Cgroup: "kubepods/burstable/poda", File: node.FileSlice} // after a fork, the threads have different slices
	c.note(plan.Step{Knob: slices, To: node.ThreadsBE}, node.ThreadsBE)
	s := node.Snapshot{At: begun.Add(time.Second), Knobs: node.Knobs{Now: map[node.Knob]node.Value{k: shown, run: node.Running, slices: node.ThreadsMixed}}}
	if c.see(&s); len(s.Conflicts) > 0 {
		t.Errorf("%+v", s.Conflicts)
	}
}

// TestAWriteConflictStaysReportedAfterARelease simulates a component that keeps
// writing a knob. The policy then releases that knob, and limits best-effort
// work by a second knob. The conflict must stay reported, because the component
// still writes.
func TestAWriteConflictStaysReportedAfterARelease(t *testing.T) {
	var c writeConflicts
	now := time.Unix(1e9, 0)
	s := node.Snapshot{At: now}
	c.see(&s) // otherwise the first write would be too long ago to count
	for range 3 {
		c.note(plan.Step{Knob: contestedKnob, To: weightOf(25600)}, weightOf(25600))
		now = now.Add(time.Second)
		s = node.Snapshot{At: now, Knobs: node.Knobs{Now: map[node.Knob]node.Value{contestedKnob: weightOf(51200)}}}
		if said := c.trouble(s); said != "" {
			t.Errorf("said without a fight: %q", said)
		}
		c.see(&s)
	}
	if said := c.trouble(s); !strings.Contains(said, contestedKnob.String()) {
		t.Errorf("said of a fight: %q", said)
	}
	c.note(plan.Step{Knob: contestedKnob, To: weightOf(51200), Release: true}, weightOf(51200))
	s = node.Snapshot{At: now.Add(time.Minute), Knobs: s.Knobs}
	if c.see(&s); c.trouble(s) == "" {
		t.Error("a release hides the fight")
	}
	s = node.Snapshot{At: now.Add(2 * writeconflict.Remembered), Knobs: s.Knobs}
	if c.see(&s); c.trouble(s) != "" {
		t.Error("a fight of long ago is still said")
	}
}

// TestWorkThatStartsAgainIsNoConflict removes and makes the group be as a
// service manager does when a service starts again. The default values of the
// new group were written by no other component. The group two stays, so a
// changed value there is a conflict.
func TestWorkThatStartsAgainIsNoConflict(t *testing.T) {
	dir, tree := treeOfFiles(t)
	d := &daemon{host: hostOf(t, tree), tree: tree, reporter: changeLogger{log: slog.New(slog.DiscardHandler)}}
	defer func() {
		if err := d.host.Close(); err != nil {
			t.Error(err)
		}
	}()
	d.containers = inventory.Follow(d.reporter.log, proc.Default(), func() {})
	var err error
	if d.watcher, err = tree.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer d.watcher.Close()
	be := filepath.Join(dir, "v2", "be")
	listed := func(want bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); slices.Contains(d.watcher.Groups(), "be") != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the watcher does not see within 20 s that the group exists: %v", want)
			}
		}
	}
	knobs := []node.Knob{{Cgroup: "be", File: node.FileCPUMax}, {Cgroup: "be/inner", File: node.FileCPUMax}, {Cgroup: "two", File: node.FileCPUMax}}
	for life := range 5 {
		s := node.Snapshot{At: time.Unix(int64(1e9+60*life), 0), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
		for _, k := range knobs {
			s.Knobs.Now[k] = node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
		}
		d.changed.Store(true)
		d.followGroups()
		d.conflicts.see(&s)
		for _, c := range s.Conflicts {
			if c.Knob.Cgroup != "two" {
				t.Errorf("life %d: %+v", life, c)
			}
		}
		if life > 0 && len(s.Conflicts) == 0 {
			t.Errorf("life %d: the conflict in the group that stays is forgotten", life)
		}
		for _, k := range knobs {
			d.conflicts.note(plan.Step{Knob: k, To: node.Limit(500)}, node.Limit(500))
		}
		if err := os.RemoveAll(be); err != nil {
			t.Fatal(err)
		}
		listed(false)
		if err := os.Mkdir(be, 0o755); err != nil {
			t.Fatal(err)
		}
		listed(true)
	}
}

// treeOfFiles returns a tree of plain files with the groups be and two, and its
// directory.
func treeOfFiles(t *testing.T) (dir string, tree *cgroup.Tree) {
	t.Helper()
	dir = t.TempDir()
	for file, text := range map[string]string{
		"proc/self/mountinfo":   fmt.Sprintf("31 24 0:28 / %s rw - cgroup2 cgroup2 rw\n", filepath.Join(dir, "v2")),
		"v2/cgroup.controllers": "cpu\n",
		"v2/be/cpu.max":         "max 100000\n",
		"v2/be/cpu.max.burst":   "0\n",
		"v2/two/cpu.max":        "max 100000\n",
		"v2/two/cpu.max.burst":  "0\n",
	} {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroup.Detect(filepath.Join(dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, tree
}

// hostOf returns a host on a tree.
func hostOf(t *testing.T, tree *cgroup.Tree) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Tree: tree, JournalDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
