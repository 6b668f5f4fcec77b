// Package seat chooses CPUs for best-effort (BE) work with a CPU limit, in place
// of time on all CPUs: as many CPUs as the limit, rounded up. A program of many
// threads then runs all the time on few CPUs, where a quota would let it run on
// all of them for a moment and then stop it.
//
// While there are enough cores, each seat is on a core of its own; then seats
// use the siblings; and when BE work demands more CPUs than it may use, all
// share the CPUs by their quotas, without seats.
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

// Config is the configuration of seats.
type Config struct {
	// Enable gives seats to BE work with a CPU limit (policies.cpuLimitSeats).
	Enable bool `json:"enable,omitempty"`
}

const (
	// calm is the time for which the demand must fit before work leaves the pool.
	calm = 10 * time.Second
	// room is the part of the CPUs, as its reciprocal, that must be left then.
	room = 10
	// busy is the load of LS work on a core from which seats avoid it, and leave
	// the load from which a seat moves away: more, so that a load near one of
	// them moves nothing to and fro.
	busy  unit.MilliCPU = 250
	leave unit.MilliCPU = 600
	// tries bounds the workloads for which one call looks for better CPUs.
	tries = 4
)

// State is the plain data that is kept between ticks.
type State struct {
	// Have are the seats of the workloads.
	Have map[node.WorkloadID]unit.CPUSet `json:"have,omitempty"`
	// May are all CPUs that these workloads may use.
	May unit.CPUSet `json:"may,omitzero"`
	// Pooled: the demand is more than the CPUs, and all share them. Fits is the
	// time since which it is not; zero: it is.
	Pooled bool      `json:"pooled,omitempty"`
	Fits   time.Time `json:"fits,omitzero"`
}

// An Input is what seats depend on.
type Input struct {
	Config
	// May are the CPUs that BE work may use, by workload. A workload that is
	// absent gets no seats.
	May map[node.WorkloadID]unit.CPUSet
	// Load is the mean use of each CPU by LS work; absent: not known to be used.
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
	// Limit is its limit. Full: the seats are no more CPUs than the limit, so that
	// they are the limit, and a quota would only throttle.
	Limit unit.MilliCPU
	Full  bool
	// How describes the grant, or says why there are no seats.
	How string
	at  []node.CgroupPath // the cgroups whose cpusets hold the seats
}

// Grants are those of all workloads that demand seats.
type Grants map[node.WorkloadID]Grant

// A claim is the demand of one workload.
type claim struct {
	work  *node.Workload
	limit unit.MilliCPU
	cpus  int
	may   unit.CPUSet
	have  unit.CPUSet
}

// A round is one decision.
type round struct {
	Input
	taken  unit.CPUSet // by seats
	cores  map[unit.CPU]unit.CPUSet
	grants Grants
}

// Decide grants seats. A workload keeps its seats while it may use these CPUs
// and demands the same number; a number that changes grows or shrinks in place.
// At most one workload in each call moves to better CPUs.
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

// claims lists the workloads that demand seats, those that have some first, and
// all CPUs that they may use.
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

// limitOf returns the CPU limit of a BE workload, by its owner.
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

// pool decides whether all work shares the CPUs: at once if the demand is more
// than the CPUs, and until it has been less for a while.
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

// coresOf returns the CPUs of the core of each CPU.
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

// seat gives seats to all claims: those that have theirs keep them.
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
// CPUs have flaws (see flaws): a few in each call, so that within some calls each
// is tried, and none while no core is free.
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

// choose chooses the seats of a workload from the CPUs without seats: on cores
// without other seats and without much LS work, if there are enough; then on
// cores without other seats; then on quiet cores; then on any. The workload keeps
// what it has.
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

// oneOfEach returns one CPU of each core that has no seats of others; one that
// the workload has comes first.
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

// quiet returns the CPUs of cores without much LS work, and those that the
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

// load returns the use of the core of a CPU by LS work.
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
