package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// Snapshot reads the managed workloads and the use of the node. It reads the
// knobs of these cgroups: the cgroup and the contention root of each workload,
// and all cgroups above them except the root. (The contention root competes
// with other classes.) A value that cannot be read is absent.
func (h *Host) Snapshot(ctx context.Context) (node.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return node.Snapshot{}, err
	}
	s := node.Snapshot{
		At: h.now(),
		Knobs: node.Knobs{
			Kernel: h.Kernel(), Now: make(map[node.Knob]node.Value, h.shown.room()), Before: map[node.Knob]node.Value{},
		},
	}
	var err error
	if s.Topology, err = h.topology.Read(h.now()); err != nil {
		return node.Snapshot{}, fmt.Errorf("read the topology: %w", err)
	}
	s.Capabilities = capabilitiesOf(h, s.Topology)
	scarce := h.counters.Node(&s)
	if h.tree == nil {
		s.Workloads = slices.Clone(h.listManaged())
		return s, nil
	}
	h.isolation.Exempt().EndOver(s.At)
	isolation.Begin(h.isolation)
	managed := h.listManaged()
	s.Workloads = make([]node.Workload, 0, len(managed))
	h.counters.Workloads(s.At, managed, scarce, func(w *node.Workload, u *node.Usage, gone bool) {
		if gone && h.cache != nil {
			return
		}
		s.Workloads = append(s.Workloads, *w)
		at := &s.Workloads[len(s.Workloads)-1]
		at.Usage, at.Ending = *u, h.isolation.Exempt().Ending(w.Cgroup)
		at.Usage.Reclaim = h.reclaims.Of(w.ID)
	})
	h.reclaims.Keep(s.Workloads)
	h.counters.FillSlow(&s, scarce)
	touches, err := h.changes.ReleasableKnobs()
	if err != nil {
		return s, err
	}
	h.shown.fill(h, &s, managed, h.marks.HideIdle(touches))
	h.delays.Fill(&s, h.inode)
	h.counters.FillWaits(&s)
	h.counters.FillThreads(&s)
	return s, nil
}

// inode returns the inode of a cgroup, from the cache if the host has one.
func (h *Host) inode(p node.CgroupPath) (uint64, error) {
	if h.cache != nil {
		if inode, known := h.cache.inode(p); known {
			return inode, nil
		}
	}
	return h.tree.Inode(string(p))
}

// Concerns reports whether any of the given cgroups is in or below the cgroup
// of a workload, or of a knob that Tenon has changed. If not, Sweep need not be
// called when these cgroups come or go.
func Concerns(h *Host, paths []string) (bool, error) {
	touches, err := h.changes.ReleasableKnobs()
	if err != nil || len(paths) == 0 {
		return false, err
	}
	ours := make(map[node.CgroupPath]bool, len(touches))
	for k := range touches {
		ours[k.Cgroup] = true
	}
	for _, w := range h.listManaged() {
		ours[w.Cgroup] = true
	}
	for _, path := range paths {
		for p := node.CgroupPath(path); p != ""; p = p.Parent() {
			if ours[p] {
				return true, nil
			}
		}
	}
	return false, nil
}

// Sweep tells a resident host that cgroups appeared or disappeared. groups
// lists all cgroups that exist now, sorted. The host compares the inode of each
// cached cgroup with the present one, finds renamed cgroups, and forgets its
// changes in cgroups that are gone. It journals which values new cgroups copied
// from their parents (change.Knobs.AdoptBorn). If it returns true, the caller
// should call it again soon.
func (h *Host) Sweep(groups []string) (again bool, err error) {
	h.mu.Lock()
	h.swept = groups
	h.mu.Unlock()
	h.cache.expire()
	isolation.CgroupsChanged(h.isolation)
	touches, inodes, err := h.changes.FollowAndList(groups)
	if err != nil || h.tree == nil {
		return false, err
	}
	type found struct {
		inode uint64
		err   error
	}
	at := make(map[node.CgroupPath]found, len(inodes)) // avoids a second look at a cgroup with several knobs
	for p, inode := range inodes {
		at[p] = found{inode: inode}
	}
	var gone []node.Knob
	hidden := map[node.CgroupPath]bool{}
	for k, t := range touches {
		f, looked := at[k.Cgroup]
		if !looked || k.ControlGroup != "" {
			f.inode, f.err = h.changes.Inode(k)
		}
		if k.ControlGroup == "" {
			at[k.Cgroup] = f
		}
		if !errors.Is(f.err, cgroup.ErrGone) && (f.err != nil || f.inode == t.Inode) {
			continue
		}
		may, known := hidden[k.Cgroup]
		if !known {
			may = change.MayBeHidden(h.changes, k.Cgroup)
			hidden[k.Cgroup] = may
		}
		if !may {
			gone = append(gone, k)
		}
	}
	err = change.ManyKnobs{Knobs: h.changes}.Forget(gone)
	again, bornErr := h.changes.AdoptBorn(groups)
	return again, errors.Join(err, bornErr, h.isolation.Scheduler().SweepOrders())
}

// knobOrNil reads a knob. It returns nil if the knob cannot be read.
func (h *Host) knobOrNil(k node.Knob) node.Value {
	if k.File == node.FileRun {
		return h.runs.shownValue(string(k.Cgroup))
	}
	v, err := h.changes.Read(k)
	if err != nil {
		return nil
	}
	return v
}
