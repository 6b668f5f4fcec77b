package plugin

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

// An order has the positions of the nodes of the scheduler in the order of its
// list. The nodes that a pod may have come nearly in this order. So their
// positions are found without an access to the nodes themselves, which are not in
// the caches of the processor.
type order struct {
	list  []fwk.NodeInfo // the scheduler's own; it makes a new one if nodes come or go
	nodes []fwk.NodeInfo // a copy of the list
	at    []int32        // the positions of the nodes, or -1
	index []int32        // by position: the index of the node in the list, or -1
}

// follow learns the order of the scheduler's list of nodes.
func (x *index) follow(list []fwk.NodeInfo) {
	if o := x.order.Load(); len(list) == 0 || o != nil && len(o.list) == len(list) && &o.list[0] == &list[0] {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	o := &order{list: list, nodes: slices.Clone(list), at: make([]int32, len(list)), index: make([]int32, len(x.slots))}
	for i := range o.index {
		o.index[i] = -1
	}
	for i, n := range list {
		at, known := x.names[n.Node().Name]
		if !known {
			o.at[i] = -1
			continue
		}
		o.at[i], o.index[at] = at, int32(i)
	}
	x.order.Store(o)
}

// A walk finds nodes one after the other. Two processors or more put the nodes
// into the list of a pod, each of them a part of the order, so that the walk goes
// on in several places at once.
type walk struct {
	*order
	last [walks]int // indexes of the nodes that were found last
	turn int
}

const (
	walks = 4 // number of places in which a walk goes on
	ahead = 4 // number of nodes that a walk looks at in each place: some were refused
)

func (o *order) walk() walk { return walk{order: o} }

// next returns the position of a node, or false if the node is in none of the
// places.
func (w *walk) next(n fwk.NodeInfo) (int32, bool) {
	if w.order == nil {
		return 0, false
	}
	for j, last := range w.last {
		for i := last; i < min(last+ahead, len(w.nodes)); i++ {
			if w.nodes[i] == n {
				w.last[j] = i + 1
				return w.at[i], true
			}
		}
	}
	return 0, false
}

// skip lets the walk go on after the node at a position.
func (w *walk) skip(at int32) {
	if w.order == nil || at < 0 || w.index[at] < 0 {
		return
	}
	w.last[w.turn%walks] = int(w.index[at]) + 1
	w.turn++
}
