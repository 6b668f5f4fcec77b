package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// A target is a device of which the kernel counts the I/O.
type target struct {
	id     unit.Device
	name   string
	weighs node.File
}

// targetsOf returns the devices that a block names, or why there are none. A
// partition stands for its whole disk, since the kernel refuses partitions; and
// a volume group for the disks on which it lies, since all its volumes use them.
func targetsOf(b BlockIO, devices []node.BlockDevice) (targets []target, why []string) {
	if len(devices) == 0 {
		return nil, []string{"which block devices there are is unknown"}
	}
	var found []unit.Device
	for _, d := range devices {
		switch {
		case b.VolumeGroup && inVolumeGroup(d, b.Name):
			found = disksBelow(found, d, devices, len(devices))
		case !b.VolumeGroup && isNamed(d, b.Name):
			found = append(found, d.Disk)
		}
	}
	slices.SortFunc(found, unit.Device.Compare)
	for _, id := range slices.Compact(found) {
		t := target{id: id, name: id.String()}
		if i := slices.IndexFunc(devices, func(d node.BlockDevice) bool { return d.ID == id }); i >= 0 {
			t.name, t.weighs = devices[i].Name, devices[i].Weighs
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

// isNamed reports whether a device has the given name, in one of the ways in
// which a device may be named.
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

// inVolumeGroup reports whether d is a volume of a group of LVM.
func inVolumeGroup(d node.BlockDevice, group string) bool {
	volume, of := strings.CutPrefix(d.Mapped, mapperName(strings.TrimPrefix(group, "/dev/"))+"-")
	return of && !strings.HasPrefix(volume, "-")
}

// mapperName is how device mapper spells a part of the name of a volume, where
// a single dash parts the group from the volume.
func mapperName(part string) string { return strings.ReplaceAll(part, "-", "--") }

// disksBelow appends the whole disks on which d lies, at most depth layers down.
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

// limitedGroups returns the cgroups that limits of the class go into, sorted,
// and how many of them share these. On cgroup v1, where the groups inside a
// workload each have to be bounded, those with tasks are as a rule the ones
// without further groups: these share.
func (x *ioClass) limitedGroups() ([]node.CgroupPath, int) {
	if x.snap.Knobs.Kernel.CgroupVersion != 1 {
		return x.meets, len(x.meets)
	}
	own := map[node.CgroupPath]bool{}
	for i, w := range x.snap.Workloads {
		if x.of[i] != "" {
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

// partOf is the nth part of limits.
func partOf(l node.IOLimits, n int) node.IOLimits {
	for _, v := range []*int64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS} {
		if *v != node.NoIORate {
			*v = max(*v/int64(max(n, 1)), 1)
		}
	}
	return l
}

// kept is the lines from before Tenon that are still there: the kernel drops
// those of a device that goes.
func kept[T any](before, now map[unit.Device]T) map[unit.Device]T {
	maps.DeleteFunc(before, func(d unit.Device, _ T) bool { _, still := now[d]; return !still })
	return before
}

func sortedDevices[T any](m map[unit.Device]T) []unit.Device {
	return slices.SortedFunc(maps.Keys(m), unit.Device.Compare)
}
