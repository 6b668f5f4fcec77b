package capability

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// ioFiles are the cgroup files that show which features of block I/O exist.
var ioFiles = []cgroupFile{
	{node.FeatureIOMax, "io", "blkio.throttle.read_bps_device", "io.max"},
	{node.FeatureIOWeight, "io", "", "io.weight"},
	{node.FeatureBFQWeight, "io", "blkio.bfq.weight", "io.bfq.weight"},
	{node.FeatureIOLatency, "io", "", "io.latency"},
}

// probeIO probes the knobs of block I/O. If the file of a weight exists, it can
// be written. But the weight has an effect only on devices whose scheduler or
// controller uses it, so the answer names these devices.
func (p prober) probeIO(can node.Capabilities) {
	for _, f := range ioFiles {
		can[f.mechanism] = p.probeFile(f)
	}
	devices := p.Devices.List()
	for mechanism, file := range map[node.Feature]node.File{node.FeatureIOWeight: node.FileIOWeight, node.FeatureBFQWeight: node.FileBFQWeight} {
		a := can[mechanism]
		if a.Verdict != node.Yes {
			continue
		}
		var acts []string
		for _, d := range devices {
			if d.Weighs == file && d.Disk == d.ID {
				acts = append(acts, d.Name)
			}
		}
		slices.Sort(acts)
		a.Why += map[node.File]string{
			node.FileIOWeight:  "; the root's io.cost.qos enables iocost for ",
			node.FileBFQWeight: "; the scheduler bfq is on for ",
		}[file]
		if len(acts) == 0 {
			a.Why += "no device, so weights act on none"
		}
		a.Why += strings.Join(acts, ", ")
		can[mechanism] = a
	}
}
