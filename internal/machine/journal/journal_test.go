package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var (
	me     = journal.Session{PID: 7, Start: 70}
	lab    = journal.Session{PID: 8, Start: 80, Lab: true}
	weight = node.Knob{Cgroup: "be", File: node.FileCPUWeight}
	quota  = node.Knob{Cgroup: "be/a", File: node.FileCPUMax}
	cpus   = node.Knob{Cgroup: "be/a", File: node.FileCPUs}

	idle   = node.CPUWeight{Idle: true}
	odd    = node.CPUWeight{Weight: unit.WeightOfShares(333)}
	normal = node.CPUWeight{Weight: unit.WeightOf(100)}
)

func open(t *testing.T, dir string, s journal.Session) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, "boot-1", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func state(t *testing.T, j *journal.Journal) journal.State {
	t.Helper()
	s, err := j.State()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestBeforeIsKeptFromTheFirstTouch(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, me)
	do(t, j.Intend(weight, 5, odd, idle), j.RecordValue(weight, idle))
	other := open(t, dir, lab)
	do(t, other.Intend(weight, 5, idle, normal), other.RecordValue(weight, normal))
	want := journal.Touch{Inode: 5, Before: odd, Written: normal, By: me}
	if d := cmp.Diff(want, state(t, j).Touches[weight]); d != "" {
		t.Error(d)
	}
}

func TestAnIntendedWriteIsPendingUntilItIsConfirmed(t *testing.T) {
	j := open(t, t.TempDir(), me)
	do(t, j.Intend(weight, 5, odd, idle))
	if got := state(t, j).Touches[weight]; got.Pending != node.Value(idle) || got.Written != nil {
		t.Errorf("after intend: %+v", got)
	}
	do(t, j.RecordValue(weight, idle), j.Intend(weight, 5, idle, normal))
	want := journal.Touch{Inode: 5, Before: odd, Written: idle, Pending: normal, By: me}
	if d := cmp.Diff(want, state(t, j).Touches[weight]); d != "" {
		t.Error(d)
	}
}

func TestARefusedWriteIsAbandoned(t *testing.T) {
	j := open(t, t.TempDir(), me)
	do(t, j.Intend(weight, 5, odd, idle), j.Abandon(weight))
	if s := state(t, j); !s.Empty() {
		t.Errorf("a refused first write left %v", s)
	}
	do(t, j.Intend(weight, 5, odd, idle), j.RecordValue(weight, idle), j.Intend(weight, 5, idle, normal), j.Abandon(weight))
	want := journal.Touch{Inode: 5, Before: odd, Written: idle, By: me}
	if d := cmp.Diff(want, state(t, j).Touches[weight]); d != "" {
		t.Error(d)
	}
}

func TestAGroupMadeAgainIsAnotherGroup(t *testing.T) {
	j := open(t, t.TempDir(), me)
	do(t, j.Intend(weight, 5, odd, idle), j.RecordValue(weight, idle), j.Intend(weight, 6, normal, idle))
	want := journal.Touch{Inode: 6, Before: normal, Pending: idle, By: me}
	if d := cmp.Diff(want, state(t, j).Touches[weight]); d != "" {
		t.Error(d)
	}
}

func TestRemovedDropsTheGroupAndItsKnobs(t *testing.T) {
	j := open(t, t.TempDir(), me)
	do(t, j.RecordGroup("be"), j.RecordGroup("be/a"), j.Intend(weight, 1, normal, idle), j.Intend(quota, 2, node.Limit(1000), node.Limit(500)),
		j.Spawned(journal.Process{PID: 3, Start: 4}))
	do(t, j.Removed("be/a"), j.Removed("nowhere"), j.Reaped(journal.Process{PID: 3, Start: 4}))
	s := state(t, j)
	if len(s.Groups) != 1 || len(s.Touches) != 1 || len(s.Processes) != 0 {
		t.Errorf("left:\n%v", s)
	}
	do(t, j.Removed("be"))
	if s := state(t, j); !s.Empty() {
		t.Errorf("left:\n%v", s)
	}
}

func TestEveryValueSurvives(t *testing.T) {
	values := map[node.File][2]node.Value{
		node.FileCPUWeight: {odd, idle},
		node.FileCPUMax:    {node.CPUMax{Quota: node.NoQuota, Period: 70000000, Burst: 20000000}, node.Limit(350)},
		node.FileCPUs:      {node.CPUs{}, node.CPUs{Set: unit.CPUSetOf(0, 3)}},
		node.FileMems:      {node.CPUs{Set: unit.CPUSetOf(0)}, node.CPUs{}},
		node.FileMemory:    {node.NoMemoryLimit, node.Memory{Low: 4096, High: 1 << 20, Max: 1 << 30}},
	}
	for _, l := range node.LimitFiles {
		values[l.File] = [2]node.Value{l.Of(node.NoMaximum), l.Of(0)}
	}
	dir := t.TempDir()
	j := open(t, dir, me)
	for _, f := range node.Files {
		k := node.Knob{Cgroup: "g", File: f}
		do(t, j.Intend(k, 1, values[f][0], values[f][1]), j.RecordValue(k, values[f][1]))
	}
	s := state(t, open(t, dir, me))
	for _, f := range node.Files {
		got := s.Touches[node.Knob{Cgroup: "g", File: f}]
		if got.Before != values[f][0] || got.Written != values[f][1] {
			t.Errorf("%s: got %v and %v, want %v and %v", f, got.Before, got.Written, values[f][0], values[f][1])
		}
	}
}

func TestATornTailCostsOneLineOnly(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, me)
	do(t, j.Intend(weight, 5, odd, idle), j.RecordValue(weight, idle), j.RecordGroup("be"))
	text, err := os.ReadFile(j.Path())
	do(t, err)
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	for cut := last + 1; cut < len(text); cut++ { // each possible length of an incomplete last line
		do(t, os.WriteFile(j.Path(), text[:cut], 0o644))
		after := open(t, dir, me)
		if s := state(t, after); len(s.Touches) != 1 || len(s.Groups) != 0 {
			t.Fatalf("torn at %d: %v", cut, s)
		}
		do(t, after.RecordGroup("next"))
		s := state(t, open(t, dir, me))
		// If only the newline is missing, the next append adds it.
		whole := cut == len(text)-1
		if _, made := s.Groups["next"]; !made || len(s.Touches) != 1 || (s.Torn == 1) == whole {
			t.Fatalf("cut at %d, then appended: %v torn %d", cut, s, s.Torn)
		}
	}
}

func TestAnotherBootIsAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	old := open(t, dir, me)
	do(t, old.RecordGroup("be"))
	j, err := journal.Open(dir, "boot-2", me)
	do(t, err)
	if s := state(t, j); !s.Empty() {
		t.Errorf("the journal of a new boot has %v", s)
	}
	do(t, j.RecordGroup("x"))
	if _, err := os.Stat(old.Path()); err == nil {
		t.Errorf("%s of the last boot still exists", old.Path())
	}
}

func TestReadingTouchesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if s := state(t, open(t, dir, me)); !s.Empty() {
		t.Error("not empty")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a reader created the directory")
	}
}

func TestManyWritersShareOneJournal(t *testing.T) {
	dir := t.TempDir()
	const writers, each = 4, 50
	var wg sync.WaitGroup
	for w := range writers {
		j := open(t, dir, journal.Session{PID: w})
		wg.Go(func() {
			for i := range each {
				if err := j.RecordGroup(node.CgroupPath(fmt.Sprintf("g%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := state(t, open(t, dir, me)); len(s.Groups) != writers*each || s.Torn != 0 {
		t.Errorf("%d groups, want %d; %d torn", len(s.Groups), writers*each, s.Torn)
	}
}

func TestALargeJournalIsCompacted(t *testing.T) {
	dir := t.TempDir()
	j, other := open(t, dir, me), open(t, dir, lab)
	do(t, j.Intend(cpus, 2, node.CPUs{}, node.CPUs{Set: unit.CPUSetOf(1)}), j.RecordValue(cpus, node.CPUs{Set: unit.CPUSetOf(1)}))
	do(t, j.RecordGroup("be"), j.Spawned(journal.Process{PID: 3, Start: 4}))
	for i := range 1500 {
		v := node.Limit(unit.MilliCPU(100 + i))
		do(t, other.Intend(quota, 2, node.Limit(2000), v), other.RecordValue(quota, v))
	}
	info, err := os.Stat(j.Path())
	do(t, err)
	if info.Size() > 200<<10 {
		t.Errorf("the journal has %d bytes", info.Size())
	}
	want := journal.State{
		Touches: map[node.Knob]journal.Touch{
			cpus:  {Inode: 2, Before: node.CPUs{}, Written: node.CPUs{Set: unit.CPUSetOf(1)}, By: me},
			quota: {Inode: 2, Before: node.Limit(2000), Written: node.Limit(1599), By: lab},
		},
		Groups:    map[node.CgroupPath]journal.Session{"be": me},
		Processes: map[journal.Process]journal.Session{{PID: 3, Start: 4}: me},
	}
	for name, got := range map[string]journal.State{"old reader": state(t, j), "new reader": state(t, open(t, dir, me))} {
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b unit.CPUSet) bool { return a == b })); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestKill9LeavesAUsableJournal kills a process that only writes entries. The
// journal must have each entry that the process reported as written.
func TestKill9LeavesAUsableJournal(t *testing.T) {
	if dir := os.Getenv("JOURNAL_VICTIM_DIR"); dir != "" {
		j := open(t, dir, me)
		for i := 0; ; i++ {
			do(t, j.RecordGroup(node.CgroupPath(fmt.Sprintf("g%d", i))))
			fmt.Println(i)
		}
	}
	dir := t.TempDir()
	victim := exec.Command(os.Args[0], "-test.run=^TestKill9LeavesAUsableJournal$")
	victim.Env = append(os.Environ(), "JOURNAL_VICTIM_DIR="+dir)
	out, err := victim.StdoutPipe()
	do(t, err, victim.Start())
	done := 0
	for done < 100 {
		if _, err := fmt.Fscan(out, &done); err != nil {
			t.Fatal(err)
		}
	}
	do(t, victim.Process.Kill())
	_ = victim.Wait()
	j := open(t, dir, lab)
	do(t, j.RecordGroup("after"))
	s := state(t, j)
	for i := range done {
		if _, made := s.Groups[node.CgroupPath(fmt.Sprintf("g%d", i))]; !made {
			t.Errorf("g%d was reported and is lost", i)
		}
	}
	if s.Torn > 1 {
		t.Errorf("%d torn lines after one kill", s.Torn)
	}
}

func FuzzAnyFileIsReadable(f *testing.F) {
	f.Add([]byte(`{"op":"made","cgroup":"be","by":{"pid":1,"start":2}}` + "\n"))
	f.Add([]byte(`{"op":"intend","knob":{"cgroup":"be","file":"cpu.weight"},"inode":1,"before":"100","value":"idle","by":{"pid":1,"start":2}}` + "\n{torn"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		j := open(t, dir, me)
		if err := os.WriteFile(j.Path(), text, 0o644); err != nil {
			t.Fatal(err)
		}
		do(t, j.RecordGroup("after"))
		if _, made := state(t, j).Groups["after"]; !made {
			t.Error("the entry after the garbage is lost")
		}
	})
}

// If a process is stopped at the wrong moment, it holds the lock until it
// continues.
func TestAWriterThatStandsStillDoesNotStopTheOthers(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, me)
	if err := j.Intend(weight, 1, normal, idle); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "journal.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(j.RecordValue(weight, idle), j.Intend(quota, 2, node.Limit(1000), node.Limit(10)))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a writer waits for a stopped one")
	}
	s, err := open(t, dir, lab).State()
	if err != nil || len(s.Touches) != 2 || s.Touches[weight].Written != idle {
		t.Errorf("%v, %v", s, err)
	}
}

// Two processes both write a first entry for a knob. The entry of the second
// process must not replace the value to restore.
func TestTheFirstOfTwoFirstTouchesCounts(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir, me).Intend(weight, 1, normal, idle); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "journal-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	line, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.Replace(line, []byte(normal.String()), []byte(odd.String()), 1)
	if err := os.WriteFile(files[0], append(line, second...), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := open(t, dir, lab).State(); err != nil || s.Touches[weight].Before != normal {
		t.Errorf("before is %v, %v, want %v", s.Touches[weight].Before, err, normal)
	}
}

// A writer that continues without the lock must not compact, because the
// process that holds the lock may be compacting.
func TestAWriterWithoutTheLockDoesNotCompact(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, me)
	do(t, j.Intend(weight, 1, normal, idle))
	line, err := os.ReadFile(j.Path())
	do(t, err)
	do(t, os.WriteFile(j.Path(), bytes.Repeat(line, 300<<10/len(line)), 0o644))
	hold(t, dir)
	next := j.Path() + ".next"
	do(t, os.WriteFile(next, []byte("half a journal"), 0o644))
	do(t, j.RecordGroup("be"))
	if text, err := os.ReadFile(next); err != nil || string(text) != "half a journal" {
		t.Errorf("the holder's file holds %.60q, %v", text, err)
	}
	if info, err := os.Stat(j.Path()); err != nil || info.Size() < 256<<10 {
		t.Errorf("the journal was compacted: %v, %v", info, err)
	}
	if s := state(t, open(t, dir, lab)); len(s.Groups) != 1 || len(s.Touches) != 1 {
		t.Errorf("%v", s)
	}
}

// hold holds the lock until the end of the test.
func hold(t *testing.T, dir string) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(dir, "journal.lock"), os.O_RDWR, 0)
	do(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
}
