package sim

import (
	"errors"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestAFileThatCgroupV1LacksIsAbsent has a limit that only cgroup v2 has. On v1
// the knob must be absent, and not have the value 0.
func TestAFileThatCgroupV1LacksIsAbsent(t *testing.T) {
	const file = "memory.swap.max"
	l := node.LimitFile{File: file, V2Only: true, Bytes: true}
	files := withLimits([]node.LimitFile{l}, map[int]map[string]string{1: {}, 2: {}})
	if _, has := files[1][file]; has || files[2][file] != "max" {
		t.Fatalf("a new cgroup has the files %v", files)
	}
	k := node.Knob{Cgroup: "be", File: file}
	for version, want := range map[int]error{1: syscall.ENOENT, 2: nil} {
		n := New(Options{Version: version})
		if err := n.MakeGroup(k.Cgroup); err != nil {
			t.Fatal(err)
		}
		if text, has := files[version][file]; has {
			n.groups[k.Cgroup].files[file] = text
		}
		v, err := n.limitAdapter(l).Read(k)
		if !errors.Is(err, want) || err == nil && v != node.Value(l.Of(node.NoMaximum)) {
			t.Errorf("on cgroup v%d, %s is %v, %v; want the error %v", version, k, v, err, want)
		}
	}
}
