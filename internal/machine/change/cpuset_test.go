package change

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A cpusets is a bench with cpusets of cgroup v1. It refuses what the kernel
// refuses: CPUs that are offline, and CPUs that the parent lacks.
type cpusets struct {
	*bench
	root node.Knob // its set is what is online
}

func openCPUSets(t *testing.T) cpusets {
	t.Helper()
	b := newBench(t, cpusetsV1)
	x := cpusets{b, b.add(t, "", node.FileCPUs, list(t, "0-7"))}
	b.stores = func(k node.Knob, now, to node.Value) (node.Value, error) {
		set, parent := to.(node.CPUs).Set, node.Knob{Cgroup: k.Cgroup.Parent(), File: k.File}
		switch {
		case !b.values[x.root].(node.CPUs).Set.Contains(set):
			return now, syscall.EINVAL
		case !b.values[parent].(node.CPUs).Set.Contains(set):
			return now, syscall.EACCES
		}
		return to, nil
	}
	return x
}

func list(t *testing.T, text string) node.CPUs {
	t.Helper()
	set, err := unit.ParseCPUSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return node.CPUs{Set: set}
}

// group adds a cgroup with a set of CPUs.
func (x cpusets) group(t *testing.T, p node.CgroupPath, text string) node.Knob {
	t.Helper()
	return x.add(t, p, node.FileCPUs, list(t, text))
}

// TestFormerSetsEndWithTheirCgroup removes cgroups whose cpusets Tenon has
// changed. Tenon must forget their former sets, and must not take them for sets
// of a later cgroup with the same name.
func TestFormerSetsEndWithTheirCgroup(t *testing.T) {
	x := openCPUSets(t)
	var knobs []node.Knob
	for _, p := range []node.CgroupPath{"a", "b", "c"} {
		k := x.group(t, p, "0-7")
		ok(t, x.Set(k, list(t, "0-1")), x.Set(k, list(t, "0-2")))
		knobs = append(knobs, k)
	}
	ok(t, x.Forget(knobs[0]), ManyKnobs{x.Knobs}.Forget(knobs[1:2]))
	if len(x.former) != 1 {
		t.Errorf("after two of three were forgotten there are %v", x.former)
	}
	dir := filepath.Join(x.bench.root, "groups/c")
	ok(t, os.Rename(dir, dir+"-old"), os.Mkdir(dir, 0o755), os.Remove(dir+"-old"))
	x.values[knobs[2]] = list(t, "0-7")
	ok(t, x.Set(knobs[2], list(t, "0-3")))
	if len(x.former) != 0 {
		t.Errorf("of the removed cgroup there are %v", x.former)
	}
}
