package cgroup

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

var (
	sda = unit.Device{Major: 8}
	vda = unit.Device{Major: 254}
)

const ioV2 = onlyV2 + `-- v2/io.cost.qos --
8:0 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00
254:0 enable=0 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00
-- v2/a/io.max --
8:0 rbps=1048576 wbps=max riops=max wiops=100 future=5
-- v2/a/io.weight --
default 100
8:0 50
-- v2/a/io.bfq.weight --
default 300
-- v2/a/io.latency --
254:0 target=75000
`

const ioV1 = onlyV1 + `-- blkio/a/blkio.throttle.read_bps_device --
8:0 1048576
-- blkio/a/blkio.throttle.write_bps_device --
-- blkio/a/blkio.throttle.read_iops_device --
-- blkio/a/blkio.throttle.write_iops_device --
8:0 100
254:0 7
-- blkio/a/blkio.bfq.weight --
300
-- blkio/a/blkio.bfq.weight_device --
default 300
254:0 50
-- blkio/b/blkio.bfq.weight --
100
`

func TestIOIsReadInTheWordsOfV2(t *testing.T) {
	v2, v1 := fixture(t, ioV2), fixture(t, ioV1)
	limited := noIOLimits
	limited.ReadBPS, limited.WriteIOPS = 1048576, 100
	other := noIOLimits
	other.WriteIOPS = 7
	for name, c := range map[string]struct {
		tree *Tree
		max  map[unit.Device]IOLimits
		bfq  IOWeight
	}{
		"v2": {v2, map[unit.Device]IOLimits{sda: limited}, IOWeight{300, map[unit.Device]int64{}}},
		"v1": {v1, map[unit.Device]IOLimits{sda: limited, vda: other}, IOWeight{300, map[unit.Device]int64{vda: 50}}},
	} {
		got, err := c.tree.ReadIOMax("a")
		if diff := cmp.Diff(c.max, got); diff != "" || err != nil {
			t.Errorf("%s limits: %v\n%s", name, err, diff)
		}
		bfq, err := c.tree.ReadIOWeight(BFQ, "a")
		if diff := cmp.Diff(c.bfq, bfq); diff != "" || err != nil {
			t.Errorf("%s weights of bfq: %v\n%s", name, err, diff)
		}
	}
	weight, err := v2.ReadIOWeight(IOCost, "a")
	if diff := cmp.Diff(IOWeight{100, map[unit.Device]int64{sda: 50}}, weight); diff != "" || err != nil {
		t.Errorf("weights of iocost: %v\n%s", err, diff)
	}
	targets, err := v2.ReadIOLatency("a")
	if diff := cmp.Diff(map[unit.Device]time.Duration{vda: 75 * time.Millisecond}, targets); diff != "" || err != nil {
		t.Errorf("targets: %v\n%s", err, diff)
	}
	on, err := v2.IOCostDevices()
	if err != nil || !on[sda] || on[vda] {
		t.Errorf("iocost is on for %v, %v", on, err)
	}
	if w, err := v1.ReadIOWeight(BFQ, "b"); err != nil || w.Default != 100 || len(w.Devices) != 0 {
		t.Errorf("a kernel without weights of devices: %+v, %v", w, err)
	}
	for name, err := range map[string]error{
		"weights of iocost on v1": errorOf(v1.ReadIOWeight(IOCost, "a")),
		"targets on v1":           errorOf(v1.ReadIOLatency("a")),
		"limits of v2's root":     errorOf(v2.ReadIOMax("")),
	} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
}

func errorOf(_ any, err error) error { return err }

func TestIOWritesOnlyWhatDiffers(t *testing.T) {
	limited := noIOLimits
	limited.ReadBPS, limited.WriteIOPS = 1048576, 100
	t.Run("v2", func(t *testing.T) {
		tree := fixture(t, ioV2)
		same := map[unit.Device]IOLimits{sda: limited, vda: noIOLimits}
		before := content(t, tree, block, "a", "io.max")
		if err := tree.WriteIOMax("a", same); err != nil || content(t, tree, block, "a", "io.max") != before {
			t.Errorf("unchanged limits were written: %v", err)
		}
		if err := tree.WriteIOMax("a", nil); err != nil {
			t.Fatal(err)
		}
		if got := content(t, tree, block, "a", "io.max"); got != "8:0 rbps=max wbps=max riops=max wiops=max" {
			t.Errorf("limits are removed by %q", got)
		}
		if err := tree.WriteIOWeight(IOCost, "a", IOWeight{Default: 100}); err != nil {
			t.Fatal(err)
		}
		if got := content(t, tree, block, "a", "io.weight"); got != "8:0 default" {
			t.Errorf("a weight is removed by %q", got)
		}
		if err := tree.WriteIOLatency("a", nil); err != nil {
			t.Fatal(err)
		}
		if got := content(t, tree, block, "a", "io.latency"); got != "254:0 target=0" {
			t.Errorf("a target is removed by %q", got)
		}
	})
	t.Run("v1", func(t *testing.T) {
		tree := fixture(t, ioV1)
		limited.ReadBPS, limited.WriteIOPS = 5, 1<<33
		if err := tree.WriteIOMax("a", map[unit.Device]IOLimits{sda: limited, vda: {NoIORate, NoIORate, NoIORate, 7}}); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{
			"blkio.throttle.read_bps_device": "8:0 5", "blkio.throttle.write_bps_device": "",
			// The kernel truncates the number to 32 bits. In the worst case the
			// result is a limit of 0.
			"blkio.throttle.write_iops_device": "8:0 0",
		} {
			if got := content(t, tree, block, "a", file); got != want {
				t.Errorf("%s is %q, want %q", file, got, want)
			}
		}
	})
}

// TestIOLimitsOfThisKernel sets limits on a device of this machine. The group
// that has the limits has no processes.
func TestIOLimitsOfThisKernel(t *testing.T) {
	tree, path := kernelGroup(t)
	if !tree.Has(block) {
		t.Skip("no controller for block I/O")
	}
	limits := noIOLimits
	limits.ReadBPS, limits.WriteIOPS = 1<<20, 100
	disk, err := aDisk()
	if err != nil {
		t.Skip(err)
	}
	want := map[unit.Device]IOLimits{disk: limits}
	if err := tree.WriteIOMax(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.ReadIOMax(path); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("wrote %v, reads %v, %v", want, got, err)
	}
	gone := unit.Device{Major: 4095, Minor: 1}
	err = tree.WriteIOMax(path, map[unit.Device]IOLimits{gone: limits})
	if !errors.Is(err, syscall.ENODEV) {
		t.Errorf("limits on a missing device: %v, want ENODEV", err)
	}
	if got, err := tree.ReadIOMax(path); err != nil || len(got) != 0 {
		t.Errorf("after the error, the limits of the present device: %v, %v; want none", got, err)
	}
}

// aDisk returns a whole disk of this machine.
func aDisk() (unit.Device, error) {
	names, err := os.ReadDir("/sys/block")
	if err != nil {
		return unit.Device{}, err
	}
	for _, n := range names {
		text, err := os.ReadFile("/sys/block/" + n.Name() + "/dev")
		if err == nil {
			return unit.ParseDevice(strings.TrimSpace(string(text)))
		}
	}
	return unit.Device{}, errors.New("this machine has no block device")
}

func FuzzParseIO(f *testing.F) {
	f.Add("254:0 rbps=1048576 wbps=max riops=max wiops=18446744073709551615\n")
	f.Add("default 100\n8:0 50\n")
	f.Add("254:0 target=75000\n")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseIOMax(text); err == nil {
			for d, l := range m {
				if min(l.ReadBPS, l.WriteBPS, l.ReadIOPS, l.WriteIOPS) < 0 {
					t.Errorf("%v: %+v", d, l)
				}
			}
		}
		if w, err := parseIOWeight(text); err == nil && w.Default < 0 {
			t.Errorf("%+v", w)
		}
		if m, err := parseIOLatency(text); err == nil {
			for d, target := range m {
				if target < 0 {
					t.Errorf("%v: %v", d, target)
				}
			}
		}
	})
}
