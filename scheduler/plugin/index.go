package plugin

import (
	"hash/maphash"
	"maps"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/place"
)

// An index finds the present view of a node. Readers take no lock; an index
// does not change, except that views are replaced and that lookups fill the
// table. The map is replaced when a node comes or goes.
type index struct {
	slots map[string]*slot // by name
	*table
}

// A slot is one node. node is the object of the node with which it was found
// last.
type slot struct {
	view atomic.Pointer[place.View]
	node atomic.Pointer[corev1.Node]
}

// A table finds slots by the object of the node. A filter asks for hundreds of
// nodes for each pod, and the names of most of them are not in the caches of the
// processor, while the address of the object is at hand. A slot that is not
// where it is looked for is found by its name.
type table struct {
	seed  maphash.Seed
	slots []atomic.Pointer[slot] // a power of two
}

const (
	probes    = 4  // places in which a slot is looked for
	leastSize = 64 // of a table
)

func newIndex(slots map[string]*slot) *index {
	n := leastSize
	for n < 4*len(slots) {
		n *= 2
	}
	return &index{slots, &table{maphash.MakeSeed(), make([]atomic.Pointer[slot], n)}}
}

// with returns the index with one more node.
func (x *index) with(name string, v *place.View) *index {
	slots := maps.Clone(x.slots)
	slots[name] = &slot{}
	slots[name].view.Store(v)
	if len(x.table.slots) < 2*len(slots) {
		return newIndex(slots)
	}
	return &index{slots, x.table}
}

// without returns the index without a node. Its table is a new one, so that
// nothing finds the slot any more.
func (x *index) without(name string) *index {
	slots := maps.Clone(x.slots)
	delete(slots, name)
	return newIndex(slots)
}

// named returns the view of a node by its name.
func (x *index) named(name string) *place.View {
	if s := x.slots[name]; s != nil {
		return s.view.Load()
	}
	return noView
}

// of returns the view of a node by its object.
func (x *index) of(n *corev1.Node) *place.View {
	all := x.table.slots
	at := int(maphash.Comparable(x.seed, n))
	for i := range probes {
		if s := all[(at+i)&(len(all)-1)].Load(); s != nil && s.node.Load() == n {
			return s.view.Load()
		}
	}
	return x.learn(n, at)
}

// learn finds a node by its name, and puts it where it is looked for next time.
func (x *index) learn(n *corev1.Node, at int) *place.View {
	s := x.slots[n.Name]
	if s == nil {
		return noView
	}
	s.node.Store(n)
	all := x.table.slots
	for i := range probes {
		if p := &all[(at+i)&(len(all)-1)]; p.Load() == nil {
			p.Store(s)
			return s.view.Load()
		}
	}
	all[at&(len(all)-1)].Store(s)
	return s.view.Load()
}
