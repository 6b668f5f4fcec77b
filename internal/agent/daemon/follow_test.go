package daemon

import (
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
)

// TestTenondIsInNoContentionRoot checks where BE gets its weight if a rule takes
// all groups beside the one in which tenond runs.
func TestTenondIsInNoContentionRoot(t *testing.T) {
	home := node.CgroupPath("user.slice/user-1000.slice/session-1.scope")
	for name, c := range map[string]struct{ root, group, want node.CgroupPath }{
		"another user":          {"user.slice", "user.slice/user-1001.slice", "user.slice/user-1001.slice"},
		"deeper":                {"user.slice", "user.slice/user-1001.slice/a/b", "user.slice/user-1001.slice"},
		"the same user":         {"user.slice/user-1000.slice", "user.slice/user-1000.slice/session-2.scope", "user.slice/user-1000.slice/session-2.scope"},
		"beside it":             {"batch.slice", "batch.slice/a", "batch.slice"},
		"a name that begins so": {"user.slice/user-10", "user.slice/user-10/a", "user.slice/user-10"},
		"none":                  {"", "user.slice/user-1001.slice", ""},
	} {
		if got := rootBeside(c.root, c.group, home); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestTheSocketSourceCanBeSwitchedOff asks for a service with an objective at its sockets
// with and without signals.requests.
func TestTheSocketSourceCanBeSwitchedOff(t *testing.T) {
	h, err := host.Open(host.Options{JournalDir: t.TempDir(), Resident: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	web := node.Workload{ID: "web", Class: node.LS}
	web.Objective.Requests = node.RequestObjective{Source: node.SourceSocket, Port: 80}
	web.Objective.Requests.Within[4] = time.Millisecond
	for on, want := range map[bool]node.SourceTrouble{true: "", false: node.TroubleOff} {
		d := daemon{host: h, config: config.Config{Signals: config.Signals{Requests: on}}}
		if all := d.targets([]node.Workload{web}); len(all) != 1 || all[0].Trouble != want || all[0].Cgroup == 0 || all[0].Address != "" {
			t.Errorf("signals.requests is %v: %+v", on, all)
		}
	}
}

// TestForeignCgroupsNeedNoSweep adds cgroups while the workloads stay the same.
// The host must look at all cgroups only in two cases: if a workload has
// changed, or if a new cgroup is the cgroup of a workload or is inside it.
func TestForeignCgroupsNeedNoSweep(t *testing.T) {
	h, err := host.Open(host.Options{JournalDir: t.TempDir(), Resident: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	have := []node.Workload{{ID: "a", Class: node.BE, Cgroup: "be/a"}, {ID: "b", Class: node.LS, Cgroup: "ls/b"}}
	h.ManageOnly(have)
	other := slices.Clone(have)
	other[1].ContentionRoot = "ls"
	for name, tc := range map[string]struct {
		now  []node.Workload
		came []string
		want bool
	}{
		"a unit of the system":    {have, []string{"system/timer"}, true},
		"only a container":        {have, nil, true},
		"a cgroup in a workload":  {have, []string{"system/timer", "be/a/inner"}, false},
		"a workload is made anew": {have, []string{"ls/b"}, false},
		"a workload went":         {have[:1], []string{"ls"}, false},
		"another contention root": {other, []string{"ls/c"}, false},
	} {
		d := daemon{host: h, followed: have}
		if got := d.hasAll(slices.Clone(tc.now), tc.came); got != tc.want {
			t.Errorf("%s: the host has all: %v, want %v", name, got, tc.want)
		}
		if d.followed = nil; d.hasAll(tc.now, tc.came) {
			t.Errorf("%s: the host has all although a sweep failed", name)
		}
	}
}
