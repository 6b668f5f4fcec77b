package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/test/kerneltest"
)

// The cgroups of a site. The batch cgroup is the contention root.
const (
	service = "services/web"
	batch   = "batch"
	job     = "batch/job"
)

// generous is a configuration that gives BE nearly the whole node while the
// service sleeps. While no agent runs, BE gets a twentieth of the node. BE is
// idle and not bound to CPUs.
const generous = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 100, cpuSuppressMinPercent: 5, cpuSuppressPolicy: cfsQuota}
resource-qos-config: {policies: {cpuIsolation: strongest}, beClass: {cpuQOS: {enable: true}}}
`

// A site has a service that sleeps and a batch job that spins. Each is in a
// cgroup that tenond's rules name and that Tenon did not make.
type site struct {
	foreignTree
	t      *testing.T
	bin    string   // the directory of the programs
	state  string   // tenond's state directory
	config string   // its configuration file
	args   []string // further arguments of tenond
	before map[string]string
}

// plantSite makes a site. At the end of the test the site must be unchanged,
// after at most one tenon restore, and without a watchdog.
func plantSite(t *testing.T, config string) *site {
	t.Helper()
	s := newSite(t, "site")
	s.configure(config)
	s.run(service, "sleep", "600")
	s.run(job, "sh", "-c", "while :; do :; done")
	s.before = s.dump(t)
	t.Cleanup(s.disarm)
	return s
}

// newSite returns an empty site. Its cgroups, which are below one with this name, are removed
// when the test ends.
func newSite(t *testing.T, name string) *site {
	t.Helper()
	tree := needRoot(t)
	s := &site{foreignTree: foreignTree{tree: tree, root: fmt.Sprintf("tenon-test-%s-%d", name, os.Getpid())},
		t: t, bin: programs(t), state: filepath.Join(t.TempDir(), "run"), config: filepath.Join(t.TempDir(), "tenon.yaml")}
	t.Cleanup(func() {
		for _, pid := range s.tasks {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := tree.RemoveAll(s.root); err != nil {
			t.Errorf("remove the cgroups of the site: %v", err)
		}
	})
	return s
}

// disarm ends the watchdog.
func (s *site) disarm() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	if err := lease.Disarm(ctx, s.state); err != nil {
		s.t.Error(err)
	}
}

// programsDir is the directory of the programs after programs has built them;
// empty before.
var programsDir string

func TestMain(m *testing.M) {
	if capabilities := os.Getenv(withoutVar); capabilities != "" {
		fmt.Fprintln(os.Stderr, runWithout(capabilities))
		os.Exit(1)
	}
	if probe := os.Getenv(readOnlyVar); probe != "" {
		fmt.Fprintln(os.Stderr, readOnly(probe))
		os.Exit(1)
	}
	if os.Getenv("TENON_TEST_ROLE") == "hog" {
		hogs()
		return
	}
	if os.Getenv("TENON_TEST_ROLE") == "waker" {
		wakesUp()
	}
	if os.Getenv("TENON_TEST_ROLE") == "lockstep" {
		lockstep()
		return
	}
	if os.Getenv("TENON_TEST_ROLE") == "asker" {
		sendRequests(os.Getenv(addressVar), os.Getenv(dirVar))
		return
	}
	if address := os.Getenv(addressVar); address != "" {
		answers(address)
		return
	}
	if address := os.Getenv(askedVar); address != "" {
		asks(address)
	}
	if address := os.Getenv(holderVar); address != "" {
		holdConnections(address)
		return
	}
	status := m.Run()
	if programsDir != "" {
		_ = os.RemoveAll(programsDir)
	}
	os.Exit(status)
}

// programs builds tenon and tenond once. If TENON_TEST_BIN is set, it takes
// them from there, because a test machine may have no compiler.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TENON_TEST_BIN"); dir != "" {
		return dir
	}
	if programsDir != "" {
		return programsDir
	}
	dir, err := os.MkdirTemp("", "tenon-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	programsDir = dir
	cmd := exec.Command("go", "build", "-o", dir+"/", "tenon.sh/tenon/cmd/tenon", "tenon.sh/tenon/cmd/tenond")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return dir
}

// configure writes the configuration file. In the text, it replaces ROOT by the
// root of the site.
func (s *site) configure(text string) {
	s.t.Helper()
	if os.Getenv("TENON_TEST_NO_BPF") == "1" {
		if !strings.Contains(text, "\nsignals:") {
			text += "signals: {runQueueDelay: off}\n"
		}
		text = strings.Replace(text, "{policies: {cpuIsolation: strongest}, ", "{", 1)
		text = strings.Replace(text, "\nresource-qos-config: {", "\nresource-qos-config: {policies: {cpuIsolation: cpu.idle}, ", 1)
	}
	if err := os.WriteFile(s.config, []byte(strings.ReplaceAll(text, "ROOT", s.root)), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// run makes a cgroup of the site and starts a program in it.
func (s *site) run(group string, name string, args ...string) *exec.Cmd {
	s.t.Helper()
	p := string(s.path(group))
	if err := s.tree.Make(p); err != nil {
		s.t.Fatal(err)
	}
	cmd := start(s.t, name, args...)
	s.tasks = append(s.tasks, cmd.Process.Pid)
	if err := s.tree.Attach(p, cmd.Process.Pid); err != nil {
		s.t.Fatal(err)
	}
	return cmd
}

// A daemon is a running tenond.
type daemon struct {
	*exec.Cmd
	t   *testing.T
	log string // path of the log
	end chan struct{}
}

// lock returns the path of a lock file. Each site has its own, so that sites do
// not depend on each other.
func (s *site) lock() string { return filepath.Join(s.state, "machine.lock") }

// launch starts tenond on the site. The command line begins with given words (wrap).
func (s *site) launch(wrap ...string) *daemon {
	s.t.Helper()
	argv := append(wrap, filepath.Join(s.bin, "tenond"), "--config", s.config, "--state-dir", s.state, "--machine-lock", s.lock(), "--metrics", "", "--log-format", "text")
	argv = append(argv, s.args...)
	out, err := os.CreateTemp(s.t.TempDir(), "tenond-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	d := &daemon{Cmd: exec.Command(argv[0], argv[1:]...), t: s.t, log: out.Name(), end: make(chan struct{})}
	d.Stdout, d.Stderr = out, out
	kerneltest.LaunchUntil(s.t, d.Cmd, syscall.SIGTERM)
	go func() {
		_ = d.Wait()
		close(d.end)
	}()
	s.t.Cleanup(func() {
		if s.t.Failed() && !d.ended() {
			_ = d.Process.Signal(syscall.SIGQUIT) // tenond prints its stacks
			select {
			case <-d.end:
			case <-time.After(5 * time.Second):
			}
		}
		_ = d.Process.Kill()
		<-d.end
		if s.t.Failed() {
			s.t.Logf("tenond %d said:\n%s", d.Process.Pid, d.said())
		}
	})
	return d
}

// tenond starts tenond and waits for its first tick.
func (s *site) tenond(wrap ...string) *daemon {
	s.t.Helper()
	d := s.launch(wrap...)
	d.await("ready", 1)
	return d
}

func (d *daemon) said() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// await waits until the log has n lines with the text.
func (d *daemon) await(text string, n int) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("tenond says %q %d times", text, n), func() bool {
		if d.ended() {
			d.t.Fatalf("tenond has ended (%v) without saying %q:\n%s", d.ProcessState, text, d.said())
		}
		return strings.Count(d.said(), text) >= n
	})
}

func (d *daemon) ended() bool {
	select {
	case <-d.end:
		return true
	default:
		return false
	}
}

func (d *daemon) signal(sig syscall.Signal) {
	d.t.Helper()
	if err := d.Process.Signal(sig); err != nil {
		d.t.Fatalf("send %v to tenond: %v", sig, err)
	}
}

// stop ends tenond as a service manager does, and checks that it exits without
// an error.
func (d *daemon) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	<-d.end
	if !d.ProcessState.Success() {
		d.t.Errorf("tenond, asked to stop: %v\n%s", d.ProcessState, d.said())
	}
}

// patience is the time that a test waits for an expected event. The machine may
// be busy or an emulator (TENON_TEST_PATIENCE).
var patience = max(time.Minute, allowed())

func allowed() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("TENON_TEST_PATIENCE"))
	return d
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not true after %v: %s", patience, what)
		}
	}
}

// eventuallyIn waits for what takes a window of minutes, and looks at it less often.
func eventuallyIn(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not true after %v: %s", limit, what)
		}
	}
}

// quota returns the current quota of BE.
func (s *site) quota() node.CPUMax {
	s.t.Helper()
	v, err := s.tree.ReadCPUMax(string(s.path(batch)))
	if err != nil {
		s.t.Fatal(err)
	}
	return node.CPUMax(v)
}

// bound returns BE's safe bound from the lease.
func (s *site) bound() node.CPUMax {
	s.t.Helper()
	want := node.Knob{Cgroup: s.path(batch), File: node.FileCPUMax}
	file, err := os.ReadFile(filepath.Join(s.state, "lease"))
	if err != nil {
		s.t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		var b struct {
			node.Knob
			Value string
		}
		if json.Unmarshal(lines.Bytes(), &b) != nil || b.Knob != want {
			continue
		}
		v, err := node.ParseValue(b.File, b.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		return v.(node.CPUMax)
	}
	s.t.Fatalf("the lease has no bound on %v:\n%s", want, file)
	return node.CPUMax{}
}

// awaitRoom waits until BE has more than its safe bound.
func (s *site) awaitRoom() {
	s.t.Helper()
	eventually(s.t, "BE has a quota above its safe bound", func() bool {
		q := s.quota()
		return q.Quota != node.NoQuota && s.bound().CompareWidth(q) < 0
	})
}

// within2s checks that BE has its safe bound 2 s after a time (then).
func (s *site) within2s(then time.Time, bound node.CPUMax) {
	s.t.Helper()
	eventually(s.t, "BE is within its safe bound", func() bool { return s.quota().CompareWidth(bound) <= 0 })
	took := time.Since(then)
	s.t.Logf("BE was within its safe bound, %v, after %v", bound, took.Round(time.Millisecond))
	if took > 2*time.Second {
		s.t.Errorf("the watchdog took %v, want at most 2 s", took)
	}
}

// restore runs tenon restore. Afterwards no change, no lease and no watchdog
// may be left.
func (s *site) restore() {
	s.t.Helper()
	text, err := exec.Command(filepath.Join(s.bin, "tenon"), "--state-dir", s.state, "restore").CombinedOutput()
	if err != nil {
		s.t.Fatalf("tenon restore: %v\n%s", err, text)
	}
	s.isBack(text)
}

// isBack checks that the cgroups have their earlier values, and that no process
// and no lease of Tenon is left. text is the output of tenon restore.
func (s *site) isBack(text []byte) {
	s.t.Helper()
	s.awaitProcesses()
	after := s.dump(s.t)
	for name := range after {
		if _, had := s.before[name]; !had {
			delete(after, name) // a cgroup that the test added
		}
	}
	if diff := cmp.Diff(s.before, after); diff != "" {
		s.t.Errorf("after tenon restore (-before +after):\n%s\nit said:\n%s", diff, text)
	}
	if _, err := os.Stat(filepath.Join(s.state, "lease")); err == nil {
		s.t.Error("the lease is left")
	}
	if pid, guarded := lease.IsGuarded(s.state); guarded {
		s.t.Errorf("the watchdog, process %d, is left", pid)
	}
}

// awaitProcesses waits for the end of all processes that have the path of
// the state directory in their arguments, so that none of them writes any more.
func (s *site) awaitProcesses() {
	s.t.Helper()
	eventually(s.t, "no process of Tenon is left", func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil || len(lines) == 0 {
			s.t.Fatalf("%d processes: %v", len(lines), err)
		}
		for _, file := range lines {
			text, _ := os.ReadFile(file) // empty: it has ended
			if strings.Contains(string(text), s.state) {
				return false
			}
		}
		return true
	})
}

// awaitWatchdog waits until a watchdog runs, and returns its process.
func (s *site) awaitWatchdog() int {
	s.t.Helper()
	var pid int
	eventually(s.t, "a watchdog guards the lease", func() (ok bool) {
		pid, ok = lease.IsGuarded(s.state)
		return ok
	})
	return pid
}

// countIntents returns how many writes all processes together began.
func (s *site) countIntents() int {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.state, "journal-*.jsonl"))
	if err != nil || len(files) != 1 {
		s.t.Fatalf("journals %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(text), `"op":"intend"`)
}

// readJournal returns the content of the journal.
func (s *site) readJournal() journal.State {
	s.t.Helper()
	boot, err := proc.Default().BootID()
	if err != nil {
		s.t.Fatal(err)
	}
	j, err := journal.Open(s.state, boot, journal.Session{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer j.Close()
	state, err := j.State()
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// checkUntouched checks that the cgroup at path and all cgroups below it are
// unchanged. If path is empty, it checks all cgroups of the site.
func (s *site) checkUntouched(path string, before map[string]string) {
	s.t.Helper()
	below := "/" + strings.TrimSuffix(string(s.path(path)), "/") + "/"
	part := func(all map[string]string) map[string]string {
		some := map[string]string{}
		for name, text := range all {
			if strings.Contains(name, below) {
				some[name] = text
			}
		}
		return some
	}
	want := part(before)
	if len(want) == 0 {
		s.t.Fatalf("no file of %s is known", path)
	}
	if diff := cmp.Diff(want, part(s.dump(s.t))); diff != "" {
		s.t.Errorf("%s was touched (-before +now):\n%s", path, diff)
	}
}

// dir returns the directory of a cgroup in the hierarchy of the cpu controller.
func (s *site) dir(group string) string {
	s.t.Helper()
	dir, err := s.tree.Dir("cpu", string(s.path(group)))
	if err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// weight returns the CPU weight of a cgroup.
func (s *site) weight(group string) cgroup.CPUWeight {
	s.t.Helper()
	v, err := s.tree.ReadCPUWeight(string(s.path(group)))
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}
