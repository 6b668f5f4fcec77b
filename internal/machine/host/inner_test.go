package host

import (
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestInnerCgroupsComeFromTheSweep checks that the cgroups below a workload are
// taken from the list of all cgroups, without a tree. Plain string order puts
// other cgroups between a cgroup and those below it.
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
