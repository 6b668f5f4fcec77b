package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

// link makes a symbolic link in a fixture, because sysfs consists mostly of
// links.
func link(t *testing.T, fs FS, target, name string) {
	t.Helper()
	name = filepath.Join(fs.Sys, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(fs.Sys, target), name); err != nil {
		t.Fatal(err)
	}
}

func TestAPartitionIsAPartOfItsDisk(t *testing.T) {
	fs := fixture(t, `
-- proc/partitions --
major minor  #blocks  name

   8        0  488386584 sda
   8        1     524288 sda1
 253        0   10485760 dm-0
-- sys/devices/pci/block/sda/dev --
8:0
-- sys/devices/pci/block/sda/queue/scheduler --
none mq-deadline [bfq]
-- sys/devices/pci/block/sda/sda1/dev --
8:1
-- sys/devices/pci/block/sda/sda1/partition --
1
-- sys/devices/virtual/block/dm-0/dev --
253:0
-- sys/devices/virtual/block/dm-0/dm/name --
vg0-data
`)
	link(t, fs, "devices/pci/block/sda", "class/block/sda")
	link(t, fs, "devices/pci/block/sda/sda1", "class/block/sda1")
	link(t, fs, "devices/virtual/block/dm-0", "class/block/dm-0")
	link(t, fs, "devices/pci/block/sda/sda1", "devices/virtual/block/dm-0/slaves/sda1")
	link(t, fs, "devices/pci/block/sda", "dev/block/8:0")

	all, err := fs.Partitions()
	want := []Partition{{unit.Device{Major: 8}, "sda", 488386584}, {unit.Device{Major: 8, Minor: 1}, "sda1", 524288}, {unit.Device{Major: 253}, "dm-0", 10485760}}
	if err != nil || !slices.Equal(all, want) {
		t.Fatalf("got %v, %v", all, err)
	}
	disk, part := unit.Device{Major: 8}, unit.Device{Major: 8, Minor: 1}
	for name, want := range map[string]BlockDevice{
		"sda":  {Disk: disk, Scheduler: "bfq"},
		"sda1": {Disk: disk, Scheduler: "bfq"},
		"dm-0": {Disk: unit.Device{Major: 253}, Mapped: "vg0-data", Below: []unit.Device{part}},
	} {
		got, err := fs.BlockDevice(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if !fs.HasDevice(disk) || fs.HasDevice(unit.Device{Major: 9, Minor: 9}) {
		t.Error("HasDevice is wrong for a present or an absent device")
	}
	for _, name := range []string{"sdb", "../sda", ""} {
		if d, err := fs.BlockDevice(name); err == nil {
			t.Errorf("device %q gives %+v, want an error", name, d)
		}
	}
}

func TestSchedulerIsTheOneInBrackets(t *testing.T) {
	for text, want := range map[string]string{"none [mq-deadline] kyber bfq\n": "mq-deadline", "[none] bfq": "none", "none\n": "none"} {
		if got, err := parseScheduler(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if got, err := parseScheduler("none bfq"); err == nil {
		t.Errorf("no brackets: %q", got)
	}
}

// TestEveryBlockDeviceOfThisMachineCanBeRead reads the devices of the running
// kernel.
func TestEveryBlockDeviceOfThisMachineCanBeRead(t *testing.T) {
	fs := Default()
	all, err := fs.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		d, err := fs.BlockDevice(p.Name)
		if err != nil || !fs.HasDevice(p.ID) || !fs.HasDevice(d.Disk) {
			t.Errorf("%+v: %+v, %v", p, d, err)
		}
	}
}

func FuzzParsePartitions(f *testing.F) {
	f.Add("major minor  #blocks  name\n\n 254        0  268435456 vda\n")
	f.Add(" 259 1 5 nvme0n1p1")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parsePartitions(text)
		for _, p := range all {
			if err != nil || p.Name == "" {
				t.Errorf("%+v with %v", p, err)
			}
		}
	})
}
