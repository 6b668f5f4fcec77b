package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// TestCgroupsBornNarrowGetAllCPUsBack creates cgroups inside narrowed ones,
// while tenond runs and after it was killed. Other cgroups are narrowed because
// a service has an exclusive CPU. On cgroup v1, each new cgroup copies the
// narrow set of its parent. It must not keep that set when the CPU is shared
// again, nor after a restore.
func TestCgroupsBornNarrowGetAllCPUsBack(t *testing.T) {
	s := plantSite(t, exclusiveConfig)
	all := s.cpus("services")
	if all.Len() < 2 {
		t.Skipf("this machine has %d CPU, which cannot be exclusive", all.Len())
	}
	s.run("services/cache/worker", "sleep", "600")
	d := s.tenond()
	narrow := func(groups ...string) func() bool {
		return func() bool {
			for _, g := range groups {
				if s.cpus(g).Len() != all.Len()-1 {
					return false
				}
			}
			return true
		}
	}
	wide := func(groups ...string) func() bool {
		return func() bool {
			for _, g := range groups {
				if s.cpus(g) != all {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "the others leave the exclusive CPU", narrow(service, job))
	born := []string{service + "/born", service + "/born/inner", job + "/born"}
	for _, g := range born {
		s.run(g, "sleep", "600")
	}
	if !narrow(born...)() {
		t.Fatal("a new cgroup has more CPUs than its parent")
	}
	d.signal(syscall.SIGKILL)
	eventually(t, "tenond is dead", d.ended)
	born = append(born, service+"/late", job+"/born/late")
	for _, g := range born[3:] {
		s.run(g, "sleep", "600")
	}
	d = s.tenond()
	s.configure(strings.Replace(exclusiveConfig, "class: LSE", "class: LS", 1))
	d.signal(syscall.SIGHUP)
	eventually(t, "all cgroups have all CPUs again", wide(append(born, service, job)...))

	s.configure(exclusiveConfig)
	d.signal(syscall.SIGHUP)
	eventually(t, "the others leave the exclusive CPU again", narrow(append(born, service, job)...))
	s.run(service+"/orphan", "sleep", "600")
	d.signal(syscall.SIGKILL)
	eventually(t, "tenond is dead", d.ended)
	s.run(job+"/orphan", "sleep", "600")
	s.disarm()
	s.restore()
	if groups := append(born, service, job, service+"/orphan", job+"/orphan"); !wide(groups...)() {
		for _, g := range groups {
			t.Errorf("after tenon restore %s has CPUs %v", g, s.cpus(g))
		}
	}
}
