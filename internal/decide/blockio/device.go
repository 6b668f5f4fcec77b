package blockio

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Target is a device whose I/O the kernel can limit.
type Target struct {
	ID     unit.Device
	Name   string
	weighs node.File
}

// Targets returns the devices with the name in b, or the reasons why there are
// none. The kernel refuses partitions, so Targets replaces a partition by its
// whole disk. It replaces a volume group by the disks on which it lies, because
// all volumes of the group use these disks.
func Targets(b Device, devices []node.BlockDevice) (targets []Target, why []string) {
	if len(devices) == 0 {
		return nil, []string{"the list of block devices is unknown"}
	}
	var found []unit.Device
	for _, d := range devices {
		switch {
		case b.VolumeGroup && isInVolumeGroup(d, b.Name):
			found = disksBelow(found, d, devices, len(devices))
		case !b.VolumeGroup && isNamed(d, b.Name):
			found = append(found, d.Disk)
		}
	}
	slices.SortFunc(found, unit.Device.Compare)
	for _, id := range slices.Compact(found) {
		t := Target{ID: id, Name: id.String()}
		if i := slices.IndexFunc(devices, func(d node.BlockDevice) bool { return d.ID == id }); i >= 0 {
			t.Name, t.weighs = devices[i].Name, devices[i].Weighs
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		kind := "block device"
		if b.VolumeGroup {
			kind = "volume group"
		}
		return nil, []string{fmt.Sprintf("there is no %s %s", kind, b.Name)}
	}
	return targets, nil
}

// isNamed reports whether the device has this name. A name can be the number of
// the device, its name in /dev, or its name in the device mapper. An LVM volume
// can also be named GROUP/VOLUME.
func isNamed(d node.BlockDevice, name string) bool {
	if name == d.ID.String() {
		return true
	}
	name = strings.TrimPrefix(name, "/dev/")
	if name == d.Name {
		return true
	}
	if d.Mapped == "" {
		return false
	}
	group, volume, of := strings.Cut(name, "/")
	return name == "mapper/"+d.Mapped || of && mapperName(group)+"-"+mapperName(volume) == d.Mapped
}

// isInVolumeGroup reports whether d is a volume of the given LVM volume group.
func isInVolumeGroup(d node.BlockDevice, group string) bool {
	volume, of := strings.CutPrefix(d.Mapped, mapperName(strings.TrimPrefix(group, "/dev/"))+"-")
	return of && !strings.HasPrefix(volume, "-")
}

// mapperName returns the name of a volume group or a volume in the spelling of
// the device mapper. A single dash separates the two names, so the device
// mapper doubles each dash inside a name.
func mapperName(part string) string { return strings.ReplaceAll(part, "-", "--") }

// disksBelow appends the whole disks on which d lies. It descends through at
// most depth layers of devices.
func disksBelow(all []unit.Device, d node.BlockDevice, devices []node.BlockDevice, depth int) []unit.Device {
	if len(d.Below) == 0 || depth == 0 {
		return append(all, d.Disk)
	}
	for _, id := range d.Below {
		if i := slices.IndexFunc(devices, func(o node.BlockDevice) bool { return o.ID == id }); i >= 0 {
			all = disksBelow(all, devices[i], devices, depth-1)
		} else {
			all = append(all, id)
		}
	}
	return all
}

// limitedGroups returns the cgroups that get the limits of the class, sorted,
// and the number of cgroups among which the limits are divided. On cgroup v1
// each cgroup inside a workload needs a limit. But usually only the innermost
// cgroups have tasks, so the limits are divided by the number of innermost
// cgroups.
func (x *ioClass) limitedGroups() ([]node.CgroupPath, int) {
	if x.snap.Knobs.Kernel.CgroupVersion != 1 {
		return x.Roots, len(x.Roots)
	}
	own := map[node.CgroupPath]bool{}
	for i, w := range x.snap.Workloads {
		if x.RootOf[i] != "" {
			own[w.Cgroup] = true
		}
	}
	within := maps.Clone(own)
	for k := range x.snap.Knobs.Now {
		for p := k.Cgroup; k.File == node.FileIOMax && p != ""; p = p.Parent() {
			if own[p] {
				within[k.Cgroup] = true
				break
			}
		}
	}
	groups := slices.Sorted(maps.Keys(within))
	inner := map[node.CgroupPath]bool{}
	for _, p := range groups {
		if up := p.Parent(); within[up] {
			inner[up] = true
		}
	}
	return groups, len(groups) - len(inner)
}

// partOf divides limits by n.
func partOf(l node.IOLimits, n int) node.IOLimits {
	for _, v := range []*int64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS} {
		if *v != node.NoIORate {
			*v = max(*v/int64(max(n, 1)), 1)
		}
	}
	return l
}

// existingLines takes the lines of a knob from before Tenon's first write, and
// drops the lines of removed devices, as the kernel does. A device that still
// exists has a line now.
func existingLines[T any](before, now map[unit.Device]T) map[unit.Device]T {
	maps.DeleteFunc(before, func(d unit.Device, _ T) bool { _, still := now[d]; return !still })
	return before
}

func sortedDevices[T any](m map[unit.Device]T) []unit.Device {
	return slices.SortedFunc(maps.Keys(m), unit.Device.Compare)
}
