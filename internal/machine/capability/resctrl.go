package capability

import (
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"

	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/model/node"
)

// probeResctrl answers whether L3 caches and memory bandwidth can be divided
// (Documentation/filesystems/resctrl.rst). It looks at the mounted file system
// or, if there is none, at the processor and the kernel.
func (p prober) probeResctrl(can node.Capabilities) {
	fs, err := p.Controls.Mounted()
	if err != nil {
		can[node.FeatureResctrlL3] = p.couldDivide("cat_l3", err)
		can[node.FeatureResctrlMB] = p.couldDivide("mba", err)
		return
	}
	info, err := fs.Info()
	ask := func(divisible bool, resource, how string) node.Answer {
		switch {
		case err != nil:
			return unknown("%v", err)
		case !divisible:
			return no("%s does not exist in the mounted resctrl", filepath.Join(fs.Root, "info", resource))
		case info.Groups < 2:
			return no("%s: the hardware keeps %s apart (CLOSIDs), the default one, so nothing can be given to another", fs.Root, count(info.Groups, "control group", "control groups"))
		}
		return yes("%s: %s, %s (CLOSIDs)", fs.Root, how, count(info.Groups, "control group", "control groups"))
	}
	ways := count(bits.OnesCount64(info.L3.Mask), "way", "ways")
	if info.L3.Apart {
		ways += " for code and for data"
	}
	unit := map[node.BandwidthUnit]string{
		node.BandwidthPercent: "in percent", node.BandwidthEighths: "in eighths of GB/s", node.BandwidthMegabytes: "in MB/s",
	}[cachectl.BandwidthRule(info.MB).Unit]
	if info.MB.PerCore {
		unit += " (a limit holds for a whole core: BE gets all unless isolation keeps it off the siblings of LS)"
	}
	can[node.FeatureResctrlL3] = ask(info.L3.Mask != 0, resctrl.L3, ways)
	can[node.FeatureResctrlMB] = ask(info.MB.Divisible, resctrl.MB, unit)
}

// couldDivide answers whether the kernel and the hardware could divide a resource
// if resctrl were mounted. flag is the resource's name in /proc/cpuinfo.
func (p prober) couldDivide(flag string, notMounted error) node.Answer {
	if !errors.Is(notMounted, resctrl.ErrNotMounted) {
		return unknown("%v", notMounted)
	}
	filesystems, err := os.ReadFile(filepath.Join(p.FS.Proc, "filesystems"))
	if err != nil {
		return unknown("%v", err)
	}
	if !hasLine(filesystems, "resctrl") {
		return no("/proc/filesystems does not list resctrl")
	}
	info, err := p.FS.CPUInfo()
	switch {
	case err != nil:
		return unknown("%v", err)
	case runtime.GOARCH == "amd64" && !info.Has(flag):
		return no("/proc/cpuinfo does not list %s", flag)
	}
	return unknown("the kernel has resctrl, and whether it divides this shows once it is mounted: %s", cachectl.MountCommand)
}
