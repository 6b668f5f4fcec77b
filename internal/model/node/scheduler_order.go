package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// The orders to the BE scheduler (FileScheduler). An order has an effect only while the scheduler
// is loaded, and is lost when the scheduler is unloaded. The kernel then applies the weights and
// quotas of cgroups again. So there is nothing to restore: the journal does not contain orders,
// and Tenon does not release them. A policy cancels an order by the zero value.
//
// The kernel needs a second or more to load the scheduler. During that time the knobs show the
// orders that the scheduler will get when it is loaded.
const (
	// FileSchedulerGroup says how the BE scheduler treats the threads in and below a
	// cgroup. It does not apply to descendants that have their own order.
	FileSchedulerGroup File = "scheduler.group"
	// FileSchedulerCap limits the CPU time of all threads in the BE scheduler
	// together. The knob belongs to the node, so its cgroup is the root.
	FileSchedulerCap File = "scheduler.cap"
)

// OrdersScheduler reports whether a file is an order to the BE scheduler.
func (f File) OrdersScheduler() bool { return f.Category() == CategoryOrder }

const (
	// SchedulerSlots is the number of slots of the BE scheduler. Slot 0 is shared: it
	// has DefaultSchedulerWeight and no quota. Every other slot belongs to one cgroup.
	SchedulerSlots = 256
	// SchedulerGroups is the maximum number of cgroups with orders.
	SchedulerGroups = 8192
	// DefaultSchedulerWeight is the kernel's default cpu.weight.
	// MaxSchedulerWeight is the largest weight.
	DefaultSchedulerWeight = 100
	MaxSchedulerWeight     = 10000
)

// SchedulerGroup is the order for one cgroup. The zero SchedulerGroup is no order: the cgroup is
// then treated as its parent is. The root without an order is treated as SchedulerNormal.
type SchedulerGroup struct {
	// Class is the class of the threads. The scheduler should run all threads
	// of class SchedulerBE itself, and reports those that it does not run.
	Class SchedulerClass
	// Slot is the slot that counts the run time. Slots 1 to SchedulerSlots-1 belong to
	// one cgroup each. All cgroups without their own slot share slot 0.
	Slot int
	// Weight is the share that the slot gets against other slots, from 1 to
	// MaxSchedulerWeight. It has the meaning of cpu.weight. It is 0 without a slot.
	Weight int
	// Quota limits the CPU time of the slot's threads together, as cpu.max
	// does. 0 means no limit.
	Quota unit.MilliCPU
}

// String prints "none", "LSX", "BE", "BE slot 3 weight 100" or
// "BE slot 3 weight 100 quota 1500m".
func (v SchedulerGroup) String() string {
	switch {
	case v == (SchedulerGroup{}):
		return "none"
	case v.Slot == 0:
		return string(v.Class)
	}
	s := string(v.Class) + " slot " + strconv.Itoa(v.Slot) + " weight " + strconv.Itoa(v.Weight)
	if v.Quota > 0 {
		s += " quota " + v.Quota.String()
	}
	return s
}

// Round returns v: the scheduler stores orders without rounding.
func (v SchedulerGroup) Round(Kernel) Value { return v }

// CompareWidth compares the quotas of two orders for the same slot. It returns
// 0 for other orders.
func (v SchedulerGroup) CompareWidth(o Value) int {
	w, ok := o.(SchedulerGroup)
	if !ok || v.Slot == 0 || v.Slot != w.Slot {
		return 0
	}
	return compareLimits(v.Quota, w.Quota)
}

// Valid returns what is wrong with an order, or nil.
func (v SchedulerGroup) Valid() error {
	switch {
	case v == (SchedulerGroup{}):
		return nil
	case !slices.Contains(SchedulerClasses, v.Class):
		return fmt.Errorf("class %q: want one of %q", v.Class, SchedulerClasses)
	case v.Slot < 0 || v.Slot >= SchedulerSlots:
		return fmt.Errorf("slot %d: want a number from 0 to less than %d", v.Slot, SchedulerSlots)
	case v.Slot > 0 && v.Class != SchedulerBE:
		return fmt.Errorf("slot %d for %s: only %s has slots", v.Slot, v.Class, SchedulerBE)
	case v.Slot == 0 && (v.Weight != 0 || v.Quota != 0):
		return errors.New("a weight and a quota need a slot")
	case v.Slot > 0 && (v.Weight < 1 || v.Weight > MaxSchedulerWeight):
		return fmt.Errorf("weight %d: want a number from 1 to %d", v.Weight, MaxSchedulerWeight)
	case v.Quota < 0:
		return fmt.Errorf("quota %v: want 0 or more", v.Quota)
	}
	return nil
}

func parseSchedulerGroup(text string) (Value, error) {
	bad := fmt.Errorf("order %q: want none, or CLASS [slot N weight N [quota CPU]]", text)
	f := strings.Fields(text)
	var v SchedulerGroup
	switch {
	case len(f) == 1 && f[0] == "none":
		return v, nil
	case len(f) != 1 && len(f) != 5 && len(f) != 7:
		return nil, bad
	}
	v.Class = SchedulerClass(f[0])
	if len(f) > 1 {
		var errs [3]error
		v.Slot, errs[0] = strconv.Atoi(f[2])
		v.Weight, errs[1] = strconv.Atoi(f[4])
		if len(f) == 7 {
			v.Quota, errs[2] = unit.ParseMilliCPU(f[6])
		}
		if errors.Join(errs[:]...) != nil || f[1] != "slot" || f[3] != "weight" || len(f) == 7 && (f[5] != "quota" || v.Quota == 0) {
			return nil, bad
		}
	}
	if err := v.Valid(); err != nil || v.Slot == 0 && len(f) > 1 {
		return nil, errors.Join(bad, err)
	}
	return v, nil
}

// SchedulerCap limits the CPU time of all threads in the BE scheduler together.
// The zero SchedulerCap is no limit.
type SchedulerCap struct{ Most unit.MilliCPU }

// String prints "max" or "1500m".
func (v SchedulerCap) String() string {
	if v.Most == 0 {
		return "max"
	}
	return v.Most.String()
}

func (v SchedulerCap) Round(Kernel) Value { return v }

func (v SchedulerCap) CompareWidth(o Value) int {
	w, ok := o.(SchedulerCap)
	if !ok {
		return 0
	}
	return compareLimits(v.Most, w.Most)
}

// compareLimits compares two limits; 0 is no limit.
func compareLimits(a, b unit.MilliCPU) int {
	switch {
	case a == b:
		return 0
	case a == 0:
		return 1
	case b == 0:
		return -1
	}
	return cmp.Compare(a, b)
}

func parseSchedulerCap(text string) (Value, error) {
	if text == "max" {
		return SchedulerCap{}, nil
	}
	most, err := unit.ParseMilliCPU(text)
	if err != nil || most <= 0 {
		return nil, fmt.Errorf("cap %q: want max or an amount of CPU of at least 1m", text)
	}
	return SchedulerCap{Most: most}, nil
}
