package place

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A View is the state of one node at one time. It does not change, so many
// filters can read it at once.
type View struct {
	out  cpus.Code // filters read only out and sum
	sum  pick.Summary
	m    *pick.Map
	off  unit.CPUSet
	keep int
	// manager names the program because of which the node takes no pods.
	manager string
	holds   []held // by UID
	seats   pick.Seats
}

// A held is a Held that several views can share.
type held struct {
	uid  UID
	hold *cpus.Allocation
}

func viewOf(m *pick.Map, out cpus.Code, r Report, holds []held) *View {
	v := &View{m: m, out: out, off: r.Reserved, keep: r.Keep, manager: r.Manager, holds: holds}
	v.fill()
	return v
}

func (v *View) fill() {
	all := make([]cpus.Allocation, len(v.holds))
	for i, h := range v.holds {
		all[i] = *h.hold
	}
	v.seats = v.m.Seats(v.off, v.keep, all)
	v.sum = v.m.Sum(v.seats)
}

// Room returns the reason why the node does not take the demand, or Fits. It
// does not allocate memory.
func (v *View) Room(d *cpus.PodRequest) cpus.Code {
	if v.out != cpus.Fits {
		return v.out
	}
	return v.sum.Room(&d.Request)
}

// Worth rates the node from 0 to 100 for a demand that fits. It does not
// allocate memory.
func (v *View) Worth(d *cpus.PodRequest) int64 { return v.sum.Worth(&d.Request) }

// Offer chooses CPUs for a demand. It chooses as Ledger.Assume does, but
// reserves nothing.
func (v *View) Offer(d *cpus.PodRequest) (Contract, pick.Offer, cpus.Code) {
	if why := v.Room(d); why != cpus.Fits {
		return Contract{}, pick.Offer{}, why
	}
	o, why := v.m.Fit(v.seats, d.Request)
	if why != cpus.Fits {
		return Contract{}, pick.Offer{}, why
	}
	return ContractOf(v.m, *d, o), o, cpus.Fits
}

// Without returns the view that would result if the given pods held nothing.
// Preemption uses it.
func (v *View) Without(uids ...UID) *View {
	if v.m == nil {
		return v
	}
	next := *v
	next.holds = make([]held, 0, len(v.holds))
	var freed unit.CPUSet
	simple := true // the pods own CPUs, and nothing else depends on them
	for _, h := range v.holds {
		if !slices.Contains(uids, h.uid) {
			next.holds = append(next.holds, h)
			continue
		}
		simple = simple && h.hold.Policy == cpus.Exclusive && h.hold.Exclusive == cpus.NotExclusive
		freed = freed.Union(h.hold.CPUs)
	}
	if !simple {
		next.fill()
		return &next
	}
	freed = freed.Minus(v.off)
	for _, h := range next.holds {
		if h.hold.Policy == cpus.Exclusive {
			freed = freed.Minus(h.hold.CPUs)
		}
	}
	next.seats = v.m.Reopen(v.seats, freed)
	next.sum = v.m.Sum(next.seats)
	return &next
}

// With returns the view with one more pod. The pod gets the CPUs of its
// choice. If the choice does not match the request, for example the zero Choice,
// With chooses CPUs. If the pod does not fit, With returns v.
func (v *View) With(p Pod, c cpus.Choice) *View {
	if v.m == nil || v.Has(p.UID) {
		return v
	}
	if c.Topology != v.m.Hash() || !c.Matches(p.Request.Request) {
		o, why := v.m.Fit(v.seats, p.Request.Request)
		if why != cpus.Fits {
			return v
		}
		c = ContractOf(v.m, p.Request, o).Choice
	}
	return v.addHold(heldBy(p, c))
}

// addHold returns the view with one more hold. This is cheaper than making a
// view from all holds.
func (v *View) addHold(h held) *View {
	next := *v
	i, _ := slices.BinarySearchFunc(v.holds, h.uid, func(a held, uid UID) int { return strings.Compare(string(a.uid), string(uid)) })
	next.holds = make([]held, 0, len(v.holds)+1)
	next.holds = append(append(append(next.holds, v.holds[:i]...), h), v.holds[i:]...)
	next.seats = v.m.With(v.seats, *h.hold)
	next.sum = v.m.Sum(next.seats)
	return &next
}

// Has reports whether a pod holds CPUs in the view.
func (v *View) Has(uid UID) bool {
	return slices.ContainsFunc(v.holds, func(h held) bool { return h.uid == uid })
}

// Holds lists what the pods hold, by UID.
func (v *View) Holds() []Held {
	all := make([]Held, len(v.holds))
	for i, h := range v.holds {
		all[i] = Held{h.uid, *h.hold}
	}
	return all
}

func heldBy(p Pod, c cpus.Choice) held {
	h := c.Allocation(p.Request.Request)
	return held{p.UID, &h}
}

// Map returns the topology, or nil if it is not known.
func (v *View) Map() *pick.Map { return v.m }

// Open returns the CPUs that no pod owns.
func (v *View) Open() unit.CPUSet {
	if v.m == nil {
		return unit.CPUSet{}
	}
	return v.m.Open(v.seats)
}

// Stranded returns the number of stranded CPUs: they are free for exclusive
// use, but no demand of n CPUs within one L3 cache can use them.
func (v *View) Stranded(n int) int { return v.sum.Stranded(n) }

// Reserved returns the CPUs that no pod of the ledger gets.
func (v *View) Reserved() unit.CPUSet { return v.off }
