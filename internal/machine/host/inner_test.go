package host

import (
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestInnerCgroupsComeFromTheSweep checks that the cgroups below a workload are
// taken from the list of all cgroups, without a look at the tree. In string
// order, other cgroups may be between a cgroup and those below it.
func TestInnerCgroupsComeFromTheSweep(t *testing.T) {
	swept := []string{"be", "be/a", "be/a-b", "be/a-b/c", "be/a/x", "be/a/x/y", "be/a/z", "be/ab", "be/b"}
	slices.Sort(swept)
	for p, want := range map[node.CgroupPath][]node.CgroupPath{
		"be/a":   {"be/a/x", "be/a/x/y", "be/a/z"},
		"be/a-b": {"be/a-b/c"},
		"be/b":   nil,
		"gone":   nil,
	} {
		if got := appendBelow(nil, nil, swept, p); !slices.Equal(got, want) {
			t.Errorf("below %s: %v, want %v", p, got, want)
		}
	}
}

// TestOnlySomeCgroupsConcernTheHost has two workloads, and a knob of their
// parent. Cgroups inside the parent concern the host, because they may have
// copied a value of Tenon. Cgroups outside do not.
func TestOnlySomeCgroupsConcernTheHost(t *testing.T) {
	b := newBench(t, true)
	concerns := func(p ...string) bool {
		t.Helper()
		is, err := Concerns(b.Host, p)
		do(t, err)
		return is
	}
	for p, want := range map[string]bool{"be/a": true, "be/a/inner": true, "be": false, "be/c": false, "ls/x/y": true, "lsx": false, "system": false} {
		if got := concerns("other", p); got != want {
			t.Errorf("%s concerns the host: %v, want %v", p, got, want)
		}
	}
	if concerns() {
		t.Error("nothing concerns the host")
	}
	do(t, b.set(t, policyOf("be"), node.ThreadsBE))
	for p, want := range map[string]bool{"be": true, "be/c": true, "system": false} {
		if got := concerns(p); got != want {
			t.Errorf("with a knob of be, %s concerns the host: %v, want %v", p, got, want)
		}
	}
}
