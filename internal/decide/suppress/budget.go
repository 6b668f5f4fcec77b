package suppress

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// Growth is the maximum growth of the CPU of BE in a second, in percent of
	// the capacity. A reduction has no such limit.
	Growth unit.Percent = 10

	// Deadband is the largest change that Tenon does not write to a knob, in
	// percent of the capacity.
	Deadband unit.Percent = 1
	// minQuota is the kernel's smallest quota for the default period.
	minQuota = unit.MilliCPU(node.MinQuota * 1000 / node.DefaultPeriod)
)

// A Budget is the CPU that BE work may use (May). It also holds the terms of
// the formula that gave this amount.
type Budget struct {
	Capacity unit.MilliCPU
	Least    unit.MilliCPU // minimum, whatever other work uses
	May      unit.MilliCPU
	gain     unit.MilliCPU // maximum growth in this tick
	system   unit.MilliCPU // CPU usage outside all workloads
	Reason   string
}

// BudgetOf computes Koordinator's formula,
//
//	capacity × threshold − usage of all other work
//
// Other work includes the system: the CPU time that is used outside all workloads, or the
// reservation of the system if that is larger. Work whose rate is not known yet counts as a part
// of the system. Reserved CPUs do not count as capacity, but what other work uses there is
// subtracted. If an input is missing, BE work gets its minimum.
func BudgetOf(c Config, nodeCPUs facts.NodeCPUs, u facts.Use, s node.Snapshot, cpus unit.CPUSet) Budget {
	b := Budget{Capacity: unit.CPUs(cpus.Len())}
	b.Least = max(b.Capacity.Percent(c.MinPercent), minQuota)
	if why := missingInput(u, s, cpus); why != "" {
		b.May, b.Reason = b.Least, why+": BE keeps its least"
		return b
	}
	var others, mean, be, busy unit.MilliCPU
	for i := range s.Workloads {
		w := &s.Workloads[i]
		used := u.Workload[w.ID]
		if w.Class == node.BE {
			be += used
			continue
		}
		// A rise in the usage of a service counts at once. After a fall, the
		// mean counts, which falls more slowly.
		others += max(used, u.Latest[w.ID])
		mean += used
	}
	for cpu := range cpus.All() {
		busy += u.CPU[cpu]
	}
	b.system = max(busy-mean-be, nodeCPUs.Reserved, 0)
	b.May = b.Capacity.Percent(c.ThresholdPercent) - others - b.system
	b.Reason = fmt.Sprintf("%v of %v - %v in use by others - %v by the system", c.ThresholdPercent, b.Capacity, others, b.system)
	if nodeCPUs.Reserved > 0 && b.system == nodeCPUs.Reserved {
		b.Reason += ", the reserved amount"
	}
	if b.May < b.Least {
		b.May = b.Least
		b.Reason += ": BE keeps its least"
	}
	return b
}

// limitToCPUs applies the formula again, to only the CPUs that BE work may use,
// and takes the smaller result. Idle CPUs of LSE work do not help BE. LSE or
// LSR work that is bound to other CPUs is not subtracted.
func (b Budget) limitToCPUs(c Config, shared facts.NodeCPUs, u facts.Use, s node.Snapshot, cpus unit.CPUSet, own hold.Grants) Budget {
	apart := func(w *node.Workload) bool { return w.Class == node.LSE || w.Class == node.LSR && !shared.LendLSR }
	if b.May <= b.Least || !facts.AnyOf(s.Workloads, apart) {
		return b
	}
	free := hold.PlacesOf(shared, u, s, cpus, own.Held).Free
	if free == cpus {
		return b
	}
	var others unit.MilliCPU
	for i := range s.Workloads {
		w := &s.Workloads[i]
		_, bound := own.Exclusive(w.ID)
		if !bound {
			_, bound = hold.BoundTo(s.Knobs, w, cpus)
		}
		if w.Class != node.BE && !(apart(w) && bound) {
			others += max(u.Workload[w.ID], u.Latest[w.ID])
		}
	}
	most := unit.CPUs(free.Len())
	if may := max(most.Percent(c.ThresholdPercent)-others-b.system, b.Least); may < b.May {
		b.May = may
		b.Reason = fmt.Sprintf("%v of the %v that BE may use - %v in use by others there - %v by the system", c.ThresholdPercent, most, others, b.system)
		if b.May == b.Least {
			b.Reason += ": BE keeps its least"
		}
	}
	return b
}

// missingInput returns the name of a missing input of the budget, or "".
func missingInput(u facts.Use, s node.Snapshot, cpus unit.CPUSet) string {
	if cpus.Empty() {
		return "every CPU is reserved"
	}
	rated := unit.CPUSet{}
	for cpu := range cpus.All() {
		if _, known := u.CPU[cpu]; known {
			rated.Add(cpu)
		}
	}
	switch left := cpus.Minus(rated); {
	case rated.Empty():
		return "the use of the CPUs is unknown"
	case !left.Empty():
		return fmt.Sprintf("the use of CPU %v is unknown", left)
	}
	var missing []string
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Class != node.BE && !w.Usage.CPU.Known() {
			missing = append(missing, string(w.ID))
		}
	}
	const most = 3
	switch n := len(missing) - most; {
	case len(missing) == 0:
		return ""
	case n > 0:
		return fmt.Sprintf("the CPU use of %s and %d more is unknown", strings.Join(missing[:most], ", "), n)
	}
	return "the CPU use of " + strings.Join(missing, ", ") + " is unknown"
}

// Save adds to the saved growth what the elapsed time allows. The result is at
// most the growth of one second, or one CPU if only whole CPUs can be given.
func (b Budget) Save(saved unit.MilliCPU, elapsed time.Duration, whole bool) unit.MilliCPU {
	second := b.Capacity.Percent(Growth)
	now := max(unit.MilliCPU(float64(second)*min(elapsed, facts.LongestGap).Seconds()), 1)
	most := max(second, now)
	if whole {
		most = max(most, unit.CPUs(1))
	}
	return min(saved+now, most)
}
