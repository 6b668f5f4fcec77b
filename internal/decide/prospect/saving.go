package prospect

import (
	"cmp"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// A SavingCode says whether there is a saving, or why not.
type SavingCode string

// The codes. Without Counted, no node is saved.
const (
	Counted      SavingCode = "counted"
	NoBatchWork  SavingCode = "no-batch-work" // no work could be batch work: what lacks is work, not room
	BatchUnknown SavingCode = "unknown"       // which work could be batch work is not known
	Unmeasured   SavingCode = "unmeasured"    // it is known, but not the room or the use of any of its nodes
	NoRoom       SavingCode = "no-room"       // there is work, and no room for it
	OneNode      SavingCode = "one-node"      // a single node cannot be given back
)

// A Saving says how many nodes fewer would carry the same work if the work that could be
// batch work used the room. It is never more than such work: nodes that could be given
// back today, without Tenon, do not count.
type Saving struct {
	Code SavingCode `json:"code"`
	// Nodes is the number of nodes that count: their room, their use and their batch work
	// are known.
	Nodes int           `json:"nodes"`
	Work  unit.MilliCPU `json:"work_mcpu"` // the mean use of work that could be batch work
	// Low has the room that nodes have in 95 % of the time, High their mean room.
	Low  Moved `json:"low"`
	High Moved `json:"high"`
}

// Moved is what follows if work moves into a room.
type Moved struct {
	CPU   unit.MilliCPU `json:"cpu_mcpu"` // of the work that moves: the smaller of work and room
	Nodes int           `json:"nodes"`    // fewer
}

// piece is the greatest CPU that moves to another node as one. The packing would take
// larger pieces for granted that pods are smaller; no outlook knows their sizes.
const piece unit.MilliCPU = 1000

// A load is what a node carries at its busiest hour, and what it may carry: the share that
// the busiest node of its pool carries today.
type load struct {
	cpu, mostCPU       unit.MilliCPU
	memory, mostMemory unit.Bytes
	batch              unit.MilliCPU
	low, mean          unit.MilliCPU // of the room
	carried            unit.MilliCPU // before anything moved
	gone               bool
}

func savingOf(all []Outlook) Saving {
	pools := map[string][]load{}
	s := Saving{Code: Counted}
	named := false // of a node that does not count, which work could be batch work
	var low, mean unit.MilliCPU
	for i := range all {
		o := &all[i]
		l, known := loadOf(o)
		if !known {
			named = named || o.BatchCPU.Known()
			continue
		}
		s.Nodes++
		s.Work += l.batch
		low, mean = low+l.low, mean+l.mean
		pools[o.Pool] = append(pools[o.Pool], l)
	}
	switch {
	case s.Nodes == 0 && named:
		s.Code = Unmeasured
		return s
	case s.Nodes == 0:
		s.Code = BatchUnknown
		return s
	case s.Work == 0:
		s.Code = NoBatchWork
		return s
	case mean == 0:
		s.Code = NoRoom
		return s
	}
	s.Low.CPU, s.High.CPU = min(s.Work, low), min(s.Work, mean)
	if len(all) == 1 {
		s.Code = OneNode
		return s
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		pool := bounded(pools[name])
		today := spared(pool, 0, s.Work, nil)
		s.Low.Nodes += max(spared(pool, s.Low.CPU, s.Work, func(l *load) unit.MilliCPU { return l.low })-today, 0)
		s.High.Nodes += max(spared(pool, s.High.CPU, s.Work, func(l *load) unit.MilliCPU { return l.mean })-today, 0)
	}
	return s
}

// loadOf returns the load of a node at the busiest hour of the day.
func loadOf(o *Outlook) (l load, known bool) {
	batch, has := o.BatchCPU.Value()
	if !has || o.All.CPU.Steps == 0 {
		return l, false
	}
	for h := range o.Hours {
		cpu, hasCPU := o.Hours[h].CPU.Used.Value()
		memory, hasMemory := o.Hours[h].Memory.Used.Value()
		known = known || hasCPU && hasMemory
		l.cpu, l.memory = max(l.cpu, cpu), max(l.memory, memory)
	}
	l.mostCPU, l.mostMemory, l.batch = o.CPU, o.Memory, min(batch, l.cpu)
	l.low, l.mean = o.All.CPU.Low, o.All.CPU.Mean
	return l, known && o.CPU > 0 && o.Memory > 0
}

// bounded lets each node of a pool carry the share of its capacity that the busiest one
// carries today.
func bounded(pool []load) []load {
	var cpu, memory float64
	for _, l := range pool {
		cpu = max(cpu, float64(l.cpu)/float64(l.mostCPU))
		memory = max(memory, float64(l.memory)/float64(l.mostMemory))
	}
	for i := range pool {
		l := &pool[i]
		l.mostCPU = unit.MilliCPU(float64(l.mostCPU) * cpu)
		l.mostMemory = unit.Bytes(float64(l.mostMemory) * memory)
	}
	return pool
}

// spared returns how many nodes of a pool can be emptied after a part of the batch work
// (moves of work) has gone into the room, which room names. It empties the nodes with the
// smallest load first, by first fit. The room of the nodes that remain must hold the batch
// work. Where that leaves the other work, the room grows by as much as it fills. It shrinks
// by the room of a node that goes, and by all that this node carried.
func spared(pool []load, moves, work unit.MilliCPU, room func(*load) unit.MilliCPU) (nodes int) {
	pool = slices.Clone(pool)
	var left unit.MilliCPU // room beyond what the batch work fills
	for i := range pool {
		l := &pool[i]
		l.carried = l.cpu
		l.cpu -= unit.MilliCPU(int64(l.batch) * int64(moves) / int64(work))
		if room != nil {
			left += room(l)
		}
	}
	share := func(l load) float64 {
		return max(float64(l.cpu)/float64(max(l.mostCPU, 1)), float64(l.memory)/float64(max(l.mostMemory, 1)))
	}
	slices.SortFunc(pool, func(a, b load) int { return cmp.Compare(share(a), share(b)) })
	for i := range pool[:len(pool)-1] {
		l := &pool[i]
		if room != nil {
			if left -= room(l) + l.carried; left < 0 {
				break
			}
		}
		if !empty(pool, i) {
			break
		}
		nodes++
	}
	return nodes
}

// empty moves the work of a node to the others, in pieces of equal size, and reports
// whether it fits. If it does not, a part of it has moved.
func empty(pool []load, from int) bool {
	l := &pool[from]
	l.gone = true
	pieces := max((l.cpu+piece-1)/piece, 1)
	cpu, memory := l.cpu/pieces, l.memory/unit.Bytes(pieces)
	to := 0
	for range pieces {
		for to < len(pool) && !pool[to].takes(cpu, memory) {
			to++ // the pieces are equal: a node that does not take this one takes no later one
		}
		if to == len(pool) {
			return false
		}
		pool[to].cpu, pool[to].memory = pool[to].cpu+cpu, pool[to].memory+memory
	}
	return true
}

func (l *load) takes(cpu unit.MilliCPU, memory unit.Bytes) bool {
	return !l.gone && l.cpu+cpu <= l.mostCPU && l.memory+memory <= l.mostMemory
}
