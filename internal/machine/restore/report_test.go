package restore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
)

func TestReportReadsAsText(t *testing.T) {
	r := restore.Report{
		Killed:   []int{7, 9},
		Restored: []restore.Change{{Knob: node.Knob{Cgroup: "be", File: node.FileCPUWeight}, From: "idle", To: "100"}, {Knob: node.Knob{Cgroup: "be", File: node.FileCPUs}, From: "0"}},
		Removed:  []node.CgroupPath{"tenon-lab"},
		Disabled: []restore.Controller{{Controller: "io"}},
		Gone:     []node.CgroupPath{"old"},
		Dropped:  []node.Knob{{Cgroup: "be", File: node.FileMemory}},
		Left:     []restore.Change{{Knob: node.Knob{Cgroup: "ls", File: node.FilePIDs}, From: "650", To: "777"}},
		Busy:     []restore.Busy{{Cgroup: "tenon-be/a", PIDs: []int{12}}, {Cgroup: "tenon-be"}},

		NeededControllers: []restore.Controller{{Cgroup: "user", Controller: "memory", NeededBy: "user/a"}},
	}
	want := `ended     2 processes of a lab
restored  be cpu.weight  idle -> 100
restored  be cpuset.cpus  0 -> ""
removed   cgroup tenon-lab
disabled  controller io for the children of cgroup /
gone      cgroup old no longer exists
gone      be memory no longer exists, and its value with it
left      ls pids.max is 650, which Tenon did not write (it was 777 before)
left      controller memory stays enabled for the children of cgroup user: another program may use it in user/a
in use    cgroup tenon-be/a: 1 process 12
in use    cgroup tenon-be: it holds other groups
`
	if d := cmp.Diff(want, r.String()); d != "" {
		t.Error(d)
	}
	if r.Empty() || !(restore.Report{}).Empty() || (restore.Report{Disabled: r.Disabled}).Empty() || (restore.Report{NeededControllers: r.NeededControllers}).Empty() {
		t.Error("Empty is wrong")
	}
}
