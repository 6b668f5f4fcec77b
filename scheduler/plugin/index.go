package plugin

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/decide/place"
)

// An index finds the present view of a node. A filter asks for hundreds of nodes
// for each pod, whose names and views are not in the caches of the processor. So
// each node has a position in arrays, which is found by the address of the
// object of the node, and the answers to a demand stand in an array by position.
// Views are replaced and nodes come and go while others read; a position is
// never given twice.
type index struct {
	slots []slot
	// hints are positions plus one, by the address of the object of a node. A
	// hint may be wrong: the slot has the object.
	hints []atomic.Uint32
	seed  maphash.Seed

	mu    sync.RWMutex
	names map[string]int32 // the positions of the nodes
	used  int32            // number of positions that were given
	sets  map[pick.Claim]*answers
	turn  uint64 // counts the demands that asked for their answers
}

// A slot is what the index has at one position.
type slot struct {
	node    atomic.Pointer[corev1.Node] // with which the position was found last
	view    atomic.Pointer[place.View]
	changes atomic.Uint64 // of the view
}

// answers are those of all nodes to one claim. They are found when they are
// asked for the first time since a node changed.
type answers struct {
	index *index
	cells []atomic.Uint64 // by position: the number of changes, and in the lowest byte the answer
	turn  uint64          // of the last demand
}

const (
	probes    = 4  // places in which a hint is looked for
	leastSize = 64 // of an index
	mostSets  = 64 // of answers
	low       = 8  // bits of a cell that are the answer
)

func newIndex(size int) *index {
	n := 1
	for n < 2*size {
		n *= 2
	}
	return &index{
		slots: make([]slot, size), hints: make([]atomic.Uint32, n), seed: maphash.MakeSeed(), names: map[string]int32{}, sets: map[pick.Claim]*answers{},
	}
}

// put replaces the view of a node. It is false if the index is full. Calls of put
// and remove must not overlap.
func (x *index) put(node string, v *place.View) bool {
	x.mu.RLock()
	at, known := x.names[node]
	x.mu.RUnlock()
	if known {
		s := &x.slots[at]
		s.view.Store(v)
		s.changes.Add(1) // after the view, so that an answer with this number is not that of an older view
		return true
	}
	if int(x.used) == len(x.slots) {
		return false
	}
	x.slots[x.used].view.Store(v)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names[node] = x.used
	x.used++
	return true
}

// remove forgets a node.
func (x *index) remove(node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, known := x.names[node]; known {
		delete(x.names, node)
		x.slots[at].node.Store(nil)
		x.slots[at].view.Store(noView)
		x.slots[at].changes.Add(1)
	}
}

// grown returns an index of the same nodes with room for as many again.
func (x *index) grown() *index {
	x.mu.RLock()
	defer x.mu.RUnlock()
	next := newIndex(max(2*len(x.names), leastSize))
	for name, at := range x.names {
		next.put(name, x.slots[at].view.Load())
	}
	return next
}

// all calls do with each view.
func (x *index) all(do func(*place.View)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, at := range x.names {
		do(x.slots[at].view.Load())
	}
}

// named returns the view of a node by its name.
func (x *index) named(name string) *place.View {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if at, known := x.names[name]; known {
		return x.slots[at].view.Load()
	}
	return noView
}

// of returns the view of a node by its object.
func (x *index) of(n *corev1.Node) *place.View {
	if at := x.find(n); at >= 0 {
		return x.slots[at].view.Load()
	}
	return noView
}

// find returns the position of a node by its object; -1 if it has none.
func (x *index) find(n *corev1.Node) int32 {
	hash := x.hash(n)
	for i := range probes {
		if h := x.hints[x.probe(hash, i)].Load(); h > 0 && x.slots[h-1].node.Load() == n {
			return int32(h - 1)
		}
	}
	return x.learn(n, hash)
}

func (x *index) hash(n *corev1.Node) uint64 { return maphash.Comparable(x.seed, n) }

func (x *index) probe(hash uint64, i int) int { return (int(hash) + i) & (len(x.hints) - 1) }

// learn finds a node by its name, and puts a hint where it is looked for next
// time: in the place of none, or of one that is wrong, or else of another node.
func (x *index) learn(n *corev1.Node, hash uint64) int32 {
	x.mu.RLock()
	at, known := x.names[n.Name]
	x.mu.RUnlock()
	if !known {
		return -1
	}
	x.slots[at].node.Store(n)
	hint := &x.hints[x.probe(hash, 0)]
	for i := range probes {
		if p := x.probe(hash, i); !x.right(p) {
			hint = &x.hints[p]
			break
		}
	}
	hint.Store(uint32(at) + 1)
	return at
}

// right reports whether a node would be found by the hint at a place.
func (x *index) right(p int) bool {
	h := x.hints[p].Load()
	if h == 0 {
		return false
	}
	n := x.slots[h-1].node.Load()
	return n != nil && (p-x.probe(x.hash(n), 0))&(len(x.hints)-1) < probes
}

// answersTo returns the answers to a claim, for a pod that begins to ask for them.
// An index keeps those of the claims that pods made last.
func (x *index) answersTo(c pick.Claim) *answers {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.turn++
	a := x.sets[c]
	if a == nil {
		if len(x.sets) == mostSets {
			x.dropOldest()
		}
		a = &answers{index: x, cells: make([]atomic.Uint64, len(x.slots))}
		x.sets[c] = a
	}
	a.turn = x.turn
	return a
}

func (x *index) dropOldest() {
	var oldest pick.Claim
	least := x.turn
	for c, a := range x.sets {
		if a.turn < least {
			oldest, least = c, a.turn
		}
	}
	delete(x.sets, oldest)
}

// of returns the answer of a node to a demand with the claim of the answers.
func (a *answers) of(n *corev1.Node, d *place.Demand) place.Answer {
	at := a.index.find(n)
	if at < 0 {
		return noView.Answer(d)
	}
	s := &a.index.slots[at]
	changes := s.changes.Load() // before the view
	if cell := a.cells[at].Load(); cell>>low == changes && cell&(1<<low-1) != 0 {
		return place.Answer(cell)
	}
	answer := s.view.Load().Answer(d)
	a.cells[at].Store(changes<<low | uint64(answer))
	return answer
}
