package sim

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// readKnob reads the files of a composite knob in cgroup v2 words.
func (n *Node) readKnob(p node.CgroupPath, f node.File) (node.Value, error) {
	g := n.groups[p]
	bytes := func(file string) unit.Bytes {
		if v := unit.Bytes(g.number(file)); v < noLimitV1 {
			return v
		}
		return unit.MaxBytes
	}
	switch f {
	case node.FileCPUWeight:
		switch {
		case g.files["cpu.idle"] == "1":
			return node.CPUWeight{Idle: true}, nil
		case n.version == 1:
			return node.CPUWeight{Weight: unit.WeightOfShares(g.number("cpu.shares"))}, nil
		}
		return node.CPUWeight{Weight: unit.WeightOf(g.number("cpu.weight"))}, nil
	case node.FileCPUMax:
		quota, period := g.bandwidth(n.version)
		v := node.CPUMax{Quota: node.NoQuota, Period: time.Duration(period) * time.Microsecond}
		if quota >= 0 {
			v.Quota = time.Duration(quota) * time.Microsecond
		}
		v.Burst = time.Duration(g.number("cpu.cfs_burst_us")+g.number("cpu.max.burst")) * time.Microsecond
		return v, nil
	case node.FileCPUs, node.FileMems:
		return node.CPUs{Set: g.set(string(f))}, nil
	case node.FileMemory:
		if n.version == 1 {
			return node.Memory{High: unit.MaxBytes, Max: bytes("memory.limit_in_bytes")}, nil
		}
		return node.Memory{
			Min: bytes("memory.min"), Low: bytes("memory.low"), High: bytes("memory.high"), Max: bytes("memory.max"),
		}, nil
	case node.FilePIDs:
		return node.PIDs{Max: g.number("pids.max")}, nil
	case node.FileIOMax, node.FileIOWeight, node.FileBFQWeight, node.FileIOLatency:
		return n.readIO(g, f)
	case node.FileRun:
		if n.toldToFreeze(p) {
			return node.Frozen, nil
		}
		return node.Running, nil
	case node.FileIdentity, node.FilePolicy, node.FileCookie, node.FileSlice:
		return n.readIsolation(node.Knob{Cgroup: p, File: f})
	}
	return nil, fmt.Errorf("unknown knob %q: want one of %v", f, node.Files)
}

// writeKnob writes the files of a composite knob, in an order that the kernel
// takes whatever stood there before.
func (n *Node) writeKnob(k node.Knob, v node.Value) error {
	files, err := n.filesOf(k, v)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := n.write(k.Cgroup, f[0], f[1]); err != nil {
			return err
		}
	}
	return nil
}

// filesOf lists the files to write and their texts.
func (n *Node) filesOf(k node.Knob, v node.Value) ([][2]string, error) {
	micro := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	switch v := v.(type) {
	case node.CPUWeight:
		if v.Idle {
			return [][2]string{{"cpu.idle", "1"}}, nil
		}
		weight := [2]string{"cpu.weight", strconv.FormatInt(v.Weight.V2(), 10)}
		if n.version == 1 {
			weight = [2]string{"cpu.shares", strconv.FormatInt(v.Weight.Shares(), 10)}
		}
		if n.groups[k.Cgroup].files["cpu.idle"] == "1" {
			return [][2]string{{"cpu.idle", "0"}, weight}, nil
		}
		return [][2]string{weight}, nil
	case node.CPUMax:
		quota := "-1"
		if v.Quota != node.NoQuota {
			quota = micro(v.Quota)
		}
		if n.version == 1 {
			return [][2]string{
				{"cpu.cfs_burst_us", "0"}, {"cpu.cfs_quota_us", "-1"},
				{"cpu.cfs_period_us", micro(v.Period)}, {"cpu.cfs_quota_us", quota}, {"cpu.cfs_burst_us", micro(v.Burst)},
			}, nil
		}
		if quota == "-1" {
			quota = "max"
		}
		return [][2]string{{"cpu.max.burst", "0"}, {"cpu.max", quota + " " + micro(v.Period)}, {"cpu.max.burst", micro(v.Burst)}}, nil
	case node.CPUs:
		return [][2]string{{string(k.File), v.String()}}, nil
	case node.Run:
		return n.runFiles(v)
	case node.PIDs:
		return [][2]string{{"pids.max", v.String()}}, nil
	case node.IOMax, node.IOWeight, node.IOLatency:
		return n.filesOfIO(k, v), nil
	case node.Memory:
		if n.version == 2 {
			return [][2]string{
				{"memory.min", v.Min.String()}, {"memory.low", v.Low.String()},
				{"memory.high", v.High.String()}, {"memory.max", v.Max.String()},
			}, nil
		}
		if v.Min != 0 || v.Low != 0 || v.High != unit.MaxBytes {
			return nil, fmt.Errorf("cgroup v1 has no memory.min, low and high: %w", syscall.ENOENT)
		}
		limit := "-1"
		if v.Max != unit.MaxBytes {
			limit = v.Max.String()
		}
		return [][2]string{{"memory.limit_in_bytes", limit}}, nil
	}
	return nil, fmt.Errorf("cannot write a value of type %T", v)
}
