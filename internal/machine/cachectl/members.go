package cachectl

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// memberPause is the minimum time between two checks of the threads. Each check
// reads the threads of all control groups.
const memberPause = time.Second

// fillMembers adds to the snapshot the control groups that hold each workload's
// threads. It reads only new workloads and those due for a check, and takes the rest from
// a cache. It omits a cgroup without threads, unless Tenon has changed its control group.
func (c *Groups) fillMembers(s *node.Snapshot, touched []node.Knob) {
	c.mu.Lock()
	groups := c.arrange(s.Workloads, touched)
	due := c.dueCgroups(s.At, groups)
	c.mu.Unlock()
	if len(due) > 0 {
		found := c.readMembers(due)
		c.mu.Lock()
		for p, m := range found {
			c.members[p] = m
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range groups {
		if m, known := c.members[p]; known && (m.any || slices.Contains(touched, node.Knob{Cgroup: p, File: node.FileControlGroup})) {
			s.Knobs.Now[node.Knob{Cgroup: p, File: node.FileControlGroup}] = m.ControlGroup
		}
	}
}

// arrange decides which cgroups the cache holds: those of workloads, and those
// whose control group Tenon changed. The caller holds c.mu.
func (c *Groups) arrange(workloads []node.Workload, touched []node.Knob) []node.CgroupPath {
	own := make(map[node.CgroupPath]bool, len(workloads))
	var order []node.CgroupPath
	if c.wanted {
		for _, w := range workloads {
			if !own[w.Cgroup] && w.Class.Control() != "" {
				order = append(order, w.Cgroup)
			}
			own[w.Cgroup] = true
		}
	}
	for _, k := range touched {
		if k.File == node.FileControlGroup && !own[k.Cgroup] {
			order = append(order, k.Cgroup)
		}
	}
	slices.Sort(order)
	c.own = own
	if !slices.Equal(order, c.order) {
		members := make(map[node.CgroupPath]membership, len(order))
		for _, p := range order {
			if m, known := c.members[p]; known {
				members[p] = m
			}
		}
		c.members, c.order, c.next = members, order, 0
	}
	return c.order
}

// dueCgroups lists the cgroups that must be checked now. The caller holds c.mu.
func (c *Groups) dueCgroups(at time.Time, groups []node.CgroupPath) []node.CgroupPath {
	var list []node.CgroupPath
	for _, p := range groups {
		if _, known := c.members[p]; !known {
			list = append(list, p)
		}
	}
	passed := at.Sub(c.checked)
	if passed < 0 || c.checked.IsZero() {
		passed = memberPause
	}
	if passed < memberPause && len(list) == 0 {
		return nil
	}
	n := int(int64(len(groups)) * int64(min(passed, reread.Changed)) / int64(reread.Changed))
	for range min(n+1, len(groups)) {
		list = append(list, groups[c.next%len(groups)])
		c.next = (c.next + 1) % len(groups)
	}
	c.checked = at
	return list
}

// readMembers reads which control groups hold the threads of each listed
// cgroup. It omits cgroups that cannot be read.
func (c *Groups) readMembers(list []node.CgroupPath) map[node.CgroupPath]membership {
	fs, err := c.Mounted()
	if err != nil {
		return nil
	}
	all, err := membersOf(fs)
	if err != nil {
		return nil
	}
	found := make(map[node.CgroupPath]membership, len(list))
	for _, p := range list {
		if threads, err := c.threads(p); err == nil || partial.Is(err) {
			v, any := all.groupsOf(threads)
			found[p] = membership{v, any}
		}
	}
	return found
}
