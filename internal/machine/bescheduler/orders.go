package bescheduler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// orders holds the orders of package decide/isolation to the BPF scheduler: one for each
// cgroup, and a cap for all threads. This file writes them to the maps of the loaded
// scheduler and reads them back. If none is loaded, the next scheduler gets them.
type orders struct {
	groups   map[node.CgroupPath]order
	cap      node.SchedulerCap
	refused  map[node.Knob]string // orders that the scheduler refused, with the reason
	readBack reread.Cycle         // which groups to read back from the scheduler's maps
}

// An order tells the scheduler the class, slot, weight and quota of one cgroup.
// inode identifies the cgroup. A new cgroup with the same name has no order.
type order struct {
	inode uint64
	value node.SchedulerGroup
	shown node.Value // value as an interface; snapshots share this copy
}

// capKnob is the knob that limits all threads of the BPF scheduler together.
var capKnob = node.Knob{File: node.FileSchedulerCap}

// FillOrders adds the orders of existing cgroups to a snapshot. It reads an
// order again from the scheduler's maps if it was last read longer than
// reread.Changed ago.
func (x *Scheduler) FillOrders(at time.Time, into map[node.Knob]node.Value) {
	x.mu.Lock()
	defer x.mu.Unlock()
	paths := slices.Sorted(maps.Keys(x.orders.groups))
	if x.loaded != nil {
		for n := range x.orders.readBack.Due(at, len(paths), reread.Changed) {
			x.readBack(paths[n])
		}
	}
	for _, p := range paths {
		o, known := x.orders.groups[p]
		if inode, err := x.inode(p); known && err == nil && inode == o.inode {
			into[node.Knob{Cgroup: p, File: node.FileSchedulerGroup}] = o.shown
		}
	}
	into[capKnob] = x.orders.cap
}

// readBack reads the orders of a cgroup from the scheduler's maps.
func (x *Scheduler) readBack(p node.CgroupPath) {
	o := x.orders.groups[p]
	g, known, err := x.loaded.Group(o.inode)
	switch {
	case err != nil:
		return // follow reports the end of a scheduler
	case !known:
		delete(x.orders.groups, p)
		return
	}
	v := node.SchedulerGroup{Class: g.Class, Slot: g.Pod}
	if v.Slot > 0 {
		pod, err := x.loaded.Pod(v.Slot)
		if err != nil {
			return
		}
		v.Weight, v.Quota = pod.Weight, unit.MilliCPU(int64(pod.Quota)*int64(unit.CPUs(1))/int64(scx.QuotaPeriod))
	}
	if o.value != v {
		o.value, o.shown = v, v
	}
	x.orders.groups[p] = o
}

// ReadOrder returns one order. If there is no order, it returns the zero value.
func (x *Scheduler) ReadOrder(k node.Knob) (node.Value, error) {
	inode, err := x.inode(k.Cgroup)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if k == capKnob {
		return x.orders.cap, nil
	}
	if o := x.orders.groups[k.Cgroup]; o.inode == inode {
		return o.value, nil
	}
	return node.SchedulerGroup{}, nil
}

// Order gives an order to the scheduler. If none is loaded, Order keeps it for
// the next one. The journal does not need the order, because the order ends
// with the scheduler, at the latest when this process ends.
func (x *Scheduler) Order(k node.Knob, v node.Value) error {
	switch v := v.(type) {
	case node.SchedulerCap:
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.orders.noteRefusal(k, x.orderCap(v))
	case node.SchedulerGroup:
		if err := v.Valid(); err != nil {
			return fmt.Errorf("order %v: %w", k, err)
		}
		inode, err := x.inode(k.Cgroup)
		if gone := errors.Is(err, cgroup.ErrGone) && v == (node.SchedulerGroup{}); err != nil && !gone {
			return err
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.orders.noteRefusal(k, x.orderGroup(k.Cgroup, order{inode, v, v}))
	}
	return fmt.Errorf("write %v: a %T is no value of this file", k, v)
}

// orderCap changes the cap. The caller holds x.mu.
func (x *Scheduler) orderCap(v node.SchedulerCap) error {
	if x.loaded != nil {
		if err := x.loaded.SetCap(capOf(v)); err != nil {
			return err
		}
	}
	x.orders.cap = v
	return nil
}

// orderGroup changes the order of a cgroup. The caller holds x.mu.
func (x *Scheduler) orderGroup(p node.CgroupPath, o order) error {
	before, had := x.orders.groups[p]
	none := o.value == (node.SchedulerGroup{})
	if x.loaded != nil {
		if had && (none || before.inode != o.inode) {
			if err := x.loaded.DropGroup(before.inode); err != nil {
				return err
			}
			delete(x.orders.groups, p)
		}
		if !none {
			if err := x.push(o); err != nil {
				return err
			}
		}
		if before.value.Slot > 0 && before.value.Slot != o.value.Slot && !x.orders.slotTaken(p, before.value.Slot) {
			if err := x.loaded.SetPod(scx.Pod{Slot: before.value.Slot}); err != nil {
				return err
			}
		}
	}
	if delete(x.orders.groups, p); none {
		return nil
	}
	if x.orders.groups == nil {
		x.orders.groups = map[node.CgroupPath]order{}
	}
	x.orders.groups[p] = o
	return nil
}

// slotTaken reports whether a cgroup other than p already has the slot. The
// caller holds x.mu.
func (o *orders) slotTaken(p node.CgroupPath, slot int) bool {
	for q, other := range o.groups {
		if q != p && other.value.Slot == slot {
			return true
		}
	}
	return false
}

// push writes an order to the scheduler's maps. It writes the quota of a slot before a
// cgroup gets the slot, so that no thread runs without the quota. The caller holds x.mu.
func (x *Scheduler) push(o order) error {
	if v := o.value; v.Slot > 0 {
		quota := time.Duration(int64(v.Quota) * int64(scx.QuotaPeriod) / int64(unit.CPUs(1)))
		if err := x.loaded.SetPod(scx.Pod{Slot: v.Slot, Weight: v.Weight, Quota: quota}); err != nil {
			return err
		}
	}
	return x.loaded.SetGroup(scx.Group{Cgroup: o.inode, Class: o.value.Class, Pod: o.value.Slot})
}

// pushOrders gives all orders to a scheduler that has just been loaded, first those
// of the classes that need most protection. If the scheduler refuses an order,
// pushOrders deletes it. Snapshots then lack the order, and the policy repeats it.
func (x *Scheduler) pushOrders(s Program) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loaded != s {
		return
	}
	paths := slices.SortedFunc(maps.Keys(x.orders.groups), func(a, b node.CgroupPath) int {
		ca, cb := x.orders.groups[a].value.Class, x.orders.groups[b].value.Class
		return cmp.Or(cmp.Compare(slices.Index(node.SchedulerClasses, ca), slices.Index(node.SchedulerClasses, cb)), strings.Compare(string(a), string(b)))
	})
	for _, p := range paths {
		k := node.Knob{Cgroup: p, File: node.FileSchedulerGroup}
		if x.orders.noteRefusal(k, x.push(x.orders.groups[p])) != nil {
			delete(x.orders.groups, p)
		}
	}
	if x.orders.noteRefusal(capKnob, x.loaded.SetCap(capOf(x.orders.cap))) != nil {
		x.orders.cap = node.SchedulerCap{}
	}
}

// noteRefusal records whether err means that the scheduler refused an order,
// and returns err. scx.ErrClosed is no refusal, because the scheduler has
// ended. The caller holds the lock of the scheduler.
func (o *orders) noteRefusal(k node.Knob, err error) error {
	if delete(o.refused, k); err == nil || errors.Is(err, scx.ErrClosed) {
		return err
	}
	if o.refused == nil {
		o.refused = map[node.Knob]string{}
	}
	o.refused[k] = strings.Join(strings.Fields(err.Error()), " ")
	return err
}

// refusals lists the orders that the scheduler refused. It is empty if there
// are none. The caller holds the lock of the scheduler.
func (o *orders) refusals() string {
	n := len(o.refused)
	if n == 0 {
		return ""
	}
	first := slices.SortedFunc(maps.Keys(o.refused), node.Knob.Compare)[0]
	text := fmt.Sprintf("%v: %s", first, o.refused[first])
	if n > 1 {
		text += fmt.Sprintf("; and %d more", n-1)
	}
	return text
}

// forgetOrders drops all orders. It is called when their scheduler has ended.
func (x *Scheduler) forgetOrders() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.orders = orders{}
}

// SweepOrders drops the orders of cgroups that do not exist any more.
func (x *Scheduler) SweepOrders() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for p, o := range x.orders.groups {
		if inode, err := x.tree.Inode(string(p)); errors.Is(err, cgroup.ErrGone) || err == nil && inode != o.inode {
			errs = append(errs, x.orderGroup(p, order{inode: o.inode}))
		}
	}
	return errors.Join(errs...)
}

// presentCap returns the present cap.
func (x *Scheduler) presentCap() node.SchedulerCap {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.orders.cap
}

// capOf converts the cap to the form of the scheduler.
func capOf(v node.SchedulerCap) unit.MilliCPU {
	if v.Most == 0 {
		return scx.NoCap
	}
	return v.Most
}
