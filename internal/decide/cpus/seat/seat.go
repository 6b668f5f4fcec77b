// Package seat chooses CPUs for best-effort (BE) work with a CPU limit: as many
// as its limit, rounded up. A program with many threads can then run all the
// time on a few CPUs. With a quota it would run on all CPUs for a moment, and
// then be stopped. The chosen CPUs are called seats.
//
// While there are enough cores, each seat is on a core of its own. If there are
// not enough, seats share cores. If BE work demands more CPUs than it may use,
// there are no seats, and all work shares the CPUs by its quotas.
//
// The virtual workers of slices get their CPUs in the same way. Each worker
// gets as many CPUs as the slice says, for all work in the worker.
package seat

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config configures seats.
type Config struct {
	// Enable gives seats to BE work with a CPU limit (policies.cpuLimitSeats).
	Enable bool `json:"enable,omitempty"`
	// Slices have virtual workers for the BE work that rules match (slices).
	Slices []worker.Slice `json:"slices,omitempty"`
}

func (c Config) on() bool { return c.Enable || len(c.Slices) > 0 }

const (
	// After the demand was too large, it must fit for the time calmTime before
	// work gets seats again.
	calmTime = 10 * time.Second
	// The demand fits if it leaves at least 1/spareDivisor of the CPUs free.
	spareDivisor = 10
	// A new seat avoids a core whose load of LS work is at least busyLoad. A
	// seat leaves a core only if that load is at least leaveLoad. The gap
	// between the two prevents that seats move to and fro.
	busyLoad  unit.MilliCPU = 250
	leaveLoad unit.MilliCPU = 600
	// tries is the maximum number of workloads for which one call looks for
	// better CPUs.
	tries = 4
)

// State is the data that Decide keeps between ticks.
type State struct {
	// Have are the seats of the workloads.
	Have map[node.WorkloadID]unit.CPUSet `json:"have,omitempty"`
	// In maps each workload of a slice to its virtual worker. Workers lists the
	// CPUs of these workers.
	In      worker.Places `json:"in,omitempty"`
	Workers []WorkerCPUs  `json:"workers,omitempty"`
	// May are all CPUs that the workloads with seats may use, taken together.
	May unit.CPUSet `json:"may,omitzero"`
	// Sharing says that the demand exceeds the CPUs, and all work shares them.
	// Fits is the time since which the demand has been small enough again, or
	// zero if it is too large.
	Sharing bool      `json:"sharing,omitempty"`
	Fits    time.Time `json:"fits,omitzero"`
}

// WorkerCPUs are the CPUs of a virtual worker.
type WorkerCPUs struct {
	worker.Place
	CPUs unit.CPUSet `json:"cpu_set"`
}

// An Input is all that the choice of seats depends on.
type Input struct {
	Config
	// May are the CPUs that BE work may use, by workload. A workload that is
	// absent gets no seats.
	May map[node.WorkloadID]unit.CPUSet
	// Load is the mean usage of each CPU by LS work. If a CPU is absent, its
	// usage is not known.
	Load map[unit.CPU]unit.MilliCPU
	// Map is the compiled topology. If it is nil, Decide compiles the topology
	// when it chooses seats.
	Map  *pick.Map
	Snap node.Snapshot
}

// A Grant holds the seats that one workload with a limit gets.
type Grant struct {
	// CPUs are its seats. The set is empty if it has none.
	CPUs unit.CPUSet
	// Limit is its CPU limit. Full says that the number of seats does not
	// exceed the limit. Then the seats themselves bound the work, and a quota
	// would only throttle it.
	Limit unit.MilliCPU
	Full  bool
	// How describes the grant, or says why the workload has no seats.
	How string
	at  []node.CgroupPath // the cgroups whose cpusets hold the seats
}

// Grants holds the grant of each workload that demands seats.
type Grants map[node.WorkloadID]Grant

// A round holds the input and the result of one call of Decide.
type round struct {
	Input
	all    unit.CPUSet // CPUs that any of the work may use
	taken  unit.CPUSet // CPUs that have seats
	cores  cores
	grants Grants
}

// Decide grants seats. A workload keeps its seats while it may use these CPUs
// and demands the same number. If the number changes, it keeps as many as
// possible. In each call, at most one workload moves to better CPUs.
func (st State) Decide(in Input) (State, Grants) {
	if !in.on() {
		return State{}, nil
	}
	places := worker.Assign(in.Slices, st.In, in.Snap.Workloads, func(id node.WorkloadID) bool { return !in.May[id].Empty() })
	claims, may := st.claims(in, places)
	if len(claims) == 0 {
		return State{}, nil
	}
	next := st.share(claims, may.Len(), in.Snap.At)
	next.May, next.In = may, places
	r := round{Input: in, all: may, grants: make(Grants, len(claims))}
	if next.Sharing {
		how := fmt.Sprintf("%s demands %s and may use %s: all share them", in.nameWork(), facts.CountCPUs(demandOf(claims)), facts.CountCPUs(may.Len()))
		for _, c := range claims {
			for w := range c.members() {
				limit, _ := limitOf(w, in.Snap.Knobs)
				r.grants[w.ID] = Grant{Limit: limit, How: how}
			}
		}
		return next, r.grants
	}
	r.cores = coresOf(in.Snap.Topology)
	r.seat(claims)
	next.Have = make(map[node.WorkloadID]unit.CPUSet, len(claims))
	for _, c := range claims {
		switch set := r.grants[c.work.ID].CPUs; {
		case set.Empty():
		case c.at.Slice != "":
			next.Workers = append(next.Workers, WorkerCPUs{c.at, set})
		default:
			next.Have[c.work.ID] = set
		}
	}
	slices.SortFunc(next.Workers, func(a, b WorkerCPUs) int { return a.Compare(b.Place) })
	return next, r.grants
}

// nameWork names the work that demands CPUs.
func (c Config) nameWork() string {
	switch {
	case len(c.Slices) == 0:
		return "work with a CPU limit"
	case c.Enable:
		return "work in slices or with a CPU limit"
	}
	return "work in slices"
}

// Slices returns the slices, with the CPUs and the work of their workers.
func (st State) Slices(c Config) []worker.Status {
	if len(c.Slices) == 0 {
		return nil
	}
	return worker.StatusOf(c.Slices, st.In, st.cpusOf)
}

func (st State) cpusOf(p worker.Place) unit.CPUSet {
	if i, found := slices.BinarySearchFunc(st.Workers, p, func(w WorkerCPUs, p worker.Place) int { return w.Compare(p) }); found {
		return st.Workers[i].CPUs
	}
	return unit.CPUSet{}
}

// share decides whether all work shares the CPUs. The sharing starts as soon as
// the demand exceeds the CPUs, and ends only when the demand has been lower for
// a while.
func (st State) share(claims []claim, cpus int, at time.Time) State {
	demand := demandOf(claims)
	switch {
	case demand > cpus:
		return State{Sharing: true}
	case !st.Sharing:
		return State{}
	case demand+cpus/spareDivisor > cpus:
		return State{Sharing: true}
	}
	fits := st.Fits
	if fits.IsZero() || fits.After(at) {
		fits = at
	}
	if at.Sub(fits) >= calmTime {
		return State{}
	}
	return State{Sharing: true, Fits: fits}
}

// cores holds for each CPU the next CPU of its core. After the last CPU of a
// core comes its first. For a CPU that is offline, the entry is -1.
type cores []unit.CPU

func coresOf(t node.Topology) cores {
	first := make(map[node.CoreID]unit.CPU, len(t.CPUs)/2)
	next := make(cores, 0, len(t.CPUs))
	for i := range t.CPUs {
		c := t.CPUs[i].ID
		for len(next) <= int(c) {
			next = append(next, -1)
		}
		f, begun := first[t.CPUs[i].Core]
		if !begun {
			first[t.CPUs[i].Core], next[c] = c, c
			continue
		}
		next[c], next[f] = next[f], c
	}
	return next
}

// cpusOfCore iterates over the CPUs of the core of c. There are none if c is
// offline.
func (next cores) cpusOfCore(c unit.CPU) iter.Seq[unit.CPU] {
	return func(yield func(unit.CPU) bool) {
		if int(c) >= len(next) || next[c] < 0 {
			return
		}
		for s := c; yield(s); {
			if s = next[s]; s == c {
				return
			}
		}
	}
}

// countIn counts the CPUs of the core of c that are in a set.
func (next cores) countIn(set *unit.CPUSet, c unit.CPU) int {
	n := 0
	for s := range next.cpusOfCore(c) {
		if set.Has(s) {
			n++
		}
	}
	return n
}

// seat gives seats to all claims. Workloads that already have their seats keep
// them.
func (r *round) seat(claims []claim) {
	var open []claim
	for _, c := range claims {
		if c.complete && c.have.Intersect(r.taken).Empty() {
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
// CPUs have flaws (see flaws). In each call it looks at a few of them, so that
// it reaches all within some calls. While no core is free, it looks at none.
func (r *round) move(claims []claim) {
	var flawed []*claim
	for i := range claims {
		c := &claims[i]
		if now := r.grants[c.work.ID].CPUs; !now.Empty() && r.flaws(now, leaveLoad) > 0 {
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
		better := r.choose(*c, unit.CPUSet{})
		if !better.Empty() && r.flaws(better, busyLoad) < r.flaws(now, leaveLoad) {
			r.give(*c, better)
			return
		}
		r.taken = r.taken.Union(now)
	}
}

// anyCoreIsFree reports whether a core without seats has a CPU that work may
// use.
func (r *round) anyCoreIsFree() bool {
	for c := range r.all.All() {
		if r.cores.countIn(&r.taken, c) == 0 {
			return true
		}
	}
	return false
}

// give records the seats of a workload, or of all workloads of a worker. If the
// worker has no more CPUs than the limit of a workload, that workload needs no
// quota.
func (r *round) give(c claim, set unit.CPUSet) {
	r.taken = r.taken.Union(set)
	if c.at.Slice == "" {
		r.grants[c.work.ID] = grantOf(c.work.ID, c.limit, set, c.may)
		return
	}
	place := fmt.Sprintf(" is in %v, which has no CPUs: too few of the CPUs that it may use are free", c.at)
	if n := set.Len(); n > 0 {
		place = fmt.Sprintf(" is in %v, which has %s", c.at, facts.CountCPUs(n))
	}
	for w := range c.members() {
		limit, limited := limitOf(w, r.Snap.Knobs)
		g := Grant{CPUs: set, Limit: limit, Full: limited && !set.Empty() && unit.CPUs(set.Len()) <= limit}
		g.How = string(w.ID) + place
		r.grants[w.ID] = g
	}
}

// grantOf returns what one workload gets for its CPU limit.
func grantOf(id node.WorkloadID, limit unit.MilliCPU, set, may unit.CPUSet) Grant {
	g := Grant{CPUs: set, Limit: limit}
	if set.Empty() {
		g.How = fmt.Sprintf("%s has no seats: too few of the CPUs that it may use are free", id)
	} else {
		g.Full = unit.CPUs(set.Len()) <= limit
		g.How = fmt.Sprintf("%s has seats on %s in place of time on %d", id, facts.CountCPUs(set.Len()), may.Len())
	}
	return g
}

// choose chooses the seats of a workload among the CPUs without seats. It
// prefers cores that have no other seats and little LS work. If these are not
// enough, it takes cores without other seats, then cores with little LS work,
// and then any. The workload keeps the seats that it has.
func (r *round) choose(c claim, have unit.CPUSet) unit.CPUSet {
	if r.Map == nil {
		r.Map = pick.Compile(r.Snap.Topology)
	}
	free := c.may.Minus(r.taken)
	all := r.Map.All()
	for _, set := range [...]unit.CPUSet{r.oneOfEach(free, have), free} {
		if set.Len() < c.cpus {
			continue // Fit finds that out, too, but it then looks for the reason
		}
		for _, from := range [...]unit.CPUSet{r.quietCPUs(set, have), set} {
			if from.Len() < c.cpus {
				continue
			}
			seats := r.Map.Seats(all.Minus(from), 0, nil)
			request := cpus.Request{Policy: cpus.Exclusive, CPUs: c.cpus}
			if o, no := r.Map.Resize(seats, request, have.Intersect(from)); no == cpus.Fits {
				return o.CPUs
			}
		}
	}
	return unit.CPUSet{}
}

// oneOfEach returns one CPU of each core on which no other work has seats. If
// the workload has a CPU of that core, oneOfEach returns that CPU.
func (r *round) oneOfEach(free, have unit.CPUSet) unit.CPUSet {
	var all unit.CPUSet
	for _, from := range []unit.CPUSet{have.Intersect(free), free} {
		for c := range from.All() {
			if r.cores.countIn(&r.taken, c) == 0 && r.cores.countIn(&all, c) == 0 {
				all.Add(c)
			}
		}
	}
	return all
}

// quietCPUs returns the CPUs whose cores have little LS work, and the CPUs that
// the workload already has.
func (r *round) quietCPUs(from, have unit.CPUSet) unit.CPUSet {
	all := from.Intersect(have)
	for c := range from.All() {
		if r.load(c) < busyLoad {
			all.Add(c)
		}
	}
	return all
}

// load returns how much CPU the LS work on the core of a CPU uses.
func (r *round) load(c unit.CPU) unit.MilliCPU {
	var sum unit.MilliCPU
	for s := range r.cores.cpusOfCore(c) {
		sum += r.Load[s]
	}
	return sum
}

// flaws counts the CPUs of set that have a flaw: another seat on the same core,
// or LS work that uses at least the given load of CPU time on this core.
func (r *round) flaws(set unit.CPUSet, load unit.MilliCPU) int {
	n := 0
	all := r.taken.Union(set)
	for c := range set.All() {
		if r.cores.countIn(&all, c) > 1 || r.load(c) >= load {
			n++
		}
	}
	return n
}
