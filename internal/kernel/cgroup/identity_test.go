package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vendorKernel models the kernels of vendors: which marks each of them accepts
// and refuses (docs of Alibaba Cloud Linux; ANCK and openEuler kernel sources).
type vendorKernel struct {
	groups  map[string]map[string]string
	sysctls map[string]string
	weights map[string]CPUWeight
	accept  map[string][]int
	log     []string
}

// newVendorKernel makes the groups "" and "a". The first one is the root, which
// has no marks.
func newVendorKernel(accept map[string][]int, sysctls map[string]string) *vendorKernel {
	files := map[string]string{}
	for f := range accept {
		files[f] = "0"
	}
	return &vendorKernel{
		groups: map[string]map[string]string{"": {}, "a": files}, sysctls: sysctls, accept: accept,
		weights: map[string]CPUWeight{"a": {Weight: 39 * 256}},
	}
}

func (k *vendorKernel) read(path, file string) (string, error) {
	g, here := k.groups[path]
	if !here {
		return "", fmt.Errorf("read %s in %s: %w: %w", file, path, ErrGone, syscall.ENOENT)
	}
	text, has := g[file]
	if !has {
		return "", fmt.Errorf("read %s in %s: %w: %w", file, printPath(path), ErrUnsupported, syscall.ENOENT)
	}
	return text, nil
}

func (k *vendorKernel) write(path, file, value string) error {
	if _, err := k.read(path, file); err != nil {
		return err
	}
	n, err := strconv.Atoi(value)
	switch {
	case err != nil || !slices.Contains(k.accept[file], n),
		file == fileBVT && n != 0 && k.sysctls[sysctlIdentity] == "0":
		return fmt.Errorf("write %s %q in %s: %w", file, value, path, syscall.EINVAL)
	}
	k.groups[path][file] = value
	k.log = append(k.log, file+"="+value)
	if file == filePriority {
		w := k.weights[path]
		if n < 0 {
			w = CPUWeight{Idle: true}
		} else if w.Idle {
			w = CPUWeight{Weight: 100 * 256}
		}
		k.weights[path] = w
	}
	return nil
}

func (k *vendorKernel) sysctl(name string) (string, error) {
	text, has := k.sysctls[name]
	if !has {
		return "", ErrUnsupported
	}
	return text, nil
}

func (k *vendorKernel) setSysctl(name, value string) error {
	if _, err := k.sysctl(name); err != nil {
		return err
	}
	k.sysctls[name] = value
	return nil
}

func (k *vendorKernel) weight(path string) (CPUWeight, error) { return k.weights[path], nil }

func (k *vendorKernel) setWeight(path string, w CPUWeight) error { k.weights[path] = w; return nil }

var (
	bvtKernel      = map[string][]int{fileBVT: {-2, -1, 0, 1, 2}, fileIdentity: {0, 9, 18, 22}}
	priorityKernel = map[string][]int{filePriority: {-1, 0, 1}, fileIdentity: {-1, 0, 1}}
	plainPriority  = map[string][]int{filePriority: {-1, 0, 1}}
	qosKernel      = map[string][]int{fileQOSLevel: {-1, 0}}
	levelKernel    = map[string][]int{fileQOSLevel: {-2, -1, 0, 1, 2}}
)

func TestIdentityIsWrittenInTheWordsOfEachKernel(t *testing.T) {
	tests := map[string]struct {
		accept map[string][]int
		id     Identity
		wrote  string
		reads  Identity
	}{
		"Group Identity, yields":                  {bvtKernel, -1, "cpu.bvt_warp_ns=-1", -1},
		"Group Identity, nothing":                 {bvtKernel, 0, "cpu.bvt_warp_ns=0", 0},
		"Group Identity, first":                   {bvtKernel, 1, "cpu.bvt_warp_ns=1", 1},
		"Group Identity, expels":                  {bvtKernel, 2, "cpu.bvt_warp_ns=2", 2},
		"priority, yields":                        {priorityKernel, -1, "cpu.priority=-1 cpu.identity=-1", -1},
		"priority, nothing":                       {priorityKernel, 0, "cpu.priority=0 cpu.identity=0", 0},
		"priority, first":                         {priorityKernel, 1, "cpu.priority=1 cpu.identity=0", 1},
		"priority, expels":                        {priorityKernel, 2, "cpu.priority=1 cpu.identity=1", 2},
		"priority without siblings, expels":       {plainPriority, 2, "cpu.priority=1", 1},
		"QoS level, yields":                       {qosKernel, -1, "cpu.qos_level=-1", -1},
		"QoS level, expels is nothing":            {qosKernel, 2, "cpu.qos_level=0", 0},
		"QoS level of several, expels is highest": {levelKernel, 2, "cpu.qos_level=2", 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k := newVendorKernel(tc.accept, map[string]string{sysctlIdentity: "1"})
			v := Vendor{k}
			if err := v.Write("a", tc.id); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(k.log, " "); got != tc.wrote {
				t.Errorf("wrote %q, want %q", got, tc.wrote)
			}
			if got, err := v.Read("a"); got != tc.reads || err != nil {
				t.Errorf("reads %d, %v, want %d", got, err, tc.reads)
			}
		})
	}
}

func TestOtherMarksReadAsTheNearest(t *testing.T) {
	for text, want := range map[string]Identity{"-2": -1, "2": 2, "-1\n": -1} {
		k := newVendorKernel(bvtKernel, nil)
		k.groups["a"][fileBVT] = text
		if got, err := (Vendor{k}).Read("a"); got != want || err != nil {
			t.Errorf("%q reads as %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestIdentityIsRefused(t *testing.T) {
	tests := map[string]struct {
		accept  map[string][]int
		sysctls map[string]string
		path    string
		id      Identity
		is      error
	}{
		"the switch is off":     {bvtKernel, map[string]string{sysctlIdentity: "0"}, "a", -1, ErrSwitchedOff},
		"the root":              {bvtKernel, nil, "", -1, ErrUnsupported},
		"no vendor's kernel":    {nil, nil, "a", -1, ErrUnsupported},
		"the group is gone":     {bvtKernel, nil, "b", -1, ErrGone},
		"no such identity":      {bvtKernel, nil, "a", 3, nil},
		"below that of BE":      {bvtKernel, nil, "a", -2, nil},
		"QoS level not its way": {map[string][]int{fileQOSLevel: {-1}}, nil, "a", 0, ErrSwitchedOff},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k := newVendorKernel(tc.accept, tc.sysctls)
			err := Vendor{k}.Write(tc.path, tc.id)
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
			if len(k.log) > 0 {
				t.Errorf("Write failed but changed %v", k.log)
			}
		})
	}
}

func TestZeroIsWrittenWhileTheSwitchIsOff(t *testing.T) {
	k := newVendorKernel(bvtKernel, map[string]string{sysctlIdentity: "0"})
	if err := (Vendor{k}).Write("a", 0); err != nil {
		t.Error(err)
	}
}

func TestPriorityLeavesTheWeightAsItWas(t *testing.T) {
	for name, before := range map[string]CPUWeight{"idle": {Idle: true}, "a weight": {Weight: 39 * 256}} {
		t.Run(name, func(t *testing.T) {
			k := newVendorKernel(priorityKernel, nil)
			k.weights["a"] = before
			for _, id := range []Identity{1, 2, 0} {
				if err := (Vendor{k}).Write("a", id); err != nil {
					t.Fatal(err)
				}
				if got := k.weights["a"]; got != before {
					t.Errorf("identity %d: %s", id, cmp.Diff(before, got))
				}
			}
		})
	}
	k := newVendorKernel(priorityKernel, nil)
	if err := (Vendor{k}).Write("a", -1); err != nil || !k.weights["a"].Idle {
		t.Errorf("got %+v, %v, want the group idle", k.weights["a"], err)
	}
}

func TestSwitchIsNotTurnedOnBesideCoreScheduling(t *testing.T) {
	tests := map[string]struct {
		sysctls map[string]string
		on      bool
		fails   bool
		want    string
	}{
		"on":                         {map[string]string{sysctlIdentity: "0"}, true, false, "1"},
		"off":                        {map[string]string{sysctlIdentity: "1"}, false, false, "0"},
		"on, core scheduling is off": {map[string]string{sysctlIdentity: "0", sysctlCoreSched: "0\n"}, true, false, "1"},
		"on, core scheduling is on":  {map[string]string{sysctlIdentity: "0", sysctlCoreSched: "1\n"}, true, true, "0"},
		"off, core scheduling is on": {map[string]string{sysctlIdentity: "1", sysctlCoreSched: "1"}, false, false, "0"},
		"the kernel has no switch":   {map[string]string{}, true, true, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k := newVendorKernel(bvtKernel, tc.sysctls)
			if err := (Vendor{k}).Switch(tc.on); (err != nil) != tc.fails {
				t.Errorf("got %v, want failure %t", err, tc.fails)
			}
			if got := k.sysctls[sysctlIdentity]; got != tc.want {
				t.Errorf("the switch is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestVendorReadsTheFilesOfBothVersions(t *testing.T) {
	const switches = "-- proc/sys/kernel/sched_group_identity_enabled --\n0\n"
	for name, archive := range map[string]string{
		"v1": onlyV1 + switches + "-- cpu/a/cpu.bvt_warp_ns --\n2\n-- cpu/b/cpu.shares --\n2\n",
		"v2": onlyV2 + switches + "-- v2/a/cpu.bvt_warp_ns --\n2\n-- v2/b/cpu.weight --\n1\n",
	} {
		t.Run(name, func(t *testing.T) {
			tree, proc := fixtureWithProc(t, archive)
			v := tree.Vendor(proc)
			if got, err := v.Read("a"); got != 2 || err != nil {
				t.Errorf("reads %d, %v, want 2", got, err)
			}
			if _, err := v.Read("b"); !errors.Is(err, ErrUnsupported) {
				t.Errorf("a group without marks: %v, want ErrUnsupported", err)
			}
			if err := v.Write("a", -1); err != nil || content(t, tree, "cpu", "a", fileBVT) != "-1" {
				t.Errorf("wrote %q, %v, want -1", content(t, tree, "cpu", "a", fileBVT), err)
			}
			if on, err := v.SwitchedOn(); on || err != nil {
				t.Errorf("the switch is %t, %v, want off", on, err)
			}
			if err := v.Switch(true); err != nil {
				t.Error(err)
			}
			if on, err := v.SwitchedOn(); !on || err != nil {
				t.Errorf("the switch is %t, %v, want on", on, err)
			}
			if _, err := tree.Vendor(t.TempDir()).SwitchedOn(); !errors.Is(err, ErrUnsupported) {
				t.Errorf("a kernel without the switch: %v, want ErrUnsupported", err)
			}
		})
	}
}

// fixtureWithProc makes a fixture and returns its tree and its /proc.
func fixtureWithProc(t *testing.T, archive string) (tree *Tree, proc string) {
	t.Helper()
	tree = fixture(t, archive)
	dir, err := tree.Dir("cpu", "")
	if err != nil {
		t.Fatal(err)
	}
	return tree, dir + "/../proc"
}
