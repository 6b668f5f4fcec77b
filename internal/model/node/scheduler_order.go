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

// The orders that the BE scheduler (FileScheduler) gets. They act only while it
// is loaded, and end with it: the kernel then applies the weights and the quotas
// of cgroups again. So they are not journaled, have no value from before Tenon,
// and are not released: a policy takes an order back by its zero value.
//
// Between the want of the scheduler and its load, which takes the kernel a
// second or more, they show what the scheduler will be loaded with.
const (
	// FileSchedulerGroup is how the BE scheduler treats the threads in and below
	// a cgroup, except for cgroups below it with orders of their own.
	FileSchedulerGroup File = "scheduler.group"
	// FileSchedulerCap is how much CPU time the threads in the BE scheduler may
	// use together. It is a knob of the node, which stands as the root cgroup.
	FileSchedulerCap File = "scheduler.cap"
)

// OrdersScheduler reports whether a file is an order to the BE scheduler.
func (f File) OrdersScheduler() bool { return f.Category() == CategoryOrder }

const (
	// SchedulerSlots is how many slots the BE scheduler has. Slot 0 is shared: it
	// has DefaultSchedulerWeight and no quota. Every other slot is of one cgroup.
	SchedulerSlots = 256
	// SchedulerGroups is how many cgroups the BE scheduler can have orders for.
	SchedulerGroups = 8192
	// DefaultSchedulerWeight is the weight that cgroups have in the kernel by
	// default (cpu.weight), and MaxSchedulerWeight the largest.
	DefaultSchedulerWeight = 100
	MaxSchedulerWeight     = 10000
)

// SchedulerGroup is the order for one cgroup. The zero SchedulerGroup is none:
// the cgroup is treated as the one above it, at the root as SchedulerNormal.
type SchedulerGroup struct {
	// Class is how threads are looked at. SchedulerBE says that all of them should
	// be in the BE scheduler: it reports those that are not.
	Class SchedulerClass
	// Slot is where run time is counted: from 1 on, below SchedulerSlots, for a
	// cgroup alone; 0 is shared by all that have no slot of their own.
	Slot int
	// Weight is the share against other slots, from 1 to MaxSchedulerWeight, as
	// cpu.weight; 0 without a slot.
	Weight int
	// Quota is how much CPU time the threads of the slot may use together, as
	// cpu.max; 0: as much as they get.
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

// Rounded returns v: the scheduler keeps orders as they are.
func (v SchedulerGroup) Rounded(Kernel) Value { return v }

// Narrower compares the quotas of two orders for the same slot. Other orders are
// not comparable.
func (v SchedulerGroup) Narrower(o Value) int {
	w, ok := o.(SchedulerGroup)
	if !ok || v.Slot == 0 || v.Slot != w.Slot {
		return 0
	}
	return compareLimits(v.Quota, w.Quota)
}

// Valid says what is wrong with an order; nil: nothing.
func (v SchedulerGroup) Valid() error {
	switch {
	case v == (SchedulerGroup{}):
		return nil
	case !slices.Contains(SchedulerClasses, v.Class):
		return fmt.Errorf("class %q: want one of %q", v.Class, SchedulerClasses)
	case v.Slot < 0 || v.Slot >= SchedulerSlots:
		return fmt.Errorf("slot %d: want one below %d", v.Slot, SchedulerSlots)
	case v.Slot > 0 && v.Class != SchedulerBE:
		return fmt.Errorf("slot %d for %s: only %s has slots", v.Slot, v.Class, SchedulerBE)
	case v.Slot == 0 && (v.Weight != 0 || v.Quota != 0):
		return errors.New("a weight and a quota need a slot")
	case v.Slot > 0 && (v.Weight < 1 || v.Weight > MaxSchedulerWeight):
		return fmt.Errorf("weight %d: want one from 1 to %d", v.Weight, MaxSchedulerWeight)
	case v.Quota < 0:
		return fmt.Errorf("quota %v: want one from 0 on", v.Quota)
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

// SchedulerCap is how much CPU time the threads in the BE scheduler may use
// together. The zero SchedulerCap: as much as they get.
type SchedulerCap struct{ Most unit.MilliCPU }

// String prints "max" or "1500m".
func (v SchedulerCap) String() string {
	if v.Most == 0 {
		return "max"
	}
	return v.Most.String()
}

// Rounded returns v.
func (v SchedulerCap) Rounded(Kernel) Value { return v }

// Narrower compares the limits.
func (v SchedulerCap) Narrower(o Value) int {
	w, ok := o.(SchedulerCap)
	if !ok {
		return 0
	}
	return compareLimits(v.Most, w.Most)
}

// compareLimits compares two limits, of which 0 is none.
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
		return nil, fmt.Errorf("cap %q: want max or an amount of CPU from 1m on", text)
	}
	return SchedulerCap{Most: most}, nil
}
