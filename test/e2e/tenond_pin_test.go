package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/unit"
)

// exclusiveConfig is a configuration that gives one service an exclusive CPU.
// It gives the other service a limit with CPU burst.
const exclusiveConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
rules:
- {name: cache, class: LSE, cgroups: ["ROOT/services/cache"], requests: {cpu: 1}}
- {name: web, class: LS, cgroups: ["ROOT/services/*"], limits: {cpu: 1500m}}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 100, cpuSuppressPolicy: cfsQuota}
cpu-burst-config: {policy: auto}
`

// cpus returns the CPUs on which the tasks of a cgroup may run.
func (s *site) cpus(group string) unit.CPUSet {
	s.t.Helper()
	set, err := s.tree.EffectiveCPUs(string(s.path(group)))
	if err != nil {
		s.t.Fatal(err)
	}
	return set
}

// wholeSets returns the files of CPUs and memory nodes that are empty on cgroup
// v2, each with the set of the parent cgroup, because an empty file means that
// set. After a change of such a file, the kernel refuses an empty value while
// tasks run in the cgroup. So Tenon writes the parent's set instead.
func (s *site) wholeSets() map[string]string {
	s.t.Helper()
	sets := map[string]string{}
	for file, text := range s.before {
		name := filepath.Base(file)
		if (name == "cpuset.cpus" || name == "cpuset.mems") && strings.TrimSpace(text) == "" && s.tree.Version() == 2 {
			all, err := os.ReadFile(file + ".effective")
			if err != nil {
				s.t.Fatal(err)
			}
			sets[file] = string(all)
		}
	}
	return sets
}

// TestTenondGivesCPUsAndTakesThemBack checks that a service gets an exclusive
// CPU, and that no other managed work runs on this CPU. When tenond is killed,
// the service must keep the CPU. tenon restore must restore everything.
func TestTenondGivesCPUsAndTakesThemBack(t *testing.T) {
	s := plantSite(t, exclusiveConfig)
	all := s.cpus("services")
	if all.Len() < 2 {
		t.Skipf("this machine has %d CPU, which cannot be exclusive", all.Len())
	}
	s.run("services/cache/worker", "sleep", "600")
	s.run("services/pool/worker", "sleep", "600")
	if err := s.tree.WriteCPUs(string(s.path("services/pool/worker")), all); err != nil {
		t.Fatal(err)
	}
	s.before = s.dump(t)
	whole := s.wholeSets()
	d := s.tenond()

	var last unit.CPU
	for c := range all.All() {
		last = c
	}
	cache, others := unit.CPUSetOf(last), all.Minus(unit.CPUSetOf(last))
	shared := func() bool {
		for group, want := range map[string]unit.CPUSet{
			"services/cache": cache, "services/cache/worker": cache, service: others, "services/pool": others, "services/pool/worker": others, job: others,
		} {
			if s.cpus(group) != want {
				return false
			}
		}
		return true
	}
	eventually(t, "the service cache has one exclusive CPU", shared)
	limit := func() cgroup.CPUMax {
		v, err := s.tree.ReadCPUMax(string(s.path(service)))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := cgroup.CPUMax{Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond, Burst: 150 * time.Millisecond}
	eventually(t, "the service has CPU burst", func() bool { return limit() == want })

	d.signal(syscall.SIGKILL)
	eventually(t, "tenond is dead", d.ended)
	d = s.tenond()
	if !shared() || limit() != want {
		t.Error("CPUs changed when tenond was started again")
	}

	// If the class of the service is no longer LSE, it gives its CPU back,
	// while all others go on.
	s.configure(strings.Replace(exclusiveConfig, "class: LSE", "class: LS", 1))
	d.signal(syscall.SIGHUP)
	eventually(t, "the CPU is shared again", func() bool {
		return s.cpus("services/cache/worker") == all && s.cpus("services/pool/worker") == all && s.cpus(service) == all && s.cpus(job) == all
	})
	s.configure(exclusiveConfig)
	d.signal(syscall.SIGHUP)
	eventually(t, "the service cache has one exclusive CPU again", shared)
	if strings.Contains(d.said(), "could not be written") {
		t.Errorf("a write was refused:\n%s", d.said())
	}
	d.stop()
	for file, text := range whole {
		if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) != "" {
			s.before[file] = text
		}
	}
	s.restore()
}
