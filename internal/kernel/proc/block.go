package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// A Partition is a line of /proc/partitions: a whole disk or a partition, with
// its size.
type Partition struct {
	ID   unit.Device
	Name string
	KiB  uint64
}

// Partitions reads /proc/partitions (Documentation/filesystems/proc.rst), a
// small file. It changes whenever a device appears, disappears or grows. If some
// lines are damaged, it returns all other devices, and an error.
func (fs FS) Partitions() ([]Partition, error) {
	return procFile(fs, "partitions", parsePartitions)
}

// parsePartitions reads a heading, an empty line, and then one line for each
// device, such as " 254 0 268435456 vda".
func parsePartitions(text string) ([]Partition, error) {
	var all []Partition
	var errs []error
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "major" {
			continue
		}
		if len(f) != 4 {
			errs = append(errs, fmt.Errorf("line %q: want MAJOR MINOR BLOCKS NAME", strings.TrimSpace(line)))
			continue
		}
		id, err := unit.ParseDevice(f[0] + ":" + f[1])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		blocks, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %q: want a number of blocks", strings.TrimSpace(line)))
			continue
		}
		all = append(all, Partition{id, f[3], blocks})
	}
	return all, errors.Join(errs...)
}

// A BlockDevice is the description of a block device in sysfs.
type BlockDevice struct {
	// Disk is the disk to which a partition belongs. For any other device it is
	// the device itself.
	Disk unit.Device
	// Mapped is the device mapper's name for the device; empty for all others.
	Mapped string
	// Below lists the devices that hold this device's data, such as the disks
	// of a RAID.
	Below []unit.Device
	// Scheduler is the active I/O scheduler. It is empty for devices without
	// one, such as mapped devices.
	Scheduler string
}

// BlockDevice reads /sys/class/block/NAME (Documentation/ABI/stable/sysfs-block).
func (fs FS) BlockDevice(name string) (BlockDevice, error) {
	if !filepath.IsLocal(name) {
		return BlockDevice{}, fmt.Errorf("block device %q: want a name such as sda", name)
	}
	// Sysfs replaces the slash of names such as "cciss/c0d0" by "!".
	dir := filepath.Join(fs.Sys, "class/block", strings.ReplaceAll(name, "/", "!"))
	disk := dir
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return BlockDevice{}, err
		}
		disk = filepath.Dir(real)
	}
	var d BlockDevice
	var err error
	if d.Disk, err = parsed(filepath.Join(disk, "dev"), parseDevice); err != nil {
		return BlockDevice{}, err
	}
	if d.Mapped, err = emptyIfMissing(parsed(filepath.Join(dir, "dm/name"), word)); err != nil {
		return BlockDevice{}, err
	}
	if d.Scheduler, err = emptyIfMissing(parsed(filepath.Join(disk, "queue/scheduler"), parseScheduler)); err != nil {
		return BlockDevice{}, err
	}
	below, err := filepath.Glob(filepath.Join(dir, "slaves/*/dev"))
	if err != nil {
		return BlockDevice{}, err
	}
	for _, file := range below {
		id, err := parsed(file, parseDevice)
		if err != nil {
			return BlockDevice{}, err
		}
		d.Below = append(d.Below, id)
	}
	slices.SortFunc(d.Below, unit.Device.Compare)
	return d, nil
}

// HasDevice reports whether a block device with this number exists, even one of
// size 0 (/sys/dev/block/MAJOR:MINOR). If it cannot find out, it returns true.
func (fs FS) HasDevice(id unit.Device) bool {
	_, err := os.Lstat(filepath.Join(fs.Sys, "dev/block", id.String()))
	return !errors.Is(err, os.ErrNotExist)
}

// emptyIfMissing returns an empty text in place of the error of a missing file.
func emptyIfMissing(text string, err error) (string, error) {
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return text, err
}

func parseDevice(text string) (unit.Device, error) { return unit.ParseDevice(strings.TrimSpace(text)) }

// parseScheduler reads lines such as "none [mq-deadline] kyber bfq" or "none".
func parseScheduler(text string) (string, error) {
	words := strings.Fields(text)
	for _, w := range words {
		if name, on := strings.CutPrefix(w, "["); on {
			return strings.TrimSuffix(name, "]"), nil
		}
	}
	if len(words) == 1 {
		return words[0], nil
	}
	return "", fmt.Errorf("%q: want one scheduler in brackets", strings.TrimSpace(text))
}
