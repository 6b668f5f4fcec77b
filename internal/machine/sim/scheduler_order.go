package sim

import (
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// orders holds the orders to the BE scheduler. If none is loaded, the next
// scheduler gets them.
type orders struct {
	groups map[node.CgroupPath]node.SchedulerGroup
	cap    node.SchedulerCap
}

// room returns how many cgroups the table of the BE scheduler can hold.
func (i *isolationState) room() int {
	if i.Room > 0 {
		return i.Room
	}
	return node.SchedulerGroups
}

// readOrder returns one order, or the zero value if there is none.
func (i *isolationState) readOrder(k node.Knob) node.Value {
	if k.File == node.FileSchedulerCap {
		return i.orders.cap
	}
	return i.orders.groups[k.Cgroup]
}

// applyOrder performs a step on an order. It does not journal the order,
// because the order ends together with the scheduler.
func applyOrder(n *Node, s plan.Step) error {
	i := n.isolated
	if _, err := n.readIsolation(s.Knob); err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if v, is := s.To.(node.SchedulerCap); is {
		i.orders.cap = v
		return nil
	}
	v, is := s.To.(node.SchedulerGroup)
	if !is {
		return fmt.Errorf("apply %v: a %T is no order", s, s.To)
	}
	if err := v.Valid(); err != nil && i.obeys(orderIsValid) {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if n.groups[s.Knob.Cgroup] == nil && i.obeys(orderNeedsGroup) {
		return fmt.Errorf("apply %v: the cgroup is gone: %w", s, syscall.ENOENT)
	}
	_, had := i.orders.groups[s.Knob.Cgroup]
	switch {
	case v == (node.SchedulerGroup{}):
		delete(i.orders.groups, s.Knob.Cgroup)
		return nil
	case !had && len(i.orders.groups) >= i.room():
		return fmt.Errorf("apply %v: add it to the table of %d: %w", s, i.room(), syscall.E2BIG)
	case i.orders.groups == nil:
		i.orders.groups = map[node.CgroupPath]node.SchedulerGroup{}
	}
	i.orders.groups[s.Knob.Cgroup] = v
	return nil
}

// unload unloads the scheduler, and removes its orders.
func (i *isolationState) unload() {
	if i.loaded = (node.Scheduler{}); i.obeys(ordersEnd) {
		i.orders = orders{}
	}
}
