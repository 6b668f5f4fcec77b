package past

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
)

// A NodeDay is what was measured on a node on one day. A column has a value for each
// step of the day, or prospect.Absent. A column that no step has is not there.
type NodeDay struct {
	Name    string             `json:"name"`
	Columns map[Column][]int64 `json:"columns"`
	Held    []Held             `json:"held,omitempty"`
}

// Held is a service that its own CPU limit held back.
type Held struct {
	Service string `json:"service"` // namespace/name of its controller
	Minutes int64  `json:"minutes"`
	LostMS  int64  `json:"lost_ms,omitempty"` // 0 if Sources.HeldTime is false
}

// A Window is the whole days that are asked for.
type Window struct {
	First int64 `json:"first_day"` // days since 1970, UTC
	Days  int64 `json:"days"`
	Step  int64 `json:"step_minutes"` // a day has a whole number of steps
}

const dayMinutes = 24 * 60

// Steps returns the number of steps of a day.
func (w Window) Steps() int64 { return dayMinutes / w.Step }

// Node makes a node of its days, the first day first. A day without the node is nil.
func (w Window) Node(m Machine, s Sources, rules overcommit.Config, days []*NodeDay) prospect.Node {
	n := prospect.Node{Name: m.Name, Pool: m.Pool, CPU: m.Size.CPU, Memory: m.Size.Memory, Spare: m.Size.Memory.Percent(prospect.SparePercent), Start: w.First * dayMinutes, Step: w.Step}
	knowsBatch := s.Label != "" && s.couldBeBatch() != ""
	held := map[string]*prospect.Hurt{}
	for _, d := range days {
		for i := range w.Steps() {
			at := stepOf(d, i)
			cpu, memory, unneeded := at.sums(s, rules, m)
			cpu.unneeded, memory.unneeded = unneeded, unneeded
			n.RoomCPU = append(n.RoomCPU, int64(roomOf(rules.CPU, m.Size.CPU, rules.ReservedCPU, cpu, 1)))
			n.RoomMemory = append(n.RoomMemory, mebibytes(int64(roomOf(rules.Memory, m.Size.Memory, rules.ReservedMemory, memory, 1<<10))>>10))
			n.UsedCPU = append(n.UsedCPU, cpu.used)
			n.UsedMemory = append(n.UsedMemory, mebibytes(memory.used))
			if knowsBatch {
				batch := at(BatchCPU)
				switch {
				case !at.stated(s):
					batch = prospect.Absent
				case batch == prospect.Absent && at(PodsCPU) != prospect.Absent:
					batch = 0 // there was none
				}
				n.BatchCPU = append(n.BatchCPU, batch)
			}
		}
		if d == nil {
			continue
		}
		for _, h := range d.Held {
			of := held[h.Service]
			if of == nil {
				of = &prospect.Hurt{Service: h.Service}
				held[h.Service] = of
			}
			of.Minutes, of.Lost = of.Minutes+h.Minutes, of.Lost+time.Duration(h.LostMS)*time.Millisecond
		}
	}
	for _, h := range held {
		n.Hurt = append(n.Hurt, *h)
	}
	slices.SortFunc(n.Hurt, func(a, b prospect.Hurt) int {
		return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(b.Minutes, a.Minutes), strings.Compare(a.Service, b.Service))
	})
	return n
}

// mebibytes returns KiB as MiB, rounded down.
func mebibytes(k int64) int64 {
	if k < 0 {
		return prospect.Absent
	}
	return k >> 10
}

// A step returns the value of a column at one step.
type step func(Column) int64

func stepOf(d *NodeDay, i int64) step {
	return func(c Column) int64 {
		if d == nil || i >= int64(len(d.Columns[c])) {
			return prospect.Absent
		}
		return d.Columns[c][i]
	}
}

// stated reports whether kube-state-metrics, of these sources, was there.
func (at step) stated(s Sources) bool { return !s.States || at(States) != prospect.Absent }

// An amount is what the formula takes of one step and one resource, in the unit of the
// column. used is Absent if the step is not known.
type amount struct {
	used, others int64
	system       int64
	unneeded     bool
}

// TellsBatch reports whether pods with batch resources are known as such at a step.
func (d *NodeDay) TellsBatch(s Sources, i int64) bool { return !s.Batch || stepOf(d, i).stated(s) }

// sums returns what the formula takes, and whether other work requests too little.
func (at step) sums(s Sources, rules overcommit.Config, m Machine) (cpu, memory amount, unneeded bool) {
	cpu = at.of(s, s.CPU, rules.CPU.Policy, UsedCPU, PodsCPU, CountedCPU)
	memory = at.of(s, s.Memory, rules.Memory.Policy, UsedMemory, PodsMemory, CountedMemory)
	if rules.MinServicePercent > 0 && !at.stated(s) {
		return amount{used: prospect.Absent}, amount{used: prospect.Absent}, false
	}
	// A node that has no pod with a request has no series about it.
	asked, holds := unit.MilliCPU(max(at(AskedCPU), 0)), unit.Bytes(max(at(AskedMemory), 0))<<10
	return cpu, memory, rules.Unneeded(asked, m.Size.CPU, holds, m.Size.Memory)
}

func (at step) of(s Sources, whole Source, policy overcommit.ReclaimPolicy, used, pods, counted Column) amount {
	none := amount{used: prospect.Absent}
	a := amount{used: at(used)}
	ofPods := at(pods)
	switch {
	case s.Label == "":
		a.system = a.used
		return a
	case ofPods == prospect.Absent:
		return none // cAdvisor was silent, and not idle: a node has pods of its own
	case whole == PodsOnly:
		a.used = ofPods
	case a.used == prospect.Absent:
		return none
	}
	a.system, a.others = max(a.used-ofPods, 0), ofPods
	if policy == overcommit.ByUsage && !s.Batch {
		return a
	}
	if !at.stated(s) {
		return none // all pods would count as services, by their use alone
	}
	if a.others = at(counted); a.others == prospect.Absent {
		if !s.Batch {
			return none
		}
		a.others = 0 // all pods of the node run on batch resources
	}
	return a
}

// roomOf asks the formula. It returns a negative value if the step is not known. scale
// is the unit of the column.
func roomOf[T unit.MilliCPU | unit.Bytes](r overcommit.Reclaim, capacity, reserved T, a amount, scale T) T {
	if a.used == prospect.Absent {
		return -scale // Absent, in each unit
	}
	return overcommit.AmountOf(r, overcommit.Sums[T]{
		Capacity: capacity, Reserved: reserved, System: T(a.system) * scale, Others: T(a.others) * scale, Unneeded: a.unneeded,
	}).Value()
}
