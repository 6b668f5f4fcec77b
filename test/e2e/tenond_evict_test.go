package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/kerneltest"
)

// evicting is a configuration that evicts batch work if more than 60 % of the
// memory is used, until 50 % is used. It exempts the job that spins, and
// processes of the command tenon run on this machine.
const evicting = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: spin, class: BE, cgroups: ["ROOT/batch/job"]}
- {name: dear, class: BE, cgroups: ["ROOT/batch/dear"], priority: -1}
- {name: cheap, class: BE, cgroups: ["ROOT/batch/*"], priority: -2}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 100, cpuSuppressPolicy: cfsQuota, memoryEvictThresholdPercent: 60, memoryEvictLowerPercent: 50,
  evictGracePeriodSeconds: GRACE, evictEnabledPriorityThreshold: -1}
`

const mib = unit.Bytes(1) << 20

// A memory simulates a node with 512 MiB of memory for tenond. The cgroups of
// the site really use a part of it. Other work is simulated and uses a given
// part.
type memory struct {
	s      *site
	file   *os.File
	others unit.Bytes
}

func (s *site) memory(others unit.Bytes) *memory {
	s.t.Helper()
	needPrograms(s.t, "unshare", "mount")
	file, err := os.Create(filepath.Join(s.t.TempDir(), "meminfo"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = file.Close() })
	m := &memory{s: s, file: file, others: others}
	m.settle()
	return m
}

// settle writes the available memory. It always writes the same number of bytes
// in one write, because tenond may read the file at any time.
func (m *memory) settle() {
	used, err := m.s.tree.MemoryCurrent(m.s.root)
	if err != nil {
		m.s.t.Fatal(err)
	}
	const total = 512 * mib
	text := fmt.Sprintf("MemTotal: %12d kB\nMemFree: %12d kB\nMemAvailable: %12d kB\n", total/1024, 0, max(total-m.others-used, 0)/1024)
	if _, err := m.file.WriteAt([]byte(text), 0); err != nil {
		m.s.t.Fatal(err)
	}
}

// updateUntil updates the available memory again and again, until the condition
// is true.
func (m *memory) updateUntil(what string, condition func() bool) {
	m.s.t.Helper()
	eventually(m.s.t, what, func() bool { m.settle(); return condition() })
}

// tenond starts a tenond with this memory, in its own mount namespace.
func (m *memory) tenond() *daemon {
	m.s.t.Helper()
	const see = `mount --bind "$0" /proc/meminfo && exec "$@"`
	return m.s.tenond("unshare", "--mount", "--propagation", "private", "sh", "-c", see, m.file.Name())
}

// A hog is a process that holds memory.
type hog struct {
	*exec.Cmd
	in io.Writer
}

// hogs is the main function of a hog. It reads lines that contain a number of
// bytes, and allocates as many bytes for each line.
func hogs() {
	if os.Getenv("TENON_TEST_STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	var held [][]byte
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, _ := strconv.Atoi(lines.Text())
		held = append(held, bytes.Repeat([]byte{1}, n))
	}
	runtime.KeepAlive(held)
}

// hog starts a hog in a cgroup of the site. The hog ends when the test ends.
func (s *site) hog(group string, env ...string) hog {
	s.t.Helper()
	p := string(s.path(group))
	if err := s.tree.Make(p); err != nil {
		s.t.Fatal(err)
	}
	h := hog{Cmd: exec.Command("/proc/self/exe")}
	h.Env = append(append(os.Environ(), "TENON_TEST_ROLE=hog"), env...)
	in, err := h.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	h.in = in
	kerneltest.Launch(s.t, h.Cmd)
	s.t.Cleanup(func() { _ = s.tree.Freeze(p, false) }) // a frozen process cannot end
	if err := s.tree.Attach(p, h.Process.Pid); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// take makes the hog allocate b more bytes.
func (h hog) take(b unit.Bytes) { _, _ = fmt.Fprintln(h.in, int64(b)) }

func (s *site) uses(group string, b unit.Bytes) bool {
	m, err := s.tree.MemoryCurrent(string(s.path(group)))
	return err == nil && m >= b
}

func (s *site) lives(group string) bool {
	lives, err := s.tree.IsPopulated(string(s.path(group)))
	return err == nil && lives
}

// auditedWrites returns the writes to the knobs of a cgroup that are in the
// audit log.
func (s *site) auditedWrites(group string) (all []record.Write) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.state, record.AuditFile))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		var w record.Write
		if json.Unmarshal([]byte(line), &w) == nil && w.Cgroup == s.path(group) && w.File == node.FileRun {
			all = append(all, w)
		}
	}
	return all
}

// TestTenondEndsAsLittleBatchWorkAsNeeded runs two jobs. The job with the
// lowest priority ignores SIGTERM and is killed. The job with the high priority
// continues until memory is short again, and then ends on SIGTERM.
func TestTenondEndsAsLittleBatchWorkAsNeeded(t *testing.T) {
	s := plantSite(t, strings.Replace(evicting, "GRACE", "1", 1))
	m := s.memory(30 * mib)
	stubborn, dear := s.hog("batch/stubborn", "TENON_TEST_STUBBORN=1"), s.hog("batch/dear")
	stubborn.take(125 * mib)
	dear.take(100 * mib)
	m.updateUntil("both hold their memory", func() bool { return s.uses("batch/stubborn", 125*mib) && s.uses("batch/dear", 100*mib) })
	s.before = s.dump(t)
	d := m.tenond()
	time.Sleep(500 * time.Millisecond)
	if n := len(s.auditedWrites("batch/stubborn")) + len(s.auditedWrites("batch/dear")); n > 0 {
		t.Fatalf("%d writes below the threshold", n)
	}

	m.others += 60 * mib
	m.updateUntil("the stubborn job is gone", func() bool { return !s.lives("batch/stubborn") })
	if status := waitStatus(stubborn); status.Signal() != syscall.SIGKILL {
		t.Errorf("the stubborn job ended with %v", status)
	}
	var did []string
	m.updateUntil("the audit log has it", func() bool {
		did = nil
		for _, w := range s.auditedWrites("batch/stubborn") {
			did = append(did, w.New+" "+w.Outcome)
		}
		return len(did) == 2
	})
	if want := "asked to end applied, ended applied"; strings.Join(did, ", ") != want {
		t.Errorf("%v, want %v", did, want)
	}
	for range 20 {
		m.settle()
		time.Sleep(100 * time.Millisecond)
	}
	if !s.lives("batch/dear") || !s.lives(job) || len(s.auditedWrites("batch/dear")) > 0 {
		t.Error("more jobs were ended than necessary")
	}

	m.others += 125 * mib
	m.updateUntil("the dear job has ended", func() bool { return !s.lives("batch/dear") })
	if status := waitStatus(dear); status.Signal() != syscall.SIGTERM {
		t.Errorf("the dear job ended with %v", status)
	}
	if !s.lives(service) {
		t.Error("the service is dead")
	}
	s.checkUntouched(service, s.before)
	d.stop()
	s.restore()
}

// waitStatus waits for a command that the test started, and returns its status.
func waitStatus(c hog) syscall.WaitStatus {
	_ = c.Wait()
	return c.ProcessState.Sys().(syscall.WaitStatus)
}

// TestTenondFreezesAJobThatGoesOnAfterRestore checks that tenond freezes a job
// whose memory grows while another job ends slowly. Then it kills tenond. tenon
// restore must thaw the job.
func TestTenondFreezesAJobThatGoesOnAfterRestore(t *testing.T) {
	s := plantSite(t, strings.Replace(evicting, "GRACE", "600", 1))
	if _, err := s.tree.IsFrozen(string(s.path(batch))); err != nil {
		failIfStrict(t, "no group can be frozen: "+err.Error())
	}
	m := s.memory(30 * mib)
	slow, dear := s.hog("batch/slow", "TENON_TEST_STUBBORN=1"), s.hog("batch/dear")
	slow.take(150 * mib)
	m.updateUntil("the job holds its memory", func() bool { return s.uses("batch/slow", 150*mib) })
	s.before = s.dump(t)
	d := m.tenond()
	m.others += 140 * mib
	m.updateUntil("the slow job was asked to end", func() bool { return len(s.auditedWrites("batch/slow")) > 0 })
	dear.take(50 * mib)
	frozen := func() bool {
		is, err := s.tree.IsFrozen(string(s.path("batch/dear")))
		return err == nil && is
	}
	m.updateUntil("the job that grows is frozen", frozen)
	d.signal(syscall.SIGKILL)
	<-d.end
	if !frozen() {
		t.Error("the job is not frozen after the death of tenond")
	}
	s.restore()
	if frozen() {
		t.Error("the job is frozen after tenon restore")
	}
	eventually(t, "no process of the job is stopped", func() bool {
		still, err := s.tree.HasStopped(string(s.path("batch/dear")))
		return err == nil && !still
	})
}
