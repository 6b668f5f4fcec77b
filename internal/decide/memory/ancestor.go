package memory

import (
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// The room of an ancestor is the protection that it gets beyond the protected
// memory below it: a tenth of that memory, and at least leastRoom. Services can
// grow by it until the next tick.
const (
	roomShare = 10
	leastRoom = unit.Bytes(256 << 20)
)

// A follower computes the protection of ancestors where cgroup v2 has the mount
// option memory_recursiveprot. If the children of a cgroup do not use all of its
// protection, the rest then protects other memory below it
// (effective_protection in mm/page_counter.c). An ancestor with the settings of
// services that use less would protect the BE work beside them: the kernel would
// first reclaim the memory of the node's daemons, and then kill processes,
// before it reclaims page cache of BE.
//
// Such an ancestor therefore follows the memory that is protected below it. The
// kernel needs no more: it scales the protection of children down only if the
// protected memory of all of them exceeds the protection of their parent.
type follower struct {
	memory map[node.CgroupPath]unit.Bytes // memory use of workloads; absent: unknown
	shared map[string]bool                // top-level cgroups that hold unprotected work
	knobs  node.Knobs
}

// followerOf returns the follower for the protected cgroups leaves. It is nil
// if the kernel protects no other memory with what they leave.
func followerOf(s *node.Snapshot, leaves map[node.CgroupPath]protection) *follower {
	if !s.Knobs.Kernel.RecursiveProtection || len(leaves) == 0 {
		return nil
	}
	f := &follower{map[node.CgroupPath]unit.Bytes{}, map[string]bool{}, s.Knobs}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if used, known := w.Usage.Memory.Value(); known {
			f.memory[w.Cgroup] = used
		}
		// Work of other classes, and work without a class, is outside of the
		// contention root.
		top := topOf(w.Cgroup)
		if string(w.ContentionRoot) != top || leaves[w.Cgroup] == (protection{}) {
			f.shared[top] = true
		}
	}
	return f
}

func topOf(p node.CgroupPath) string {
	top, _, _ := strings.Cut(string(p), "/")
	return top
}

// follows reports whether p, which has no protection of its own, follows the
// memory that is protected below it. All ancestors of one tree do so or none:
// an ancestor with more than it protects would count for more in its parent.
func (f *follower) follows(p node.CgroupPath) bool {
	if f == nil {
		return false
	}
	_, work := f.memory[p]
	return !work && f.shared[topOf(p)]
}

// part returns the part of the protection need that the memory of p uses. If
// that memory is unknown, it is all of need.
func (f *follower) part(p node.CgroupPath, need protection) protection {
	if f == nil {
		return need
	}
	if used, known := f.memory[p]; known {
		return protection{min(need.min, used), min(need.low, used)}
	}
	return need
}

// needOf returns the protection of the ancestor p. It keeps the present value
// while the room is between half of what Tenon gives and twice as much, so that
// Tenon does not write in each tick.
func (f *follower) needOf(p node.CgroupPath, c children) protection {
	knob := node.Knob{Cgroup: p, File: node.FileMemory}
	now, read := f.knobs.Now[knob].(node.Memory)
	was, known := facts.Original(f.knobs, knob).(node.Memory)
	if !read || !known {
		return c.with(2)
	}
	least, most := c.with(1), c.with(4)
	from, to := least.protect(was), most.protect(was)
	if now.Min < from.Min || now.Min > to.Min || now.Low < from.Low || now.Low > to.Low {
		return c.with(2)
	}
	// The owner's own value may be above the range. It is not needed.
	keep := func(now, least, most unit.Bytes) unit.Bytes {
		if now > most {
			return least
		}
		return now
	}
	return protection{keep(now.Min, least.min, most.min), keep(now.Low, least.low, most.low)}
}

// children holds sums over the children of a cgroup.
type children struct {
	settings protection // their protection, if none of them follows
	used     protection // the part of it that their memory uses
	claims   protection // the part that the kernel may count as used
}

func (c children) add(o children) children {
	return children{c.settings.add(o.settings), c.used.add(o.used), c.claims.add(o.claims)}
}

// with returns the protection of the parent with so many halves of the room. It
// is never less than the claims of the children, because an ancestor among them
// may hold unprotected memory that fills its own room.
func (c children) with(halves unit.Bytes) protection {
	need := func(settings, used, claims unit.Bytes) unit.Bytes {
		room := max(used/roomShare, leastRoom) / 2 * halves
		return max(claims, min(settings, addBytes(used, room)))
	}
	return protection{need(c.settings.min, c.used.min, c.claims.min), need(c.settings.low, c.used.low, c.claims.low)}
}
