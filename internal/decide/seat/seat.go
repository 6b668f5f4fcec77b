// Package seat chooses CPUs for best-effort (BE) work with a CPU limit, in
// place of time on all CPUs: as many CPUs as its limit, rounded up. A program
// of many threads can then run all the time on a few CPUs. With a quota it
// would run on all CPUs for a moment and then be stopped.
//
// While there are enough cores, each seat is on a core of its own. If there are
// not enough, seats use the siblings too. If BE work demands more CPUs than it
// may use, there are no seats, and all work shares the CPUs by its quotas.
package seat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config configures seats.
type Config struct {
	// Enable gives seats to BE work with a CPU limit (policies.cpuLimitSeats).
	Enable bool `json:"enable,omitempty"`
}

const (
	// calm is how long the demand must fit before work gets seats again.
	calm = 10 * time.Second
	// room is the reciprocal of the part of the CPUs that must be free during
	// that time.
	room = 10
	// busy and leave are loads of LS work on a core. New seats avoid a core
	// from the load busy on. A seat moves away from a core only from the load
	// leave on, which is higher, so that a load near one limit moves no seat to
	// and fro.
	busy  unit.MilliCPU = 250
	leave unit.MilliCPU = 600
	// tries is the maximum number of workloads for which one call looks for
	// better CPUs.
	tries = 4
)

// State is kept between ticks as plain data.
type State struct {
	// Have are the seats of the workloads.
	Have map[node.WorkloadID]unit.CPUSet `json:"have,omitempty"`
	// May are all CPUs that the workloads with seats may use together.
	May unit.CPUSet `json:"may,omitzero"`
	// Pooled says that the demand exceeds the CPUs and all work shares them.
	// Fits is the time since when the demand has been small enough again; zero:
	// it is not.
	Pooled bool      `json:"pooled,omitempty"`
	Fits   time.Time `json:"fits,omitzero"`
}

// An Input is all that the choice of seats depends on.
type Input struct {
	Config
	// May are the CPUs that BE work may use, by workload. A workload that is
	// absent gets no seats.
	May map[node.WorkloadID]unit.CPUSet
	// Load is the mean use of each CPU by LS work. A CPU that is absent has no
	// known use.
	Load map[unit.CPU]unit.MilliCPU
	// Map is the topology; nil: it is compiled when seats are
	// chosen.
	Map  *pick.Map
	Snap node.Snapshot
}

// A Grant is what one workload with a limit has.
type Grant struct {
	// CPUs are its seats; empty: it has none.
	CPUs unit.CPUSet
	// Limit is its CPU limit. Full says that the seats are no more CPUs than
	// the limit. The seats then bound the work by themselves, and a quota would
	// only throttle it.
	Limit unit.MilliCPU
	Full  bool
	// How describes the grant, or says why the workload has no seats.
	How string
	at  []node.CgroupPath // the cgroups whose cpusets hold the seats
}

// Grants holds the grant of each workload that demands seats.
type Grants map[node.WorkloadID]Grant

// A claim is the demand of one workload for seats.
type claim struct {
	work  *node.Workload
	limit unit.MilliCPU
	cpus  int
	may   unit.CPUSet
	have  unit.CPUSet
}

// A round is one call of Decide.
type round struct {
	Input
	taken  unit.CPUSet // CPUs that have seats
	cores  map[unit.CPU]unit.CPUSet
	grants Grants
}

// Decide grants seats. A workload keeps its seats while it may use these CPUs
// and demands the same number. If the number changes, it keeps as many as it
// can. At most one workload in each call moves to better CPUs.
func (st State) Decide(in Input) (State, Grants) {
	if !in.Enable {
		return State{}, nil
	}
	claims, may := st.claims(in)
	if len(claims) == 0 {
		return State{}, nil
	}
	next := st.pool(claims, may.Len(), in.Snap.At)
	next.May = may
	r := round{Input: in, grants: make(Grants, len(claims))}
	if next.Pooled {
		for _, c := range claims {
			r.grants[c.work.ID] = Grant{Limit: c.limit, How: fmt.Sprintf(
				"work with a CPU limit demands %s and may use %s: all share them", facts.CountCPUs(demandOf(claims)), facts.CountCPUs(may.Len()))}
		}
		return next, r.grants
	}
	r.cores = coresOf(in.Snap.Topology)
	r.seat(claims)
	next.Have = make(map[node.WorkloadID]unit.CPUSet, len(claims))
	for id, g := range r.grants {
		if !g.CPUs.Empty() {
			next.Have[id] = g.CPUs
		}
	}
	return next, r.grants
}

// claims lists the workloads that demand seats, and all CPUs that they may use.
// Workloads that have seats come first.
func (st State) claims(in Input) ([]claim, unit.CPUSet) {
	all := make([]claim, 0, len(in.May))
	var union unit.CPUSet
	for i := range in.Snap.Workloads {
		w := &in.Snap.Workloads[i]
		may := in.May[w.ID]
		limit, limited := limitOf(w, in.Snap.Knobs)
		if may.Empty() || !limited {
			continue
		}
		n := int((limit + 999) / unit.CPUs(1))
		all = append(all, claim{work: w, limit: limit, cpus: min(n, may.Len()), may: may, have: st.Have[w.ID].Intersect(may)})
		union = union.Union(may)
	}
	slices.SortStableFunc(all, func(a, b claim) int {
		return cmp.Or(compareKept(a, b), cmp.Compare(b.work.Priority, a.work.Priority), strings.Compare(string(a.work.ID), string(b.work.ID)))
	})
	return all, union
}

// kept reports whether the workload has exactly the seats that it demands.
func (c claim) kept() bool { return c.have.Len() == c.cpus }

func compareKept(a, b claim) int {
	switch {
	case a.kept() == b.kept():
		return 0
	case a.kept():
		return -1
	}
	return 1
}

// limitOf returns the CPU limit that the owner of a BE workload set.
func limitOf(w *node.Workload, k node.Knobs) (unit.MilliCPU, bool) {
	if m, asked := w.CPULimit.Value(); asked {
		return m, w.Class == node.BE && m > 0
	}
	before, _ := facts.Original(k, node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}).(node.CPUMax)
	return facts.MilliOf(before), w.Class == node.BE && facts.IsQuota(before)
}

func demandOf(claims []claim) int {
	n := 0
	for _, c := range claims {
		n += c.cpus
	}
	return n
}

// pool decides whether all work shares the CPUs. It does so as soon as the
// demand exceeds the CPUs, and stops only when the demand has been less for a
// while.
func (st State) pool(claims []claim, cpus int, at time.Time) State {
	demand := demandOf(claims)
	switch {
	case demand > cpus:
		return State{Pooled: true}
	case !st.Pooled:
		return State{}
	case demand+cpus/room > cpus:
		return State{Pooled: true}
	}
	fits := st.Fits
	if fits.IsZero() || fits.After(at) {
		fits = at
	}
	if at.Sub(fits) >= calm {
		return State{}
	}
	return State{Pooled: true, Fits: fits}
}

// coresOf returns for each CPU the CPUs of its core.
func coresOf(t node.Topology) map[unit.CPU]unit.CPUSet {
	by := make(map[node.CoreID]unit.CPUSet, len(t.CPUs)/2)
	for _, c := range t.CPUs {
		by[c.Core] = by[c.Core].With(c.ID)
	}
	all := make(map[unit.CPU]unit.CPUSet, len(t.CPUs))
	for _, c := range t.CPUs {
		all[c.ID] = by[c.Core]
	}
	return all
}

// seat gives seats to all claims. Workloads that have theirs keep them.
func (r *round) seat(claims []claim) {
	var open []claim
	for _, c := range claims {
		if c.kept() && c.have.Intersect(r.taken).Empty() {
			r.give(c, c.have)
		} else {
			open = append(open, c)
		}
	}
	for _, c := range open {
		r.give(c, r.choose(c, c.have.Minus(r.taken)))
	}
	r.move(claims)
}

// move moves at most one workload to better CPUs. It considers workloads whose
// CPUs have flaws (see flaws). It looks at a few of them in each call, so that
// it reaches each within some calls, and at none while no core is free.
func (r *round) move(claims []claim) {
	var flawed []claim
	for _, c := range claims {
		if now := r.grants[c.work.ID].CPUs; !now.Empty() && r.flaws(now, leave) > 0 {
			flawed = append(flawed, c)
		}
	}
	if len(flawed) == 0 || !r.anyCoreIsFree() {
		return
	}
	first := int(r.Snap.At.Unix() % int64(len(flawed)))
	for i := range min(tries, len(flawed)) {
		c := flawed[(first+i)%len(flawed)]
		now := r.grants[c.work.ID].CPUs
		r.taken = r.taken.Minus(now)
		better := r.choose(c, unit.CPUSet{})
		if !better.Empty() && r.flaws(better, busy) < r.flaws(now, leave) {
			r.give(c, better)
			return
		}
		r.taken = r.taken.Union(now)
	}
}

func (r *round) anyCoreIsFree() bool {
	for _, core := range r.cores {
		if core.Intersect(r.taken).Empty() {
			return true
		}
	}
	return false
}

// give records the seats of a workload.
func (r *round) give(c claim, set unit.CPUSet) {
	g := Grant{CPUs: set, Limit: c.limit}
	if set.Empty() {
		g.How = fmt.Sprintf("%s has no seats: too few of the CPUs that it may use are free", c.work.ID)
	} else {
		g.Full = unit.CPUs(set.Len()) <= c.limit
		g.How = fmt.Sprintf("%s has seats on %s in place of time on %d", c.work.ID, facts.CountCPUs(set.Len()), c.may.Len())
	}
	r.taken = r.taken.Union(set)
	r.grants[c.work.ID] = g
}

// choose chooses the seats of a workload from the CPUs without seats. It
// prefers cores that have no other seats and little LS work. If these are not
// enough, it takes cores without other seats, then cores with little LS work,
// then any. The workload keeps the seats that it has.
func (r *round) choose(c claim, have unit.CPUSet) unit.CPUSet {
	if r.Map == nil {
		r.Map = pick.Compile(r.Snap.Topology)
	}
	free := c.may.Minus(r.taken)
	spread := r.oneOfEach(free, have)
	for _, from := range []unit.CPUSet{r.quiet(spread, have), spread, r.quiet(free, have), free} {
		seats := r.Map.Seats(r.Map.All().Minus(from), 0, nil)
		claim := pick.Claim{Grade: pick.Own, CPUs: c.cpus, Have: have.Intersect(from)}
		if o, no := r.Map.Fit(seats, claim); no == pick.Fits {
			return o.CPUs
		}
	}
	return unit.CPUSet{}
}

// oneOfEach returns one CPU of each core without seats of other work. If the
// workload has a CPU of that core, it returns that CPU.
func (r *round) oneOfEach(free, have unit.CPUSet) unit.CPUSet {
	var all unit.CPUSet
	for _, from := range []unit.CPUSet{have.Intersect(free), free} {
		for c := range from.All() {
			if core := r.cores[c]; core.Intersect(r.taken).Empty() && core.Intersect(all).Empty() {
				all = all.With(c)
			}
		}
	}
	return all
}

// quiet returns the CPUs of cores with little LS work, and the CPUs that the
// workload has.
func (r *round) quiet(from, have unit.CPUSet) unit.CPUSet {
	all := from.Intersect(have)
	for c := range from.All() {
		if r.load(c) < busy {
			all = all.With(c)
		}
	}
	return all
}

// load returns the use by LS work of the whole core to which a CPU belongs.
func (r *round) load(c unit.CPU) unit.MilliCPU {
	var sum unit.MilliCPU
	for s := range r.cores[c].All() {
		sum += r.Load[s]
	}
	return sum
}

// flaws counts the seats that share their core with another seat, or with LS
// work of at least the given load.
func (r *round) flaws(set unit.CPUSet, load unit.MilliCPU) int {
	n := 0
	for c := range set.All() {
		others := r.taken.Union(set).Intersect(r.cores[c])
		if others.Len() > 1 || r.load(c) >= load {
			n++
		}
	}
	return n
}
