package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func itoa(n int) string { return strconv.Itoa(n) }

// limitedJobs is generous with a limit for each job, so that tenond needs a
// journal entry for each new job.
var limitedJobs = strings.Replace(generous, `["ROOT/batch/*"]}`, `["ROOT/batch/*"], limits: {memory: 64Mi}}`, 1)

// smallTmpfs mounts a file system of the given size as the state directory.
func (s *site) smallTmpfs(size string) {
	s.t.Helper()
	if err := os.MkdirAll(s.state, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := unix.Mount("tenon-test", s.state, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		failIfStrict(s.t, "mount a small tmpfs: "+err.Error())
	}
	s.t.Cleanup(func() {
		s.disarm()
		eventually(s.t, "the small tmpfs can be unmounted", func() bool { return unix.Unmount(s.state, 0) == nil })
	})
}

// fill uses all free bytes, and returns a function that frees them.
func (s *site) fill() (free func()) {
	s.t.Helper()
	name := filepath.Join(s.state, "filler")
	f, err := os.Create(name)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		s.t.Fatal(err)
	}
	return func() { _ = os.Remove(name) }
}

// TestTenondWithAFullJournalTouchesNothingNew checks that tenond does not make
// a change that it cannot journal, and logs that once for each knob. Existing
// values must stay, BE must still be narrowed, and the service must not change.
// When there is space again, tenond must make the changes.
func TestTenondWithAFullJournalTouchesNothingNew(t *testing.T) {
	inTurn(t)
	s := plantSite(t, limitedJobs)
	s.smallTmpfs("512k")
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	free := s.fill()
	// The journal has room for a few more lines in its last page.
	var late []string
	for len(late) < 100 && !strings.Contains(d.said(), "no space left") {
		late = append(late, fmt.Sprintf("batch/late-%d", len(late)))
		s.run(late[len(late)-1], "sleep", "600")
		time.Sleep(300 * time.Millisecond)
	}
	late = append(late, "batch/last")
	s.run("batch/last", "sleep", "600")
	time.Sleep(2 * time.Second)
	has := func(group string) bool {
		m, err := s.tree.ReadMemory(string(s.path(group)))
		return err == nil && m.Max == 64<<20
	}
	touched := s.readJournal().Touches
	for _, group := range late {
		if _, journaled := touched[node.Knob{Cgroup: s.path(group), File: node.FileMemory}]; has(group) && !journaled {
			t.Errorf("%s was written and is not in the journal", group)
		}
	}
	if has("batch/last") {
		t.Error("the last job has its limit although the file system is full")
	}
	s.checkUntouched(service, s.before)
	if d.ended() {
		t.Fatalf("tenond ended: %v", d.ProcessState)
	}
	if n := strings.Count(d.said(), "no space left"); n == 0 || n > 4*len(late) {
		t.Errorf("a full file system with %d jobs gives %d lines in the log", len(late), n)
	}
	q := s.quota()
	if q.Quota == node.NoQuota || !s.weight(batch).Idle {
		t.Errorf("BE is loose: %v", q)
	}
	s.run(service, "sh", "-c", "while :; do :; done")
	eventually(t, "BE gives way on a full file system", func() bool { return s.quota().Cores() < q.Cores()-0.5 })

	free()
	eventually(t, "every job has its limit", func() bool { return !slices.ContainsFunc(late, func(g string) bool { return !has(g) }) })
	d.stop()
	s.restore()
}

// TestTenondWithAFullJournalFromTheStartTouchesNothing checks that tenond logs
// the fault, and then ends or waits. The node must be unchanged.
func TestTenondWithAFullJournalFromTheStartTouchesNothing(t *testing.T) {
	s := plantSite(t, limitedJobs)
	s.smallTmpfs("64k")
	s.fill()
	d := s.launch()
	eventually(t, "tenond says that there is no space", func() bool { return strings.Contains(d.said(), "no space left") })
	time.Sleep(time.Second)
	s.checkUntouched("", s.before)
}

// TestTenondStartsAgainOnAFullFileSystem kills tenond while its file system is
// full. The next tenond must take the lease over and manage BE.
func TestTenondStartsAgainOnAFullFileSystem(t *testing.T) {
	s := plantSite(t, limitedJobs)
	s.smallTmpfs("512k")
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	free := s.fill()
	d.signal(syscall.SIGKILL)
	<-d.end
	d = s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	free()
	d.stop()
	s.restore()
}

// TestTenondGoesOnWithoutAFileThatRefuses runs tenond in a mount namespace in
// which one file is read-only. tenond must report that knob once, and set all
// other knobs.
func TestTenondGoesOnWithoutAFileThatRefuses(t *testing.T) {
	inTurn(t)
	needPrograms(t, "unshare", "mount")
	s := plantSite(t, generous)
	file := filepath.Join(s.dir(batch), "cpu.idle")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("this kernel has no cpu.idle: %v", err)
	}
	const readOnly = `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"`
	d := s.tenond("unshare", "--mount", "--propagation", "private", "sh", "-c", readOnly, file)
	s.awaitRoom()
	d.await("read-only file system", 1)
	time.Sleep(2 * time.Second)
	if n := strings.Count(d.said(), "read-only file system"); n != 1 {
		t.Errorf("the log has the message %d times", n)
	}
	if s.weight(batch).Idle {
		t.Error("the file was written")
	}
	s.checkUntouched(service, s.before)
	bound, then := s.bound(), time.Now()
	d.signal(syscall.SIGKILL)
	s.within2s(then, bound)
	s.restore()
}

// TestTenondBoundsAJobThatBoundsAPartOfItself checks a job that has given one
// of its child cgroups a quota. Cgroup v1 refuses a parent's quota below that
// of a child. So tenond must also narrow the child, although no rule names it,
// and must restore the child's quota afterwards.
func TestTenondBoundsAJobThatBoundsAPartOfItself(t *testing.T) {
	s := plantSite(t, limitedJobs)
	part := string(s.path("batch/job/part"))
	if err := s.tree.Make(part); err != nil {
		t.Fatal(err)
	}
	if s.tree.VersionOf("cpu") == 2 { // the job has processes, so Make passes nothing on
		if err := cgroup.PassOn(s.tree, string(s.path(job)), "cpu", true); err != nil {
			t.Fatal(err)
		}
	}
	own := cgroup.CPUMax{Quota: 500 * time.Millisecond, Period: 100 * time.Millisecond}
	if err := s.tree.WriteCPUMax(part, own); err != nil {
		t.Fatal(err)
	}
	s.before = s.dump(t)
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	bound, then := s.bound(), time.Now()
	d.signal(syscall.SIGKILL)
	s.within2s(then, bound)
	if strings.Contains(d.said(), "could not be written") {
		t.Errorf("a write was refused:\n%s", d.said())
	}
	s.restore()
}

// TestTenondFollowsWorkloadsThatComeAndGo creates and removes jobs faster than
// tenond ticks, so that many vanish between the snapshot and the write. With
// TENON_TEST_LONG=1 it creates a thousand jobs in a minute.
func TestTenondFollowsWorkloadsThatComeAndGo(t *testing.T) {
	inTurn(t)
	count, each := 200, 30*time.Millisecond
	if os.Getenv("TENON_TEST_LONG") == "1" {
		count, each = 1000, 60*time.Millisecond
	}
	s := plantSite(t, limitedJobs)
	d := s.tenond()
	s.awaitRoom()
	var alive []string
	kept := 0 // files of jobs that tenond kept open at a time
	for i := range count {
		group := fmt.Sprintf("batch/short-%d", i)
		alive = append(alive, group)
		if err := s.tree.Make(string(s.path(group))); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 { // some do work and end by themselves
			cmd := exec.Command("true")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = s.tree.Attach(string(s.path(group)), cmd.Process.Pid)
			_ = cmd.Wait()
		}
		time.Sleep(each)
		kept = max(kept, openFiles(t, d.Process.Pid, "/batch/short-"))
		for len(alive) > i%20 { // they live for a few ticks
			if err := s.tree.Remove(string(s.path(alive[0]))); err != nil {
				t.Fatal(err)
			}
			alive = alive[1:]
		}
	}
	for _, group := range alive {
		if err := s.tree.Remove(string(s.path(group))); err != nil {
			t.Fatal(err)
		}
	}
	if d.ended() {
		t.Fatalf("tenond ended: %v", d.ProcessState)
	}
	last := "batch/last"
	s.run(last, "sleep", "600")
	eventually(t, "the next job is found", func() bool {
		m, err := s.tree.ReadMemory(string(s.path(last)))
		return err == nil && m.Max == unit.Bytes(64<<20)
	})
	eventually(t, "the state has no entry for a removed job", func() bool {
		for k := range s.readJournal().Touches {
			if strings.Contains(string(k.Cgroup), "/short-") {
				return false
			}
		}
		return true
	})
	if kept == 0 {
		t.Error("tenond kept no file of a job open, so the next check says nothing")
	}
	eventually(t, "no file of a removed job is open", func() bool { return openFiles(t, d.Process.Pid, "/batch/short-") == 0 })
	if lines := strings.Count(d.said(), "WARN") + strings.Count(d.said(), "ERROR"); lines > count/4 {
		t.Errorf("%d complaints about %d jobs", lines, count)
	}
	s.checkUntouched(service, s.before)
	s.awaitRoom()
	d.stop()
	s.restore()
}

// openFiles returns how many open files of a process have a path that contains
// the text part.
func openFiles(t *testing.T, pid int, part string) (n int) {
	t.Helper()
	dir := filepath.Join("/proc", itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		// A descriptor that was closed meanwhile has no link.
		if path, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.Contains(path, part) {
			n++
		}
	}
	return n
}

// TestTenondDoesNotMindAWallClockThatJumps sets the clock of the machine, so it
// runs only with TENON_TEST_OWN_CLOCK=1.
func TestTenondDoesNotMindAWallClockThatJumps(t *testing.T) {
	if os.Getenv("TENON_TEST_OWN_CLOCK") != "1" {
		t.Skip("TENON_TEST_OWN_CLOCK is not 1: the clock of this machine is not the test's own")
	}
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	complaints := func() int { return strings.Count(d.said(), "WARN") + strings.Count(d.said(), "ERROR") }
	before := complaints()
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		var now unix.Timeval
		if err := unix.Gettimeofday(&now); err != nil {
			t.Fatal(err)
		}
		now.Sec += int64(jump / time.Second)
		if err := unix.Settimeofday(&now); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if s.quota().CompareWidth(s.bound()) <= 0 {
				t.Fatalf("a jump by %v brought BE to its safe bound: %v", jump, s.quota())
			}
		}
	}
	if complaints() > before {
		t.Errorf("complaints:\n%s", d.said())
	}
	d.stop()
	s.restore()
}

// TestASecondTenondIsRefusedWhateverItsDirectory checks that a second tenond
// does not start, even with another state directory. Two of them would undo
// each other's writes in every tick.
func TestASecondTenondIsRefusedWhateverItsDirectory(t *testing.T) {
	s := plantSite(t, generous)
	first := s.tenond()
	other := filepath.Join(t.TempDir(), "other")
	second := exec.Command(filepath.Join(s.bin, "tenond"), "--config", s.config, "--state-dir", other, "--machine-lock", s.lock(), "--metrics", "")
	text, err := second.CombinedOutput()
	want := fmt.Sprintf("only one tenond can run on a machine: process %d manages this machine, with its state in %s", first.Process.Pid, s.state)
	if err == nil || !strings.Contains(string(text), want) {
		t.Errorf("the second: %v\n%s\nwant %q", err, text, want)
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second tenond made its state directory: %v", err)
	}
	if first.ended() {
		t.Error("the first tenond has ended")
	}
	first.stop()
	third := s.tenond()
	third.stop()
	s.restore()
}
