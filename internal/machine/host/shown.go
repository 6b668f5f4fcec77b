package host

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// fill adds the knobs of the managed workloads to a snapshot. touches holds the
// knobs that Tenon has changed. With thousands of cgroups, new maps would be
// most of the cost. So snapshots share maps as long as nothing changes.
func (x *shownKnobs) fill(h *Host, s *node.Snapshot, managed []node.Workload, touches map[node.Knob]journal.Touch) {
	var cached map[node.Knob]node.Value
	if h.cache == nil {
		show := func(k node.Knob) {
			if v := h.knobOrNil(k); v != nil {
				s.Knobs.Now[k] = v
			}
		}
		for _, p := range append(shownCgroups(s.Workloads), h.innerCgroups(s.Workloads)...) {
			for _, f := range x.files() {
				show(node.Knob{Cgroup: p, File: f})
			}
		}
		for _, k := range runKnobs(s.Workloads) {
			show(k)
		}
	} else {
		groups, touched := x.list(h, s.Workloads, managed, touches)
		cached = h.cache.read(s.At, groups, touched)
	}
	h.controls.Fill(s, touches)
	divides := len(s.Knobs.Now) > 0 // resctrl is in use; there, a name can mean a new control group with other original values
	h.isolation.Fill(s, touches)
	if len(h.blocks.Shown()) > 0 {
		s.Devices = h.blocks.List()
	}
	if h.cache != nil {
		s.Knobs.Now = x.joinKnobs(cached, s.Knobs.Now)
		if !divides && len(s.Devices) == 0 {
			s.Knobs.Before = x.originalValues(h, s.Knobs.Now, touches)
			return
		}
	}
	s.Knobs.Before = shownOriginals(h, s.Knobs.Now, touches)
}

// joinKnobs returns the cached knobs and the knobs in added in one map. Other
// parts of the host have read those in added.
func (x *shownKnobs) joinKnobs(cached, added map[node.Knob]node.Value) map[node.Knob]node.Value {
	if len(added) == 0 {
		return cached
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !sameMap(x.cached, cached) || !maps.Equal(x.added, added) {
		x.cached, x.added, x.all = cached, added, maps.Clone(cached)
		maps.Copy(x.all, added)
	}
	return x.all
}

// room returns how many knobs the other parts of the host added to the last snapshot.
func (x *shownKnobs) room() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.added)
}

// shownOriginals returns the values that the shown knobs had before Tenon: see
// change.Original. It omits knobs of cgroups that were removed and made again
// after Tenon's change.
func shownOriginals(h *Host, now map[node.Knob]node.Value, touches map[node.Knob]journal.Touch) map[node.Knob]node.Value {
	before := map[node.Knob]node.Value{}
	for k, t := range touches {
		v, known := now[k]
		if !known {
			continue
		}
		inodeOf := h.changes.Inode
		if k.ControlGroup == "" {
			inodeOf = func(k node.Knob) (uint64, error) { return h.inode(k.Cgroup) }
		}
		if inode, err := inodeOf(k); err != nil || inode != t.Inode {
			continue
		}
		if v == t.Written { // the usual case
			before[k] = h.blocks.DropImpossible(k, t.Before)
			continue
		}
		before[k] = change.Original(h.changes, k, h.changes.AttainableEntry(k, t), v)
	}
	return before
}

// shownKnobs caches the lists and maps of the last snapshot's knobs. For each
// it also holds the inputs from which it was made.
type shownKnobs struct {
	mu      sync.Mutex
	managed []node.Workload
	touches map[node.Knob]journal.Touch
	inner   []node.CgroupPath
	runs    bool

	groups  []node.CgroupPath
	touched []node.Knob

	extra []node.File // without a cache: knobs that every cgroup shows beside node.Files

	cached, added, all map[node.Knob]node.Value // all holds both cached and added

	now    map[node.Knob]node.Value // former was made from now and of
	of     map[node.Knob]journal.Touch
	former map[node.Knob]node.Value
}

// showFiles sets which knobs, besides node.Files, snapshots of a host without a cache
// show for every cgroup. It omits FileRun, which snapshots show only for workloads.
func (x *shownKnobs) showFiles(files []node.File) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.extra = slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return f == node.FileRun || slices.Contains(node.Files, f) })
}

// files returns the knobs that a host without a cache shows for every cgroup.
func (x *shownKnobs) files() []node.File {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Concat(node.Files, x.extra)
}

// list returns the sorted cgroups whose knobs a snapshot shows, and the
// additional knobs that it shows. The caller must not change the results.
func (x *shownKnobs) list(h *Host, workloads, managed []node.Workload, touches map[node.Knob]journal.Touch) ([]node.CgroupPath, []node.Knob) {
	inner, runs := h.innerCgroups(workloads), h.cache.showsRuns()
	all := len(workloads) == len(managed) // false: some managed workloads are gone
	x.mu.Lock()
	defer x.mu.Unlock()
	if all && x.groups != nil && x.runs == runs && sharesMemory(x.managed, managed) && sharesMemory(x.inner, inner) && sameMap(x.touches, touches) {
		return x.groups, x.touched
	}
	groups := append(shownCgroups(workloads), inner...)
	touched := slices.DeleteFunc(slices.Collect(maps.Keys(touches)), func(k node.Knob) bool { return cachectl.Has(k) || isolation.Has(k) })
	for _, k := range touched {
		groups = append(groups, k.Cgroup)
	}
	if runs {
		touched = append(touched, runKnobs(workloads)...)
	}
	slices.Sort(groups)
	x.groups, x.touched = slices.Compact(groups), touched
	x.managed, x.inner, x.runs, x.touches = managed, inner, runs, touches
	if !all {
		x.managed = nil
	}
	return x.groups, x.touched
}

// originalValues does the same as shownOriginals. If now and touches are the
// same maps as in the last call, it returns the last result.
func (x *shownKnobs) originalValues(h *Host, now map[node.Knob]node.Value, touches map[node.Knob]journal.Touch) map[node.Knob]node.Value {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.former == nil || !sameMap(x.now, now) || !sameMap(x.of, touches) {
		x.now, x.of, x.former = now, touches, shownOriginals(h, now, touches)
	}
	return x.former
}

// sameMap reports whether two maps share the same memory.
func sameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// shownCgroups lists the cgroups of workloads, of their containers and of their
// contention roots, and all cgroups above these except the root.
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

// innerCgroups lists the cgroups inside best-effort workloads on cgroup v1. There, the
// limit of a parent must not be below the limits of its children. So a policy that
// limits a workload must also change the cgroups inside. If any workload demands CPUs,
// its own or shared, the list also holds the cgroups inside latency-sensitive workloads.
func (h *Host) innerCgroups(workloads []node.Workload) []node.CgroupPath {
	if h.tree.Version() != 1 {
		return nil
	}
	h.mu.Lock()
	swept := h.swept
	h.mu.Unlock()
	list := func() []node.CgroupPath {
		var all []node.CgroupPath
		demanded := facts.AnyOf(workloads, hold.Demands)
		for _, w := range workloads {
			if w.Class == node.BE || demanded && w.Class.Sensitive() {
				all = appendBelow(all, h.tree, swept, w.Cgroup)
			}
		}
		return all
	}
	if h.cache != nil {
		return h.cache.listedCgroups(list)
	}
	return list()
}

// appendBelow appends the cgroups below p, parents before children. It finds them
// in swept, the list of all cgroups, or in the directories if swept is nil.
func appendBelow(all []node.CgroupPath, tree *cgroup.Tree, swept []string, p node.CgroupPath) []node.CgroupPath {
	if swept == nil {
		return subtree.Cgroups(tree, all, p)
	}
	inside := string(p) + "/"
	first, _ := slices.BinarySearch(swept, inside)
	for _, q := range swept[first:] {
		if !strings.HasPrefix(q, inside) {
			break
		}
		all = append(all, node.CgroupPath(q))
	}
	return all
}
