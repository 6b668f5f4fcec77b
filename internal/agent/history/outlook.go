package history

import (
	"cmp"
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
	of.Step = 1
	g := gatherer{node: of, isBatch: batch, hurt: map[string]*prospect.Hurt{}}
	damages, err := Read(dir, first, end, func(m *Minute) error {
		g.add(m)
		return nil
	})
	return g.done(), damages, err
}

// A gatherer fills a node with minutes.
type gatherer struct {
	node    prospect.Node
	isBatch func(workload string) bool
	next    int64                     // the minute after the last one; 0: there was none
	hurt    map[string]*prospect.Hurt // by PairName
}

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
		*c = append(*c, slices.Repeat([]int64{prospect.Absent}, hole+1)...)
	}
	n := &g.node
	last := len(n.RoomCPU) - 1
	for _, r := range m.Rows[Node] {
		n.RoomCPU[last], n.RoomMemory[last] = r.Values[nodeColumns.roomCPU], r.Values[nodeColumns.roomMemory]
		n.UsedCPU[last], n.UsedMemory[last] = r.Values[nodeColumns.cpu], r.Values[nodeColumns.workingSet]
	}
	served := g.work(m.Rows[Work], last)
	for _, r := range m.Rows[Pair] {
		waiter, runner, _ := strings.Cut(r.Name, pairMark)
		if served[waiter] && runner != waiter && !isNoOne(runner) {
			g.blame(waiter, runner, r.Values[pairColumns.wait])
		}
	}
}

// work adds the rows of the workloads of a minute. It returns the services. If the CPU of
// one workload that could be batch work is not known, their sum is not known.
func (g *gatherer) work(rows []Row, last int) (services map[string]bool) {
	services = make(map[string]bool, len(rows))
	batch := int64(0)
	for _, r := range rows {
		if class := r.Values[workColumns.class]; class == classBE || class == Absent {
			continue
		}
		services[r.Name] = true
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
	return services
}

// blame adds what a service has lost in a minute.
func (g *gatherer) blame(service, by string, millis int64) {
	lost := time.Duration(millis) * time.Millisecond
	if millis == Absent || lost < leastWait {
		return
	}
	key := PairName(service, by)
	h := g.hurt[key]
	if h == nil {
		h = &prospect.Hurt{Service: strings.Clone(service), By: strings.Clone(by)}
		g.hurt[key] = h
	}
	h.Minutes++
	h.Lost += lost
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
