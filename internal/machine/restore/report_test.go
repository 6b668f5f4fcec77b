package restore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/change"
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

		Elsewhere: []change.Elsewhere{{StateDir: "/run/a", Knobs: 2}, {StateDir: "/run/b", Groups: 1}, {StateDir: "/run/c", Knobs: 1, Groups: 3}},

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
elsewhere 2 knobs were changed by a Tenon with the state directory /run/a
elsewhere 1 cgroup was made by a Tenon with the state directory /run/b
elsewhere 1 knob was changed and 3 cgroups were made by a Tenon with the state directory /run/c
`
	if d := cmp.Diff(want, r.String()); d != "" {
		t.Error(d)
	}
	planned := r.Planned()
	for _, line := range []string{"\nend       2 processes of a lab\n", "\nrestore   be cpu.weight  idle -> 100\n", "\nremove    cgroup tenon-lab\n", "\ndisable   controller io "} {
		if !strings.Contains("\n"+planned, line) {
			t.Errorf("the plan has no line %q:\n%s", line, planned)
		}
	}
	const incomplete = `2 cgroups that Tenon made are in use: run tenon restore again when the commands in them have ended
2 knobs were changed by a Tenon with the state directory /run/a: run tenon restore --state-dir /run/a
1 cgroup was made by a Tenon with the state directory /run/b: run tenon restore --state-dir /run/b
1 knob was changed and 3 cgroups were made by a Tenon with the state directory /run/c: run tenon restore --state-dir /run/c`
	if d := cmp.Diff(incomplete, r.Incomplete().Error()); d != "" {
		t.Error(d)
	}
	if err := (restore.Report{Left: r.Left, Restored: r.Restored, Gone: r.Gone}).Incomplete(); err != nil {
		t.Errorf("what other programs have changed is theirs: %v", err)
	}
	if r.Empty() || !(restore.Report{}).Empty() || (restore.Report{Disabled: r.Disabled}).Empty() || (restore.Report{NeededControllers: r.NeededControllers}).Empty() {
		t.Error("Empty is wrong")
	}
}
