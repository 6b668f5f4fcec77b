package change

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
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

// unplug takes a CPU offline: the kernel removes it from every set.
func (x cpusets) unplug(cpu unit.CPU) {
	for k, v := range x.values {
		x.values[k] = node.CPUs{Set: v.(node.CPUs).Set.Minus(unit.CPUSetOf(cpu))}
	}
}

// plug takes a CPU online: the kernel adds it to the set of the root.
func (x cpusets) plug(cpu unit.CPU) {
	x.values[x.root] = node.CPUs{Set: x.values[x.root].(node.CPUs).Set.With(cpu)}
}

// TestAnOfflineCPUKeepsNoCPUSetNarrow narrows a cpuset of cgroup v1 and takes a
// CPU offline. A release must restore the CPUs that the kernel accepts, while
// the CPU is offline and after it has come back. In some cases, no Tenon runs
// meanwhile and the CPU is one that Tenon left to the cgroup.
func TestAnOfflineCPUKeepsNoCPUSetNarrow(t *testing.T) {
	for name, c := range map[string]struct {
		narrow string
		back   bool
	}{
		"while it is offline":             {"0-1", false},
		"after it came back":              {"0-1", true},
		"a CPU of the narrow set":         {"6-7", false},
		"a CPU of the narrow set is back": {"6-7", true},
	} {
		t.Run(name, func(t *testing.T) {
			x := openCPUSets(t)
			x.group(t, "kubepods", "0-7")
			pod := x.group(t, "kubepods/pod", "0-7")
			ok(t, x.Set(pod, list(t, c.narrow)))
			x.unplug(7)
			if c.back {
				x.plug(7)
			}
			ok(t, x.Release(pod))
			x.hasReleased(t, pod, list(t, "0-6"))
		})
	}
}

// TestACPUSetWaitsForItsParent releases a cpuset below one that is still
// narrow. The kernel refuses this. The cpuset must stay in the journal, and get
// all its CPUs back after its parent.
func TestACPUSetWaitsForItsParent(t *testing.T) {
	x := openCPUSets(t)
	top := x.group(t, "kubepods", "0-7")
	pod := x.group(t, "kubepods/pod", "0-7")
	ok(t, x.Set(pod, list(t, "0-1")), x.Set(top, list(t, "0-3")))
	if err := x.Release(pod); err == nil || x.values[pod] != node.Value(list(t, "0-1")) {
		t.Errorf("%v, and it has %v", err, x.values[pod])
	}
	ok(t, x.Release(top), x.Release(pod))
	x.hasReleased(t, top, list(t, "0-7"))
	x.hasReleased(t, pod, list(t, "0-7"))
}

// TestASetThatMustNotBecomeEmptyGetsThatOfItsParent narrows a cgroup that its maker
// has not filled. Tasks enter it then, and the kernel does not let the set become
// empty again. A release must not fail for ever, and must not take the narrow set of
// the parent.
func TestASetThatMustNotBecomeEmptyGetsThatOfItsParent(t *testing.T) {
	x := openCPUSets(t)
	batch, pod := x.group(t, "batch", "0-3"), x.group(t, "batch/pod", "")
	ok(t, x.Set(batch, list(t, "0-1")), x.Set(pod, list(t, "0")))
	stores := x.stores
	x.stores = func(k node.Knob, now, to node.Value) (node.Value, error) {
		if to.(node.CPUs).Set.Empty() {
			return now, syscall.ENOSPC
		}
		return stores(k, now, to)
	}
	if err := x.Release(pod); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("below a narrow parent: %v", err)
	}
	ok(t, x.Release(batch), x.Release(pod))
	x.hasReleased(t, batch, list(t, "0-3"))
	x.hasReleased(t, pod, list(t, "0-3"))
}

// TestACopyThatIsRefusedIsReleasedLater makes a cgroup below a narrow one, as a
// copy of its set. No Tenon has noticed the cgroup, and the kernel refuses the
// first try of a restore. The next one must restore it.
func TestACopyThatIsRefusedIsReleasedLater(t *testing.T) {
	x := openCPUSets(t)
	top := x.group(t, "kubepods", "0-7")
	ok(t, x.Set(top, list(t, "0-1")))
	pod := x.group(t, "kubepods/pod", "0-1")
	copies, err := x.Copies(x.touches(t))
	copied, found := copies[pod]
	if !found || err != nil {
		t.Fatal("the copy was not found", err)
	}
	x.refuses[pod] = true
	ok(t, wrong(x.ReleaseAs(pod, copied)))
	x.refuses[pod] = false
	ok(t, x.Release(top), x.Release(pod))
	x.hasReleased(t, pod, list(t, "0-7"))
}

// TestACgroupThatCannotBeListedMayHaveCopies has a cgroup whose path the kernel does
// not take any more, and another one with a copy. The copy must be found, and the
// cgroup must be named.
func TestACgroupThatCannotBeListedMayHaveCopies(t *testing.T) {
	x := openCPUSets(t)
	top := x.group(t, "kubepods", "0-7")
	ok(t, x.Set(top, list(t, "0-1")))
	pod := x.group(t, "kubepods/pod", "0-1")
	touches := x.touches(t)
	long := node.Knob{Cgroup: node.CgroupPath(strings.Repeat("d/", 2100) + "d"), File: node.FileCPUs}
	touches[long] = touches[top]
	copies, err := x.Copies(touches)
	missed, rest := partial.Split(err)
	if _, found := copies[pod]; !found || rest != nil || missed == nil || !missed.MayHide(string(long.Cgroup)) {
		t.Errorf("%d copies, %v", len(copies), err)
	}
}

// TestASetOfAnotherComponentStays has another component that takes a CPU from a
// set of Tenon. The parent still has this CPU, so the kernel did not take it.
func TestASetOfAnotherComponentStays(t *testing.T) {
	x := openCPUSets(t)
	x.group(t, "kubepods", "0-7")
	pod := x.group(t, "kubepods/pod", "0-7")
	ok(t, os.MkdirAll(filepath.Join(x.bench.root, "sys/devices/system/cpu"), 0o755),
		os.WriteFile(filepath.Join(x.bench.root, "sys/devices/system/cpu/online"), []byte("0-7\n"), 0o644))
	ok(t, x.Set(pod, list(t, "0-1")))
	x.values[pod] = list(t, "0")
	ok(t, x.Release(pod))
	x.hasReleased(t, pod, list(t, "0"))
}

// TestASubtreeThatItsOwnerMovedStays has an owner that moves a cgroup and its
// child to other CPUs, while no Tenon runs. The parent lacks the CPUs that the
// child lost, but the cgroup above has them, so the kernel did not take them.
func TestASubtreeThatItsOwnerMovedStays(t *testing.T) {
	x := openCPUSets(t)
	x.group(t, "kubepods", "0-7")
	be, pod := x.group(t, "kubepods/be", "0-7"), x.group(t, "kubepods/be/pod", "0-7")
	ok(t, x.Set(pod, list(t, "0-3")), x.Set(be, list(t, "0-3")))
	x.values[pod], x.values[be] = list(t, "0-1"), list(t, "0-1,4-7")
	ok(t, x.Release(be), x.Release(pod))
	x.hasReleased(t, be, list(t, "0-1,4-7"))
	x.hasReleased(t, pod, list(t, "0-1"))
}

// TestALostCPUIsNotForgotten has a cpuset that Tenon has widened again when a
// CPU goes offline and comes back. The parent gets the CPU back. The next write
// of Tenon must not make the narrower set the one from before.
func TestALostCPUIsNotForgotten(t *testing.T) {
	x := openCPUSets(t)
	batch, pod := x.group(t, "batch", "0-7"), x.group(t, "batch/pod", "0-7")
	ok(t, x.Set(pod, list(t, "0-3")), x.Set(pod, list(t, "0-7")))
	x.unplug(7)
	x.plug(7)
	x.values[batch] = list(t, "0-7")
	ok(t, x.Set(pod, list(t, "0-3")), x.Release(pod))
	x.hasReleased(t, pod, list(t, "0-7"))
}

// TestTheSetFromBeforeIsFoundWithoutAnyRead has a set that is part of Tenon's.
// A snapshot asks for the value from before for each knob, so this must not read
// any file unless the answer depends on it.
func TestTheSetFromBeforeIsFoundWithoutAnyRead(t *testing.T) {
	for _, before := range []string{"0-7", "4-7"} {
		b := newBench(t, cpusetsV1)
		k, reads := b.add(t, "kubepods/pod", node.FileCPUs, list(t, "0-1")), 0
		b.Use(knob.Table{node.FileCPUs: {
			Read: func(k node.Knob) (node.Value, error) {
				reads++
				return b.readKnob(k)
			},
			Write: b.writeKnob,
		}})
		touch := journal.Touch{Before: list(t, before), Written: list(t, "0-3")}
		if got := Original(b.Knobs, k, touch, b.values[k]); got != touch.Before || reads != 0 {
			t.Errorf("%v after %d reads, want %s", got, reads, before)
		}
	}
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
