package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/journal"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// Snapshot reads the managed workloads; the knobs of their cgroup, of the
// cgroup where they meet others, and of all above these but the root; and the
// use of the node. What cannot be read is absent.
func (h *Host) Snapshot(ctx context.Context) (node.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return node.Snapshot{}, err
	}
	s := node.Snapshot{
		At:  time.Now(),
		Can: h.Capabilities(),
		Knobs: node.Knobs{
			Kernel: h.kernel(), Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
		},
	}
	var err error
	if s.Topology, err = h.topology(); err != nil {
		return node.Snapshot{}, fmt.Errorf("read the topology: %w", err)
	}
	h.readUsage(&s)
	if h.tree == nil {
		s.Workloads = h.managed()
		return s, nil
	}
	seen := map[node.CgroupPath]bool{"": true}
	for _, w := range h.managed() {
		w.Usage = h.usageOf(w.Cgroup)
		s.Workloads = append(s.Workloads, w)
		for _, from := range []node.CgroupPath{w.Cgroup, w.Meet} {
			for p := from; !seen[p]; p = p.Parent() {
				seen[p] = true
				for _, f := range node.Files {
					k := node.Knob{Cgroup: p, File: f}
					if v, err := h.readKnob(k); err == nil {
						s.Knobs.Now[k] = v
					}
				}
			}
		}
	}
	return s, h.readBefore(&s.Knobs)
}

// readBefore adds the journaled values of the knobs in sight. What another
// Tenon process that still lives has touched is that one's to release.
func (h *Host) readBefore(k *node.Knobs) error {
	state, err := h.journal.State()
	if err != nil {
		return err
	}
	for knob, t := range state.Touches {
		if _, inSight := k.Now[knob]; !inSight {
			continue
		}
		if t.By != h.journal.Session() && h.alive(journal.Process{PID: t.By.PID, Start: t.By.Start}) {
			continue
		}
		if inode, err := h.tree.Inode(string(knob.Cgroup)); err == nil && inode == t.Inode {
			k.Before[knob] = t.Before
		}
	}
	return nil
}

// topology numbers cores so that they are unique on the node.
func (h *Host) topology() (node.Topology, error) {
	cpus, err := h.fs.Topology()
	if err != nil {
		return node.Topology{}, err
	}
	var t node.Topology
	cores := map[[2]int]node.CoreID{}
	for _, c := range cpus {
		key := [2]int{c.Socket, c.CoreID}
		if _, known := cores[key]; !known {
			cores[key] = node.CoreID(len(cores))
		}
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: c.ID, Core: cores[key], L3: node.CacheID(c.L3), NUMA: node.NUMANode(c.NUMA), Socket: node.SocketID(c.Socket),
		})
	}
	return t, nil
}

// readUsage fills in the counters of the whole node.
func (h *Host) readUsage(s *node.Snapshot) {
	if stat, err := h.fs.Stat(); err == nil {
		s.Usage.CPU, s.Usage.Steal = node.Some(stat.All.Busy()), node.Some(stat.All.Steal)
		s.Busy = map[unit.CPU]time.Duration{}
		for id, t := range stat.PerCPU {
			s.Busy[id] = t.Busy()
		}
	}
	if m, err := h.fs.MemInfo(); err == nil {
		s.Usage.Memory = node.Some(m.Total - m.Available)
	}
	if h.tree == nil {
		return
	}
	// Many kernels sample /proc/stat at the tick; cgroups count exactly.
	if root, err := h.tree.CPUStat(""); err == nil {
		s.Usage.CPU = node.Some(root.Usage)
	}
	if exact := h.usagePerCPU(); len(exact) > 0 {
		s.Busy = exact
	}
}

// usagePerCPU reads cpuacct.usage_percpu of the v1 root: nanoseconds of every
// possible CPU. v2 has no such file.
func (h *Host) usagePerCPU() map[unit.CPU]time.Duration {
	if h.tree.VersionOf("cpuacct") != 1 {
		return nil
	}
	dir, err := h.tree.Dir("cpuacct", "")
	if err != nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage_percpu"))
	if err != nil {
		return nil
	}
	return parseUsagePerCPU(string(text))
}

func parseUsagePerCPU(text string) map[unit.CPU]time.Duration {
	busy := map[unit.CPU]time.Duration{}
	for i, word := range strings.Fields(text) {
		ns, err := strconv.ParseInt(word, 10, 64)
		if err != nil || ns < 0 {
			return nil
		}
		busy[unit.CPU(i)] = time.Duration(ns)
	}
	return busy
}

// usageOf reads the counters of one cgroup.
func (h *Host) usageOf(p node.CgroupPath) node.Usage {
	var u node.Usage
	if c, err := h.tree.CPUStat(string(p)); err == nil {
		u.CPU, u.Throttled = node.Some(c.Usage), node.Some(c.Throttled)
	}
	if m, err := h.tree.MemoryCurrent(string(p)); err == nil {
		u.Memory = node.Some(m)
	}
	return u
}
