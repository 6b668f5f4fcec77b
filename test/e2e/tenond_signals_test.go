package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// patientConfig is a configuration with a very long period. Only an event can
// make tenond narrow BE in time. BE has the same weight as the service, so that
// the service waits.
const patientConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 60s
signals: {runQueueDelay: DELAY, pressure: PRESSURE}
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"], objective: {runQueueDelay: 500us}}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 90, cpuSuppressMinPercent: 5, cpuSuppressPolicy: cfsQuota}
`

func withSignals(delay, pressure string) string {
	return strings.NewReplacer("DELAY", delay, "PRESSURE", pressure).Replace(patientConfig)
}

// eventLimit is the time limit for the effect of an event. It is much shorter
// than the period.
const eventLimit = 20 * time.Second

// crowd starts a spinning thread on each CPU, all in one cgroup. Each thread
// may run only on its CPU. Otherwise the kernel may put two cgroups of equal
// weight on different CPUs, and then the service waits only for itself, which
// raises no event.
func (s *site) crowd(group string) {
	s.t.Helper()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		s.t.Fatal(err)
	}
	for cpu, left := 0, may.Count(); left > 0; cpu++ {
		if !may.IsSet(cpu) {
			continue
		}
		left--
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(s.run(group, "sh", "-c", "while :; do :; done").Process.Pid, &one); err != nil {
			s.t.Fatal(err)
		}
	}
}

// settle waits until BE has a quota that tenond computed from measured rates.
// The first two ticks do not count, because new cgroups cause them.
func (s *site) settle() {
	s.t.Helper()
	for _, group := range []string{"batch/first", "batch/second"} {
		s.run(group, "sleep", "600")
		time.Sleep(500 * time.Millisecond)
	}
	s.awaitRoom()
}

// writesCausedBy returns writes to BE's quota: those after a time (since) that
// an event of the given kind caused.
func (s *site) writesCausedBy(kind string, since time.Time) []record.Write {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.state, record.AuditFile))
	if err != nil {
		s.t.Fatal(err)
	}
	var found []record.Write
	for line := range strings.Lines(string(text)) {
		var w record.Write
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			continue // the entry is still being written
		}
		if w.At.After(since) && w.Cgroup == s.path(batch) && strings.Contains(w.Woken, kind+" "+string(s.path(service))) {
			found = append(found, w)
		}
	}
	return found
}

// step loads the service. An event of the given kind must narrow BE long before
// the period is over.
func (s *site) step(kind string) {
	s.t.Helper()
	before, begun := s.quota(), time.Now()
	s.crowd(service)
	eventually(s.t, "BE is narrowed by an event of kind "+kind, func() bool {
		return s.quota().CompareWidth(before) < 0 && len(s.writesCausedBy(kind, begun)) > 0
	})
	took := time.Since(begun)
	s.t.Logf("%v -> %v after %v: %+v", before, s.quota(), took.Round(time.Millisecond), s.writesCausedBy(kind, begun)[0])
	if took > eventLimit {
		s.t.Errorf("BE was narrowed only after %v", took)
	}
}

// TestSignalsOfDelayNarrowBEAtOnce checks that run-queue delay makes tenond
// narrow BE at once. It also ends and restarts the service while tenond watches
// it.
func TestSignalsOfDelayNarrowBEAtOnce(t *testing.T) {
	s := plantSite(t, withSignals("auto", "off"))
	s.crowd(job)
	d := s.tenond()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	s.settle()
	s.step("delay")

	s.remove(service)
	s.run(service, "sleep", "600") // another cgroup of the same name
	s.settleAgain()
	s.step("delay")
	if text := d.said(); strings.Contains(text, "run-queue delays") || strings.Contains(text, "level=ERROR") {
		t.Errorf("tenond logged a fault:\n%s", text)
	}
	d.stop()
	s.restore()
}

// TestSignalsBoundOneJobUntilARestore kills tenond while one job alone is bounded
// for a service. tenon restore must give the job its CPU back: on the cgroups of this
// machine, and in the VMs on those of v2.
func TestSignalsBoundOneJobUntilARestore(t *testing.T) {
	s := plantSite(t, strings.Replace(requestsConfig, "OBJECTIVE", "objective: {runQueueDelay: 1ms}", 1))
	s.run("batch/quiet", "sleep", "600")
	d := s.tenond()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	s.awaitWatchdog()
	s.crowd(job)
	s.crowd(service)
	eventually(t, "the job to blame is bounded", func() bool {
		v, err := s.tree.ReadCPUMax(string(s.path(job)))
		return err == nil && node.CPUMax(v).Quota != node.NoQuota
	})
	d.signal(syscall.SIGKILL)
	<-d.end
	s.restore()
}

// TestSignalsOfPressureNarrowBEAtOnce checks that pressure makes tenond narrow
// BE at once. It uses no BPF. It needs a kernel with pressure files for each
// cgroup.
func TestSignalsOfPressureNarrowBEAtOnce(t *testing.T) {
	s := plantSite(t, withSignals("off", "auto"))
	if s.tree.Version() == 1 {
		t.Skip("cgroup v1 has no pressure per cgroup; test/vm runs this test")
	}
	s.crowd(job)
	d := s.tenond()
	s.settle()
	s.step("pressure")
	d.stop()
	s.restore()
}

// TestAStormOfAlarmsCostsLittle uses a service whose objective cannot be met.
// So events arrive all the time, although BE has only its minimum.
func TestAStormOfAlarmsCostsLittle(t *testing.T) {
	inTurn(t)
	s := plantSite(t, strings.NewReplacer("500us", "10us", "MinPercent: 5", "MinPercent: 90").Replace(withSignals("auto", "off")))
	s.crowd(job)
	s.crowd(service)
	d := s.tenond()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		failIfStrict(t, text)
	}
	time.Sleep(2 * time.Second) // wait until BE has its minimum
	turns, cpu, begun := s.turns(), cpuOf(t, d.Process.Pid), time.Now()
	time.Sleep(5 * time.Second)
	turned, used, took := s.turns()-turns, cpuOf(t, d.Process.Pid)-cpu, time.Since(begun)
	share := used.Seconds() / took.Seconds()
	t.Logf("%d ticks in %v, %.2f %% of a CPU", turned, took.Round(time.Millisecond), 100*share)
	if turned == 0 {
		t.Error("no event caused a tick")
	}
	if share > 0.1 {
		t.Errorf("the storm costs %.1f %% of a CPU", 100*share)
	}
	d.stop()
	s.restore()
}

// turns returns the number of ticks.
func (s *site) turns() uint64 {
	s.t.Helper()
	return s.status().Ticks
}

// status returns what tenond says about the site.
func (s *site) status() control.Status {
	s.t.Helper()
	text, err := exec.Command(filepath.Join(s.bin, "tenon"), "--state-dir", s.state, "status", "-o", "json").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var status control.Status
	if err := json.Unmarshal(text, &status); err != nil {
		s.t.Fatal(err)
	}
	return status
}

// cpuOf returns the CPU time of a process.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestSignalsThatCannotBeAreSaidOnce runs a tenond without the permission for
// BPF. It must log this once, and tick at its period.
func TestSignalsThatCannotBeAreSaidOnce(t *testing.T) {
	s := plantSite(t, generous)
	t.Setenv(withoutVar, strings.Join([]string{strconv.Itoa(unix.CAP_BPF), strconv.Itoa(unix.CAP_PERFMON), strconv.Itoa(unix.CAP_SYS_ADMIN)}, ","))
	d := s.tenond(os.Args[0])
	s.awaitRoom()
	if n := strings.Count(d.said(), "run-queue delays are not counted by BPF"); n != 1 {
		t.Errorf("said %d times that there is no BPF", n)
	}
	if err := os.Chtimes(s.config, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	d.await("configuration read", 1)
	if n := strings.Count(d.said(), "run-queue delays are not counted by BPF"); n != 1 {
		t.Errorf("said %d times that there is no BPF", n)
	}
	d.stop()
	s.restore()
}

// TestTenondWorksWithoutSysAdmin runs a tenond without CAP_SYS_ADMIN, as the chart does
// with agent.sysAdmin: false. It must trace and bound as usual, and restore by its
// journal. What falls away are the notes at the cgroups, and tenon doctor says so.
func TestTenondWorksWithoutSysAdmin(t *testing.T) {
	s := plantSite(t, generous)
	t.Setenv(withoutVar, strconv.Itoa(unix.CAP_SYS_ADMIN))
	d := s.tenond(os.Args[0])
	s.awaitRoom()
	if text := d.said(); strings.Contains(text, "not counted by BPF") {
		t.Errorf("without CAP_SYS_ADMIN:\n%s", text)
	}
	if notes := s.notes(); len(notes) > 0 {
		t.Errorf("there are notes at %v", notes)
	}
	text, err := exec.Command(os.Args[0], filepath.Join(s.bin, "tenon"), "doctor", "--state-dir", s.state, "-o", "json").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var found struct {
		Mechanisms []struct {
			Name      node.Feature
			Available node.Verdict
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	for _, m := range found.Mechanisms {
		if m.Name == node.FeatureCgroupNotes && m.Available != node.No || m.Name == node.FeatureBPF && m.Available != node.Yes {
			t.Errorf("tenon doctor says of %s: %s", m.Name, m.Available)
		}
	}
	d.stop()
	s.restore()
}

// notes returns the cgroups of the site that have notes of Tenon.
func (s *site) notes() (at []string) {
	s.t.Helper()
	paths, err := s.tree.Paths()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range paths {
		for _, controller := range cgroup.Controllers() {
			dir, err := s.tree.Dir(controller, path)
			if err != nil || !strings.HasPrefix(path, string(s.path(""))) {
				continue // this hierarchy lacks the cgroup, or another test made it
			}
			if notes, err := cgroup.Notes(dir); err != nil {
				s.t.Error(err)
			} else if len(notes) > 0 {
				at = append(at, dir)
			}
		}
	}
	return at
}

// withoutVar is an environment variable that lists capabilities by number. If
// it is set, this test binary drops these capabilities and executes the command
// in its arguments.
const withoutVar = "TENON_E2E_WITHOUT"

// runWithout drops the capabilities and executes the command.
func runWithout(capabilities string) error {
	runtime.LockOSThread()
	for _, text := range strings.Split(capabilities, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
			return err
		}
	}
	if err := os.Unsetenv(withoutVar); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// remove ends all processes of a cgroup and removes it.
func (s *site) remove(group string) {
	s.t.Helper()
	p := string(s.path(group))
	pids, err := s.tree.Procs(p)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		s.tasks = slices.DeleteFunc(s.tasks, func(task int) bool { return task == pid })
		maps.DeleteFunc(s.before, func(name, _ string) bool { return strings.HasPrefix(name, fmt.Sprintf("task %d ", pid)) })
	}
	eventually(s.t, "the group is removed", func() bool { return s.tree.Remove(p) == nil })
}

// settleAgain waits until Tenon increases the quota of BE, because the service
// no longer uses its CPU.
func (s *site) settleAgain() {
	s.t.Helper()
	narrow := s.quota()
	n := 0
	eventually(s.t, "BE grows again", func() bool {
		n++
		s.run("batch/again-"+strconv.Itoa(n), "sleep", "600")
		time.Sleep(500 * time.Millisecond)
		return narrow.CompareWidth(s.quota()) < 0
	})
}
