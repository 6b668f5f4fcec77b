package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// observed is a configuration by which an agent that acts writes quotas, weights and limits
// of memory.
const observed = generous + `
history: {directory: HISTORY, size: 1Mi}
observe: true
`

// TestAnObserverWritesNothing runs tenond as an observer of a site whose batch work comes
// and goes. Each file of the cgroups must be as before, all the time. The kernel must
// refuse what the observer does not do: /sys and /proc are read-only for it, and it has
// only the capabilities to trace. Its state directory gets no journal and no lease.
func TestAnObserverWritesNothing(t *testing.T) {
	s := plantSite(t, strings.ReplaceAll(observed, "HISTORY", filepath.Join(t.TempDir(), "history")))
	d := s.tenond()
	d.await("observing: tenond decides and writes nothing", 1)
	if strings.Contains(d.said(), "is not read-only") {
		t.Errorf("the kernel would let it write:\n%s", d.said())
	}
	isConfined(t, d.Process.Pid, s.dir(job))
	for i := range 10 {
		group := fmt.Sprintf("%s-%d", job, i)
		if i > 1 {
			old := fmt.Sprintf("%s-%d", job, i-2)
			if err := s.tree.Kill(string(s.path(old))); err != nil {
				t.Error(err)
			}
			eventually(t, "the old job is gone", func() bool { return s.tree.RemoveAll(string(s.path(old))) == nil })
		}
		s.run(group, "sh", "-c", "while :; do :; done")
		before := s.dump(t)
		time.Sleep(500 * time.Millisecond) // five ticks, and one for each event
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("after the start of job %d (-before +after):\n%s", i, diff)
		}
	}
	s.checkUntouched(service, s.before)
	s.checkUntouched(job, s.before)
	if status := s.says("status"); !strings.Contains(status, "nothing is written; it would have made ") || !strings.Contains(status, "suppress ") {
		t.Errorf("tenon status says\n%s", status)
	}
	if text, err := exec.Command(filepath.Join(s.bin, "tenon"), "--state-dir", s.state, "isolation", "set", "weight").CombinedOutput(); err == nil {
		t.Errorf("a mechanism can be pinned:\n%s", text)
	}
	capture := filepath.Join(t.TempDir(), "capture")
	s.says("capture", capture)
	text, err := exec.Command(filepath.Join(s.bin, "tenon"), "replay", capture).CombinedOutput()
	if replayed := string(text); err != nil || !strings.Contains(replayed, "every want and every step is the same") || !strings.Contains(replayed, "tenond only observed") {
		t.Errorf("tenon replay says %v\n%s", err, replayed)
	}
	d.stop()
	for _, pattern := range []string{"journal*", "lease*", "watchdog*", "memory.json", "observe/*.jsonl"} {
		if found, err := filepath.Glob(filepath.Join(s.state, pattern)); err != nil || len(found) > 0 {
			t.Errorf("the observer leaves %q, %v", found, err)
		}
	}
}

// TestAnObserverLeavesTheChangesOfATenond ends a tenond that acts. An observer must not
// start before they are put back.
func TestAnObserverLeavesTheChangesOfATenond(t *testing.T) {
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	d.stop()
	s.args = append(s.args, "--observe")
	refused := s.launch()
	<-refused.end
	if refused.ProcessState.Success() || !strings.Contains(refused.said(), "tenon restore") {
		t.Errorf("the observer: %v\n%s", refused.ProcessState, refused.said())
	}
	s.restore()
	s.tenond().stop()
	s.checkUntouched("", s.before)
}

// says returns the output of a command of tenon.
func (s *site) says(args ...string) string {
	s.t.Helper()
	text, err := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"--state-dir", s.state}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Errorf("tenon %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

// isConfined checks what the kernel lets a process do: through its own root, it cannot
// write a file of a cgroup, and its capabilities are to trace.
func isConfined(t *testing.T, pid int, group string) {
	t.Helper()
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	trace := fmt.Sprintf("%016x", 1<<unix.CAP_BPF|1<<unix.CAP_PERFMON)
	caps := 0
	for lines := bufio.NewScanner(status); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":\t")
		switch name {
		case "CapPrm", "CapEff", "CapBnd":
			if caps++; value != trace {
				t.Errorf("%s is %s, want %s", name, value, trace)
			}
		case "CapInh", "CapAmb":
			if value != fmt.Sprintf("%016x", 0) {
				t.Errorf("%s is %s", name, value)
			}
		}
	}
	if caps != 3 {
		t.Errorf("%d lines about capabilities", caps)
	}
	files, err := os.ReadDir(group)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o222 == 0 {
			continue
		}
		path := fmt.Sprintf("/proc/%d/root%s", pid, filepath.Join(group, f.Name()))
		if file, err := os.OpenFile(path, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("the observer can open %s for writing: %v", path, err)
			if err == nil {
				file.Close()
			}
		}
		tried++
	}
	if tried < 3 {
		t.Errorf("only %d files of %s can be written at all", tried, group)
	}
}
