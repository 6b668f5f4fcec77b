package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
)

// TestChaos damages a running machine in every way that it knows, and checks
// two invariants. First, if the knobs of a service are worse than without
// Tenon, this lasts no longer than an agent needs to notice it. Second, a
// restore either leaves nothing behind, or it fails and lists what it could not
// restore.
//
// The short form uses each way of damage once. TENON_TEST_CHAOS is the duration
// of the long form, whose rounds have some ways of damage in random order. If a
// round fails, it prints its seed, and TENON_TEST_CHAOS_SEED repeats that
// round.
func TestChaos(t *testing.T) {
	inTurn(t)
	needRoot(t)
	long, _ := time.ParseDuration(os.Getenv("TENON_TEST_CHAOS"))
	var seed uint64
	if n, _ := fmt.Sscan(os.Getenv("TENON_TEST_CHAOS_SEED"), &seed); n == 1 {
		chaosRound(t, seed, 6)
		return
	}
	// Each round is a test of its own, because all of them use the same cgroups,
	// which the cleanup of a test removes.
	t.Run("all", func(t *testing.T) { chaosRound(t, 0, len(ways())) })
	for begun := time.Now(); time.Since(begun) < long && !t.Failed(); {
		seed = rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { chaosRound(t, seed, 6) })
	}
}

// chaosConfig bounds jobs by quota, weight and memory, and exempts the service.
const chaosConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 200ms
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"], limits: {memory: 64Mi}}
- {name: ls, class: LS, cgroups: ["ROOT/pods/ls"]}
- {name: be, class: BE, cgroups: ["ROOT/pods/be*"], limits: {memory: 64Mi}}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 65, cpuSuppressMinPercent: 5, cpuSuppressPolicy: cfsQuota}
resource-qos-config: {beClass: {cpuQOS: {enable: true}}}
`

// The service and the job have the same parent, because exchange renames
// cgroups, and the kernel cannot move a cgroup to another parent.
const (
	lsPod = "pods/ls"
	bePod = "pods/be"
)

// A chaos is one round of damage.
type chaos struct {
	*site
	d       *daemon // nil: no tenond runs
	random  *rand.Rand
	file    string           // the configuration file; site.config is a link to it
	renamed []string         // pairs of groups that have exchanged their names
	damaged bool             // a journal without an agent was damaged
	weight  cgroup.CPUWeight // of services before Tenon
	cpus    string
	values  map[node.Knob]string // what a restore writes, before the first damage
}

// A way is one way to damage the machine.
type way struct {
	name string
	do   func(*chaos)
}

// chaosRound damages a new site n times. seed determines the order of the ways
// of damage. If seed is 0, this is the order of the list.
func chaosRound(t *testing.T, seed uint64, n int) {
	s := plantSite(t, chaosConfig)
	c := &chaos{site: s, random: rand.New(rand.NewPCG(seed, seed)), file: s.config + ".file"}
	// The state directory is a small file system. One way of damage fills it.
	small := t.TempDir()
	if err := unix.Mount("tenon-test", small, "tmpfs", 0, "mode=0700,size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	s.state = filepath.Join(small, "run")
	s.check(os.Rename(s.config, c.file), os.Symlink(c.file, s.config))
	s.run(lsPod, "sleep", "600")
	s.run(bePod, "sh", "-c", "while :; do :; done")
	s.before = s.dump(t)
	web := string(s.path(service))
	weight, err := s.tree.ReadCPUWeight(web)
	s.check(err)
	set, err := s.tree.EffectiveCPUs(web)
	s.check(err)
	c.weight, c.cpus = weight, set.String()
	all := ways()
	chosen := all
	if seed != 0 {
		chosen = nil
		for _, i := range c.random.Perm(len(all))[:n] {
			chosen = append(chosen, all[i])
		}
	}
	c.ensureRunning()
	c.awaitLimit(bePod)
	eventually(t, "BE is bounded", func() bool { return c.quota().Quota != cgroup.NoQuota })
	if c.values = c.valuesToRestore(); len(c.values) == 0 {
		t.Fatal("a restore would write nothing")
	}
	for _, w := range chosen {
		if t.Failed() {
			return
		}
		begun := time.Now()
		c.ensureRunning()
		w.do(c)
		c.ensureRunning()
		c.servicesAreWell(w.name)
		c.restoreKnows(w.name)
		t.Logf("%-28s %v", w.name, time.Since(begun).Round(10*time.Millisecond))
	}
	c.end(seed)
}

func (s *site) check(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// ensureRunning starts tenond if it is not running.
func (c *chaos) ensureRunning() {
	c.t.Helper()
	if c.d == nil || c.d.ended() {
		c.d = c.tenond()
	}
}

// kill ends tenond. If both is set, it also ends the watchdog.
func (c *chaos) kill(both bool) {
	c.t.Helper()
	pid := 0
	if both {
		pid = c.awaitWatchdog()
	}
	c.d.signal(syscall.SIGKILL)
	<-c.d.end
	if both {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// servicesAreWell waits until the values of services are at least as good as
// before Tenon.
func (c *chaos) servicesAreWell(after string) {
	c.t.Helper()
	c.isWell(service, after)
	c.isWell(lsPod, after)
}

func (c *chaos) isWell(group, after string) {
	c.t.Helper()
	web := string(c.path(group))
	var said string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		w, err := c.tree.ReadCPUWeight(web)
		q, err2 := c.tree.ReadCPUMax(web)
		set, err3 := c.tree.EffectiveCPUs(web)
		said = fmt.Sprintf("weight %+v, quota %+v, CPUs %v, %v", w, q, set, errors.Join(err, err2, err3))
		if errors.Join(err, err2, err3) == nil && !w.Idle && w.Weight >= c.weight.Weight && q.Quota == cgroup.NoQuota && set.String() == c.cpus {
			return
		}
	}
	c.t.Errorf("after %q %s is worse off than without Tenon (weight %+v, no quota, CPUs %s): %s", after, group, c.weight, c.cpus, said)
}

// valuesToRestore returns the value that a restore would write to each knob.
func (c *chaos) valuesToRestore() map[node.Knob]string {
	c.t.Helper()
	text, err := exec.Command(filepath.Join(c.bin, "tenon"), "--state-dir", c.state, "restore", "--dry-run", "-o", "json").Output()
	var r restore.Report
	if jsonErr := json.Unmarshal(text, &r); jsonErr != nil {
		c.t.Fatalf("tenon restore --dry-run: %v, %v\n%s", err, jsonErr, text)
	}
	values := map[node.Knob]string{}
	for _, change := range append(r.Restored, r.Left...) {
		values[change.Knob] = change.To
	}
	return values
}

// restoreKnows waits until a restore would write the values that it would have
// written before the damage. A knob that the journal does not know any more is
// no failure here: end finds out if its value stays. Without this check, a
// wrong value would show only at the end of the round, after other damage.
func (c *chaos) restoreKnows(after string) {
	c.t.Helper()
	if len(c.renamed) > 0 {
		return // the knobs have other paths
	}
	var wrong []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		wrong = nil
		for k, now := range c.valuesToRestore() {
			if was, known := c.values[k]; known && was != now {
				wrong = append(wrong, fmt.Sprintf("%v: %q, want %q", k, now, was))
			}
		}
		if wrong == nil {
			return
		}
	}
	c.t.Errorf("after %q a restore would write other values than those before Tenon:\n%s", after, strings.Join(wrong, "\n"))
}

// awaitLimit waits until a job has its memory limit. The limit shows that tenond
// manages the job.
func (c *chaos) awaitLimit(group string) {
	c.t.Helper()
	eventually(c.t, group+" has its limit", func() bool {
		m, err := c.tree.ReadMemory(string(c.path(group)))
		return err == nil && m.Max == 64<<20
	})
}

// exchange exchanges the names of two groups, in every hierarchy.
func (c *chaos) exchange(a, b string) {
	c.t.Helper()
	c.rename(a, a+"-aside")
	c.rename(b, a)
	c.rename(a+"-aside", b)
	if n := len(c.renamed); n > 0 && c.renamed[n-1] == a+" "+b {
		c.renamed = c.renamed[:n-1]
		return
	}
	c.renamed = append(c.renamed, a+" "+b)
}

func (c *chaos) rename(a, b string) {
	c.t.Helper()
	for _, controller := range cgroup.Controllers() {
		from, err := c.tree.Dir(controller, string(c.path(a)))
		if err != nil {
			continue
		}
		to, err := c.tree.Dir(controller, string(c.path(b)))
		c.check(err)
		if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.t.Fatal(err)
		}
	}
}

// end stops the agent in one of several ways, restores the site, and compares
// it with its earlier state.
func (c *chaos) end(seed uint64) {
	c.t.Helper()
	switch c.random.IntN(4) {
	case 0:
		c.d.stop()
	case 1:
		c.kill(false)
	case 2:
		c.kill(true)
	case 3:
		c.kill(true)
		c.removeState()
	}
	text, err := exec.Command(filepath.Join(c.bin, "tenon"), "--state-dir", c.state, "restore").CombinedOutput()
	for i := len(c.renamed) - 1; i >= 0; i-- {
		a, b, _ := strings.Cut(c.renamed[i], " ")
		c.exchange(a, b)
	}
	c.awaitProcesses()
	after := c.dump(c.t)
	for name := range after {
		if _, had := c.before[name]; !had {
			delete(after, name)
		}
	}
	for name, was := range c.before {
		// Linux empties no CPU set of cgroup v2 while tasks run in the cgroup: a restore writes
		// that of its parent, which means the same. A fight over the quota makes Tenon use sets.
		if c.tree.Version() == 2 && filepath.Base(name) == "cpuset.cpus" && was == "\n" {
			if all, err := os.ReadFile(filepath.Join(filepath.Dir(name), "../cpuset.cpus.effective")); err == nil && after[name] == string(all) {
				after[name] = was
			}
		}
	}
	diff := cmp.Diff(c.before, after)
	switch {
	case diff != "" && err == nil:
		c.t.Errorf("seed %d: tenon restore says that it has put back all (-before +after):\n%s\nit said:\n%s", seed, diff, text)
	case diff != "":
		c.t.Errorf("seed %d: tenon restore could not put back all: %v (-before +after):\n%s\nit said:\n%s", seed, err, diff, text)
	case err != nil && !(c.damaged && strings.Contains(string(text), "damaged")):
		c.t.Errorf("seed %d: tenon restore: %v\n%s", seed, err, text)
	}
}
