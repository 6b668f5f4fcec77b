package plugin

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// An index finds the present view of a node. For each pod, the scheduler
// filters hundreds of nodes, whose names and views are not in the caches of the
// processor. Therefore each node has a position in arrays, which the index
// finds by the address of the node's object, with one access to memory. The
// answers to a demand are in an array with these positions as indexes. Goroutines
// read the index while views are replaced, and nodes are added and removed. A
// position is never used for a second node.
type index struct {
	slots []slot
	// table is a hash table by the address of a node's object. An entry has the
	// address, and in the lowest positionBits the position. It is 0 if it is empty.
	// The slot at the position has the object, too, so that no other object gets its
	// address while the entry exists.
	table []atomic.Uint64
	seed  maphash.Seed
	// changes is the number of changes of all views.
	changes atomic.Uint64
	order   atomic.Pointer[order] // nil: not known

	mu    sync.RWMutex
	names map[string]int32 // the positions of the nodes
	used  int32            // number of positions in use or used before
	sets  map[cpus.Request]*answers
	turn  uint64 // number of demands that have requested their answers
	// changed stores the positions of the last changes: change i was at position
	// changed[i%len(changed)].
	changed []int32
}

// A slot holds the data of the index at one position.
type slot struct {
	view    atomic.Pointer[place.View]
	changes atomic.Uint64 // number of changes of all views after the last change of this view
	node    *corev1.Node  // the object of the entry in the table, or nil. The lock of the index guards it
}

// answers contains the answers of all nodes to a claim that comes often. An
// answer is one byte, so all of them are in few lines of the caches of the
// processor. When the claim has come often, all nodes are asked. From then on,
// each demand asks the nodes that have changed since the demand before.
type answers struct {
	index *index
	// asked has the answers by position, eight in a word. It has zeros for positions
	// without a node, and before the claim has come often.
	asked []atomic.Uint64
	// counted is the number of changes of the index that the answers include.
	counted atomic.Uint64
	turn    uint64 // turn of the last demand
	// uses is the number of demands, and refusals the number of nodes that refuse
	// the claim. refusals is zero before the claim has come often.
	uses, refusals int
}

const (
	positionBits = 20 // of an entry of the table
	probes       = 4  // number of places in which the entry of an object may be
	minSize      = 64 // least size of an index
	maxSets      = 64 // maximum number of sets of answers
	// often is the number of demands after which all nodes are asked. For each demand
	// before, the views of about a tenth of 5,000 nodes are asked.
	often  = 8
	recent = 256 // least number of changes that an index remembers
)

func newIndex(size int) *index {
	n := 1
	for n < 4*size { // so many that nearly each node has an entry
		n *= 2
	}
	return &index{
		slots: make([]slot, size), table: make([]atomic.Uint64, n), seed: maphash.MakeSeed(), names: map[string]int32{}, sets: map[cpus.Request]*answers{},
		changed: make([]int32, max(size, recent)), // to count after so many changes costs no more than to count all nodes
	}
}

// put replaces the view of a node. It returns false if the index is full. Calls
// of put and remove must not overlap.
func (x *index) put(node string, v *place.View) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, known := x.names[node]
	if !known {
		if int(x.used) == len(x.slots) {
			return false
		}
		at = x.used
		x.names[node] = at
		x.used++
		x.order.Store(nil) // it does not have the position
	}
	x.change(at, v)
	return true
}

// change replaces the view at a position. The caller holds x.mu.
func (x *index) change(at int32, v *place.View) {
	n := x.changes.Load()
	x.changed[n%uint64(len(x.changed))] = at
	x.slots[at].view.Store(v)
	x.slots[at].changes.Store(n + 1)
	x.changes.Store(n + 1) // last: a reader that knows this number must find the new view
}

// remove forgets a node.
func (x *index) remove(node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, known := x.names[node]; known {
		delete(x.names, node)
		x.forgetObject(at)
		x.change(at, noView)
		x.order.Store(nil) // it has the position
	}
}

// enlarge returns an index with the same nodes and with space for twice as many.
func (x *index) enlarge() *index {
	x.mu.RLock()
	defer x.mu.RUnlock()
	next := newIndex(max(2*len(x.names), minSize))
	for name, at := range x.names {
		next.put(name, x.slots[at].view.Load())
	}
	return next
}

// eachView passes each view to a function (do).
func (x *index) eachView(do func(*place.View)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, at := range x.names {
		do(x.slots[at].view.Load())
	}
}

// viewByName returns the view of the node with this name.
func (x *index) viewByName(name string) *place.View {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if at, known := x.names[name]; known {
		return x.slots[at].view.Load()
	}
	return noView
}

// viewByObject returns the view of the node with this object.
func (x *index) viewByObject(n *corev1.Node) *place.View {
	if at := x.find(n); at >= 0 {
		return x.slots[at].view.Load()
	}
	return noView
}

// find returns the position of the node with this object. It returns -1 if the
// node has no position.
func (x *index) find(n *corev1.Node) int32 {
	hash, address := x.hash(n), addressOf(n)
	for i := range probes {
		if e := x.table[x.probe(hash, i)].Load(); e>>positionBits == address {
			return int32(e & (1<<positionBits - 1))
		}
	}
	return x.learn(n)
}

func (x *index) hash(n *corev1.Node) uint64 { return maphash.Comparable(x.seed, n) }

func (x *index) probe(hash uint64, i int) int { return (int(hash) + i) & (len(x.table) - 1) }

// addressOf returns the address of an object in words. It fits into the upper part
// of an entry of the table, because a process has less than 2^47 bytes.
func addressOf(n *corev1.Node) uint64 { return uint64(uintptr(unsafe.Pointer(n))) >> 3 }

// learn finds a node by its name, and stores its object for the next search. If
// there is no place for a new entry, it replaces that of another node.
func (x *index) learn(n *corev1.Node) int32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, known := x.names[n.Name]
	if !known {
		return -1
	}
	x.forgetObject(at)
	if at >= 1<<positionBits {
		return at
	}
	x.slots[at].node = n
	entry := &x.table[x.probe(x.hash(n), 0)]
	for i := range probes {
		if e := &x.table[x.probe(x.hash(n), i)]; e.Load() == 0 {
			entry = e
			break
		}
	}
	entry.Store(addressOf(n)<<positionBits | uint64(at))
	return at
}

// forgetObject removes the entry of the object at a position, before another
// object can get its address. The caller holds x.mu.
func (x *index) forgetObject(at int32) {
	n := x.slots[at].node
	if n == nil {
		return
	}
	for i := range probes {
		if e := &x.table[x.probe(x.hash(n), i)]; e.Load()>>positionBits == addressOf(n) {
			e.Store(0)
		}
	}
	x.slots[at].node = nil
}

// answersTo returns the answers to a demand, for a pod whose cycle begins. The
// index stores the answers to the last claims.
func (x *index) answersTo(d *cpus.PodRequest) *answers {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.turn++
	a := x.sets[d.Request]
	if a == nil {
		if len(x.sets) == maxSets {
			x.dropOldest()
		}
		a = &answers{index: x, asked: make([]atomic.Uint64, (len(x.slots)+7)/8)}
		x.sets[d.Request] = a
	}
	a.turn = x.turn
	a.ask(d)
	return a
}

func (x *index) dropOldest() {
	var oldest cpus.Request
	least := x.turn
	for c, a := range x.sets {
		if a.turn < least {
			oldest, least = c, a.turn
		}
	}
	delete(x.sets, oldest)
}

// ask asks the nodes that have changed since the claim of a demand came last. The
// caller holds the lock of the index.
func (a *answers) ask(d *cpus.PodRequest) {
	x, counted, changes := a.index, a.counted.Load(), a.index.changes.Load()
	if a.uses >= often && changes-counted > uint64(len(x.changed)) { // the claim came too long ago
		a.uses, a.refusals = 0, 0
		for i := range a.asked {
			a.asked[i].Store(0)
		}
	}
	a.uses++
	switch {
	case a.uses == often:
		for at := range x.used {
			a.askAt(at, d)
		}
	case a.uses > often:
		for ; counted < changes; counted++ {
			a.askAt(x.changed[counted%uint64(len(x.changed))], d)
		}
	}
	a.counted.Store(changes) // after the answers, for readers that do not hold the lock
}

// askAt asks the node at a position.
func (a *answers) askAt(at int32, d *cpus.PodRequest) {
	var answer place.Answer
	if v := a.index.slots[at].view.Load(); v != noView {
		answer = v.Answer(d)
	}
	if was := a.stored(at); was != 0 && !was.Fits() {
		a.refusals--
	}
	if answer != 0 && !answer.Fits() {
		a.refusals++
	}
	word, shift := &a.asked[at/8], at%8*8
	word.Store(word.Load()&^(0xff<<shift) | uint64(answer)<<shift)
}

// stored returns the answer that is stored for a position.
func (a *answers) stored(at int32) place.Answer {
	return place.Answer(a.asked[at/8].Load() >> (at % 8 * 8))
}

// fitEverywhere reports whether the claim is known to fit on all nodes of the
// index, if their number is n.
func (a *answers) fitEverywhere(n int) bool {
	x := a.index
	x.mu.RLock()
	defer x.mu.RUnlock()
	return a.uses >= often && a.counted.Load() == x.changes.Load() && a.refusals == 0 && len(x.names) == n
}

// answerOf returns the answer of a node to a demand. The claim of the demand
// must be the claim of the answers.
func (a *answers) answerOf(n *corev1.Node, d *cpus.PodRequest) place.Answer {
	return a.at(a.index.find(n), d)
}

// answersOf returns the answers of nodes to a demand, in the order of the nodes.
func (a *answers) answersOf(nodes []fwk.NodeInfo, d *cpus.PodRequest) []place.Answer {
	all, walk := make([]place.Answer, len(nodes)), a.index.order.Load().walk()
	for i, n := range nodes {
		at, found := walk.next(n)
		if !found {
			at = a.index.find(n.Node())
			walk.skip(at)
		}
		all[i] = a.at(at, d)
	}
	return all
}

// at returns the answer of the node at a position, or of an unknown node if the
// position is -1. It asks the view if no answer is stored, or if the view has
// changed since the claim came last.
func (a *answers) at(at int32, d *cpus.PodRequest) place.Answer {
	if at < 0 {
		return noView.Answer(d)
	}
	s, counted := &a.index.slots[at], a.counted.Load()
	if counted == a.index.changes.Load() || s.changes.Load() <= counted { // mostly without an access to the slot
		if answer := a.stored(at); answer != 0 {
			return answer
		}
	}
	return s.view.Load().Answer(d)
}
