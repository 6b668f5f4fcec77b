package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/unit"
)

// boundedIO is a configuration in which batch work may read 1 MB and write 100
// times a second on a disk.
const boundedIO = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
resource-qos-config:
  beClass: {blkioQOS: {enable: true, blocks: [{name: /dev/DISK, ioCfg: {readBPS: 1000000, writeIOPS: 100}}]}}
`

// aDisk returns a whole disk of this machine.
func aDisk(t *testing.T) (name string, id unit.Device) {
	t.Helper()
	fs := proc.Default()
	all, err := fs.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if d, err := fs.BlockDevice(p.Name); err == nil && d.Disk == p.ID {
			return p.Name, p.ID
		}
	}
	t.Skip("this machine has no disk")
	return "", unit.Device{}
}

// TestTenondLimitsBlockIOOfTheClass checks that the limits apply to all batch
// work together, whatever the number of jobs is. A limit that was there before
// is an upper bound and is restored.
func TestTenondLimitsBlockIOOfTheClass(t *testing.T) {
	disk, id := aDisk(t)
	config := strings.ReplaceAll(boundedIO, "DISK", disk)
	s := plantSite(t, config)
	if !s.tree.Has("io") {
		t.Skip("this machine has no controller for block I/O")
	}
	limits := func(group string) cgroup.IOLimits {
		m, err := s.tree.ReadIOMax(string(s.path(group)))
		if err != nil {
			t.Fatal(err)
		}
		return m[id]
	}
	const none = cgroup.NoIORate
	own := map[unit.Device]cgroup.IOLimits{id: {ReadBPS: none, WriteBPS: 5000, ReadIOPS: none, WriteIOPS: 30}}
	// On cgroup v1 a limit does not apply to the cgroups below, so Tenon writes
	// a limit to each of them.
	top, bound := batch, []string{batch}
	if s.tree.VersionOf("io") == 1 {
		top, bound = job, []string{job, "batch/more"}
	}
	if err := s.tree.WriteIOMax(string(s.path(top)), own); err != nil {
		t.Fatal(err)
	}
	s.before = s.dump(t)
	d := s.tenond()
	eventually(t, "the first job has the full limit", func() bool {
		return limits(top) == cgroup.IOLimits{ReadBPS: 1000000, WriteBPS: 5000, ReadIOPS: none, WriteIOPS: 30}
	})
	s.run("batch/more", "sleep", "600")
	eventually(t, "both jobs share the limit", func() bool {
		var sum int64
		for _, group := range bound {
			if l := limits(group); l != (cgroup.IOLimits{}) {
				sum += l.ReadBPS
			}
		}
		return sum == 1000000 && limits(bound[len(bound)-1]).ReadBPS == int64(1000000/len(bound))
	})
	if l := limits(service); l != (cgroup.IOLimits{}) {
		t.Errorf("the service has the limits %+v, want none", l)
	}
	text, err := exec.Command(filepath.Join(s.bin, "tenon"), "--state-dir", s.state, "explain", string(s.path(top)), "io.max").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "all BE work together gets rbps=1000000 wiops=100 of "+disk) {
		t.Errorf("tenon explain: %v\n%s", err, text)
	}

	// If the key is disabled, tenond restores the limits while it runs.
	s.configure(strings.Replace(config, "blkioQOS: {enable: true", "blkioQOS: {enable: false", 1))
	d.signal(syscall.SIGHUP)
	eventually(t, "the limits have their earlier values", func() bool { return limits(top) == own[id] })
	s.configure(config)
	d.signal(syscall.SIGHUP)
	eventually(t, "the limits are back", func() bool { return limits(top).ReadBPS == int64(1000000/len(bound)) })
	if strings.Contains(d.said(), "could not be written") {
		t.Errorf("a write was refused:\n%s", d.said())
	}
	d.signal(syscall.SIGKILL)
	eventually(t, "tenond is dead", d.ended)
	s.restore()
}
