package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// Snapshot reads the managed workloads; the knobs of their cgroup, of their
// contention root, and of all cgroups above these but the root; and the use of
// the node. Values that cannot be read are absent.
func (h *Host) Snapshot(ctx context.Context) (node.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return node.Snapshot{}, err
	}
	s := node.Snapshot{
		At:           h.now(),
		Capabilities: h.can(), // shared, never changed
		Knobs: node.Knobs{
			Kernel: h.Kernel(), Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
		},
	}
	var err error
	if s.Topology, err = h.topology.Read(h.now()); err != nil {
		return node.Snapshot{}, fmt.Errorf("read the topology: %w", err)
	}
	scarce := h.counters.Node(&s)
	if h.tree == nil {
		s.Workloads = slices.Clone(h.managed())
		return s, nil
	}
	h.isolation.Exempt().EndOver(s.At)
	managed := h.managed()
	s.Workloads = make([]node.Workload, 0, len(managed))
	for _, w := range managed {
		var gone bool
		if w.Usage, gone = h.counters.Workload(w); gone && h.cache != nil {
			continue
		}
		w.Ending = h.isolation.Exempt().Ending(w.Cgroup)
		s.Workloads = append(s.Workloads, w)
	}
	h.counters.FillSlow(&s, scarce)
	touches, err := h.changes.Own()
	if err != nil {
		return s, err
	}
	h.marks.HideIdle(touches)
	groups := append(shownCgroups(s.Workloads), h.below(s.Workloads)...)
	if h.cache == nil {
		for _, p := range groups {
			for _, f := range slices.Concat(node.Files, h.blocks.Shown()) {
				k := node.Knob{Cgroup: p, File: f}
				if v := h.knobOrNil(k); v != nil {
					s.Knobs.Now[k] = v
				}
			}
		}
		for _, k := range runKnobs(s.Workloads) {
			if v := h.knobOrNil(k); v != nil {
				s.Knobs.Now[k] = v
			}
		}
	} else {
		touched := slices.DeleteFunc(slices.Collect(maps.Keys(touches)), func(k node.Knob) bool { return cachectl.Has(k) || isolation.Has(k) })
		for _, k := range touched {
			groups = append(groups, k.Cgroup)
		}
		if h.cache.showsRuns() {
			touched = append(touched, runKnobs(s.Workloads)...)
		}
		slices.Sort(groups)
		s.Knobs.Now = h.cache.read(s.At, slices.Compact(groups), touched)
	}
	h.controls.Fill(&s, touches)
	h.isolation.Fill(&s, touches)
	if len(h.blocks.Shown()) > 0 {
		s.Devices = h.blocks.List()
	}
	for k, t := range touches {
		if _, known := s.Knobs.Now[k]; !known {
			continue
		}
		inodeOf := h.changes.Inode
		if k.ControlGroup == "" {
			inodeOf = func(k node.Knob) (uint64, error) { return h.inode(k.Cgroup) }
		}
		if inode, err := inodeOf(k); err == nil && inode == t.Inode {
			s.Knobs.Before[k] = h.blocks.Possible(k, t.Before)
		}
	}
	h.delays.Fill(&s, h.inode)
	h.counters.FillWaits(&s)
	return s, nil
}

// inode returns the inode of a cgroup; a resident host uses its cache.
func (h *Host) inode(p node.CgroupPath) (uint64, error) {
	if h.cache != nil {
		if inode, known := h.cache.inode(p); known {
			return inode, nil
		}
	}
	return h.tree.Inode(string(p))
}

// shownCgroups lists the cgroups of the workloads and of their containers, and all
// above them but the root.
func shownCgroups(workloads []node.Workload) []node.CgroupPath {
	var groups []node.CgroupPath
	seen := map[node.CgroupPath]bool{"": true}
	show := func(from node.CgroupPath) {
		for p := from; !seen[p]; p = p.Parent() {
			seen[p] = true
			groups = append(groups, p)
		}
	}
	for _, w := range workloads {
		show(w.Cgroup)
		show(w.ContentionRoot)
		for _, part := range w.Containers {
			show(part.Cgroup)
		}
	}
	return groups
}

// below lists the cgroups inside best-effort workloads on cgroup v1, where a
// parent's limit may not be below its children's: a policy that bounds such
// work must see and change them all. If some work has exclusive CPUs, the same
// holds for latency-sensitive work.
func (h *Host) below(workloads []node.Workload) []node.CgroupPath {
	if h.tree.Version() != 1 {
		return nil
	}
	list := func() []node.CgroupPath {
		var all []node.CgroupPath
		own := slices.ContainsFunc(workloads, func(w node.Workload) bool { return w.Class == node.LSE || w.Class == node.LSR })
		for _, w := range workloads {
			if w.Class == node.BE || own && w.Class.Sensitive() {
				all = subtree.Cgroups(h.tree, all, w.Cgroup)
			}
		}
		return all
	}
	if h.cache != nil {
		return h.cache.inside(list)
	}
	return list()
}

// Sweep notifies a resident host that cgroups appeared or disappeared; groups
// are all cgroups, sorted. The host compares the inode of each cached cgroup,
// follows renamed cgroups, forgets its changes in cgroups that are gone, and
// journals what new cgroups have copied from their parents
// (change.Knobs.AdoptBorn). It reports whether to call it again soon.
func (h *Host) Sweep(groups []string) (again bool, err error) {
	h.cache.expire()
	h.isolation.Expire()
	touches, err := h.changes.OwnFollowed(groups)
	if err != nil || h.tree == nil {
		return false, err
	}
	var errs []error
	for k, t := range touches {
		inode, err := h.changes.Inode(k)
		if errors.Is(err, cgroup.ErrGone) || (err == nil && inode != t.Inode) {
			errs = append(errs, h.changes.Forget(k))
		}
	}
	again, err = h.changes.AdoptBorn(groups)
	return again, errors.Join(append(errs, err, h.isolation.Scheduler().SweepOrders())...)
}

// knobOrNil reads a knob; nil if it cannot be read.
func (h *Host) knobOrNil(k node.Knob) node.Value {
	if k.File == node.FileRun {
		return h.runs.shown(string(k.Cgroup))
	}
	v, err := h.changes.Read(k)
	if err != nil {
		return nil
	}
	return v
}
