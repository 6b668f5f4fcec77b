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

// An order tells the BE scheduler how to treat a cgroup, or how much CPU to use. When the
// scheduler is unloaded, its orders are lost, and the kernel applies cgroup weights and
// quotas again. So there is nothing to restore: the journal has no orders, and Tenon does
// not release them. A policy cancels an order with the zero value.
//
// The kernel needs a second or more to load the scheduler. Meanwhile the knobs already show
// the orders that the scheduler will get.
const (
	// FileSchedulerGroup is the order for the threads in and below a cgroup. A
	// descendant with an order of its own follows only its own order.
	FileSchedulerGroup File = "scheduler.group"
	// FileSchedulerCap limits the total CPU time of the threads in the BE
	// scheduler. The knob belongs to the node, so its cgroup is the root.
	FileSchedulerCap File = "scheduler.cap"
)

// OrdersScheduler reports whether f is an order to the BE scheduler.
func (f File) OrdersScheduler() bool { return f.Category() == CategoryOrder }

const (
	// SchedulerSlots is the number of slots of the BE scheduler. Slot 0 is shared, and has
	// DefaultSchedulerWeight and no quota. Each other slot belongs to one cgroup.
	SchedulerSlots = 256
	// SchedulerGroups is the maximum number of cgroups with orders.
	SchedulerGroups = 8192
	// DefaultSchedulerWeight is the kernel's default cpu.weight.
	// MaxSchedulerWeight is the largest weight.
	DefaultSchedulerWeight = 100
	MaxSchedulerWeight     = 10000
)

// SchedulerGroup is the order for one cgroup. A cgroup with the zero
// SchedulerGroup is treated like its parent, and the root like SchedulerNormal.
type SchedulerGroup struct {
	// Class is the class of the threads. Threads of class SchedulerBE should be
	// in the BE scheduler, which reports those that run outside of it.
	Class SchedulerClass
	// Slot is the slot that counts the run time of the threads. Slots 1 to
	// SchedulerSlots-1 belong to one cgroup each. All other cgroups share slot 0.
	Slot int
	// Weight is the weight of the slot against other slots, like cpu.weight,
	// from 1 to MaxSchedulerWeight. In slot 0 it must be 0.
	Weight int
	// Quota is the CPU that all threads of the slot together may use, as in
	// cpu.max. 0 means no limit.
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

// CompareWidth compares the quotas of two orders with the same slot. It returns
// 0 if the slots differ.
func (v SchedulerGroup) CompareWidth(o Value) int {
	w, ok := o.(SchedulerGroup)
	if !ok || v.Slot == 0 || v.Slot != w.Slot {
		return 0
	}
	return compareLimits(v.Quota, w.Quota)
}

// Valid returns an error if the scheduler would refuse the order.
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

// SchedulerCap is the amount of CPU that all threads in the BE scheduler may
// use together. The zero SchedulerCap means no limit.
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
