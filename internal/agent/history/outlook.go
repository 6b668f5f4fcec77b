package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
)

// ReadNode returns what the history in a directory says about a node, from a minute on
// and before another one. Its steps are minutes; without a minute of history it has none.
// of has what the history does not say: name, pool, capacities and Spare. batch reports
// whether a workload that does not run as BE could be batch work. If it is nil, this is
// not known of any workload.
func ReadNode(dir string, first, end int64, of prospect.Node, batch func(workload string) bool) (prospect.Node, []Damage, error) {
	return ReadNodeBy(dir, first, end, of, batch, func() error { return nil })
}

// ReadNodeBy is like ReadNode, and calls each after each minute. An error of each ends
// the reading.
func ReadNodeBy(dir string, first, end int64, of prospect.Node, batch func(workload string) bool, each func() error) (prospect.Node, []Damage, error) {
	of.Step = 1
	g := gatherer{node: of, isBatch: batch, hurt: map[hurtKey]*prospect.Hurt{}, services: map[string]bool{}}
	damages, err := Read(dir, first, end, func(m *Minute) error {
		g.add(m)
		return each()
	})
	return g.done(), damages, err
}

// A gatherer fills a node with minutes.
type gatherer struct {
	node    prospect.Node
	isBatch func(workload string) bool
	next    int64 // the minute after the last one; 0: there was none
	hurt    map[hurtKey]*prospect.Hurt
	// services are those of the minute. The map is made once: a week has ten thousand
	// minutes.
	services map[string]bool
}

// A hurtKey has the fields of prospect.Hurt with these names.
type hurtKey struct{ service, by string }

func (g *gatherer) columns() []*[]int64 {
	n := &g.node
	return []*[]int64{&n.RoomCPU, &n.RoomMemory, &n.UsedCPU, &n.UsedMemory, &n.BatchCPU}
}

// add adds a minute. A minute that is not later than the last one is one that the
// clock has shown twice: the first one counts.
func (g *gatherer) add(m *Minute) {
	if m.At < g.next {
		return
	}
	if g.next == 0 {
		g.node.Start, g.next = m.At, m.At
	}
	hole := int(m.At - g.next)
	g.next = m.At + 1
	for _, c := range g.columns() {
		for range hole + 1 {
			*c = append(*c, prospect.Absent)
		}
	}
	n := &g.node
	last := len(n.RoomCPU) - 1
	for _, r := range m.Rows[Node] {
		n.RoomCPU[last], n.RoomMemory[last] = r.Values[nodeColumns.roomCPU], r.Values[nodeColumns.roomMemory]
		n.UsedCPU[last], n.UsedMemory[last] = r.Values[nodeColumns.cpu], r.Values[nodeColumns.workingSet]
	}
	g.work(m.Rows[Work], last)
	for _, r := range m.Rows[Pair] {
		waiter, runner, _ := strings.Cut(r.Name, pairMark)
		if g.services[waiter] && runner != waiter && !isNoOne(runner) {
			g.blame(waiter, runner, r.Values[pairColumns.wait])
		}
	}
}

// work adds the rows of the workloads of a minute. If the CPU of
// one workload that could be batch work is not known, their sum is not known.
func (g *gatherer) work(rows []Row, last int) {
	clear(g.services)
	batch := int64(0)
	for _, r := range rows {
		if class := r.Values[workColumns.class]; class == classBE || class == Absent {
			continue
		}
		g.services[r.Name] = true
		g.blame(r.Name, "", r.Values[workColumns.throttled])
		if g.isBatch == nil || !g.isBatch(r.Name) {
			continue
		}
		if used := r.Values[workColumns.cpu]; used == Absent || batch == Absent {
			batch = Absent
		} else {
			batch += used
		}
	}
	if g.isBatch != nil {
		g.node.BatchCPU[last] = batch
	}
}

// blame adds what a service has lost in a minute.
func (g *gatherer) blame(service, by string, millis int64) {
	lost := time.Duration(millis) * time.Millisecond
	if millis == Absent || lost < leastWait {
		return
	}
	key := hurtKey{service, by}
	h := g.hurt[key]
	if h == nil {
		g.makeRoom()
		// Clones do not keep the names of a day in memory.
		h = &prospect.Hurt{Service: strings.Clone(service), By: strings.Clone(by)}
		g.hurt[hurtKey{h.Service, h.By}] = h
	}
	h.Minutes++
	h.Lost += lost
}

// mostPairsRead bounds the memory of a reader: on a node with many short jobs, each of
// them makes pairs.
const mostPairsRead = 8192

// makeRoom forgets the half of the pairs that lost the least, if there are too many.
func (g *gatherer) makeRoom() {
	if len(g.hurt) < mostPairsRead {
		return
	}
	least := make([]time.Duration, 0, len(g.hurt))
	for _, h := range g.hurt {
		least = append(least, h.Lost)
	}
	slices.Sort(least)
	middle := least[len(least)/2]
	maps.DeleteFunc(g.hurt, func(_ hurtKey, h *prospect.Hurt) bool { return h.Lost <= middle })
}

// isNoOne reports whether a runner is no work: an idle CPU, or one that is not known.
func isNoOne(runner string) bool {
	return runner == string(node.RunnerIdle) || runner == string(node.RunnerElsewhere)
}

// done returns the node. A column without a value was not measured at all.
func (g *gatherer) done() prospect.Node {
	for _, c := range g.columns() {
		if !slices.ContainsFunc(*c, func(v int64) bool { return v != prospect.Absent }) {
			*c = nil
		}
	}
	n := g.node
	for _, h := range g.hurt {
		n.Hurt = append(n.Hurt, *h)
	}
	slices.SortFunc(n.Hurt, func(a, b prospect.Hurt) int {
		return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Service, b.Service), cmp.Compare(a.By, b.By))
	})
	return n
}

var (
	nodeColumns = struct{ roomCPU, roomMemory, cpu, workingSet int }{
		Column(Node, "room_cpu_mcpu"), Column(Node, "room_memory_mib"), Column(Node, "cpu_mcpu"), Column(Node, "working_set_mib"),
	}
	workColumns = struct{ class, cpu, throttled int }{Column(Work, "class"), Column(Work, "cpu_mcpu"), Column(Work, "throttled_ms")}
	pairColumns = struct{ wait int }{Column(Pair, "wait_ms")}

	classBE = int64(slices.Index(node.Classes[:], node.BE))
)
