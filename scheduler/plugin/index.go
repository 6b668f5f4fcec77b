package plugin

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// An index finds the present view of a node. For each pod, the scheduler
// filters hundreds of nodes, whose names and views are not in the caches of the
// processor. Therefore each node has a position in arrays, which the index
// finds by the address of the node's object. The answers to a demand are in an
// array with these positions as indexes. Goroutines read the index while views
// are replaced, and nodes are added and removed. A position is never used for a
// second node.
type index struct {
	slots []slot
	// hints are found by the address of a node's object. A hint is a position plus
	// one. It may be wrong, so a reader checks the object in the slot.
	hints []atomic.Uint32
	seed  maphash.Seed

	mu    sync.RWMutex
	names map[string]int32 // the positions of the nodes
	used  int32            // number of positions in use or used before
	sets  map[cpus.Request]*answers
	turn  uint64 // number of demands that have requested their answers
	// changes is the number of changes of all views. changed stores the positions
	// of the last changes: change i was at position changed[i%len(changed)].
	changes uint64
	changed []int32
}

// A slot holds the data of the index at one position.
type slot struct {
	node    atomic.Pointer[corev1.Node] // the object by which the position was last found
	view    atomic.Pointer[place.View]
	changes atomic.Uint64 // number of changes of all views when the last change of this view was made
	next    atomic.Int32  // the position that was searched after this one, the last time
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
	probes  = 4  // number of places in which a hint may be
	minSize = 64 // least size of an index
	maxSets = 64 // maximum number of sets of answers
	// often is the number of demands after which all nodes are asked. For each demand
	// before, the views of about a tenth of 5,000 nodes are asked.
	often  = 8
	recent = 256 // least number of changes that an index remembers
)

func newIndex(size int) *index {
	n := 1
	for n < 4*size { // so many that nearly each node has a hint
		n *= 2
	}
	return &index{
		slots: make([]slot, size), hints: make([]atomic.Uint32, n), seed: maphash.MakeSeed(), names: map[string]int32{}, sets: map[cpus.Request]*answers{},
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
	}
	x.change(at, v)
	return true
}

// change replaces the view at a position. The caller holds x.mu.
func (x *index) change(at int32, v *place.View) {
	x.changed[x.changes%uint64(len(x.changed))] = at
	x.changes++
	x.slots[at].view.Store(v)
	x.slots[at].changes.Store(x.changes)
}

// remove forgets a node.
func (x *index) remove(node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, known := x.names[node]; known {
		delete(x.names, node)
		x.slots[at].node.Store(nil)
		x.change(at, noView)
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
	hash := x.hash(n)
	for i := range probes {
		if h := x.hints[x.probe(hash, i)].Load(); h > 0 && x.slots[h-1].node.Load() == n {
			return int32(h - 1)
		}
	}
	return x.learn(n, hash)
}

// findAfter is like find, but usually faster. before is the position that the
// caller found last, or -1. Most callers search the nodes in the same order
// each time. So findAfter first tries the position that came next in the last
// search.
func (x *index) findAfter(before int32, n *corev1.Node) int32 {
	if before < 0 {
		return x.find(n)
	}
	next := &x.slots[before].next
	if at := next.Load(); x.slots[at].node.Load() == n {
		return at
	}
	at := x.find(n)
	if at >= 0 {
		next.Store(at)
	}
	return at
}

func (x *index) hash(n *corev1.Node) uint64 { return maphash.Comparable(x.seed, n) }

func (x *index) probe(hash uint64, i int) int { return (int(hash) + i) & (len(x.hints) - 1) }

// learn finds a node by its name, and stores a hint for the next search. The
// new hint replaces the first hint that is empty or wrong. If there is none,
// the new hint replaces that of another node.
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
		if p := x.probe(hash, i); !x.isRight(p) {
			hint = &x.hints[p]
			break
		}
	}
	hint.Store(uint32(at) + 1)
	return at
}

// isRight reports whether the hint at index p is right.
func (x *index) isRight(p int) bool {
	h := x.hints[p].Load()
	if h == 0 {
		return false
	}
	n := x.slots[h-1].node.Load()
	return n != nil && (p-x.probe(x.hash(n), 0))&(len(x.hints)-1) < probes
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
	x, counted := a.index, a.counted.Load()
	if a.uses >= often && x.changes-counted > uint64(len(x.changed)) { // the claim came too long ago
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
		for ; counted < x.changes; counted++ {
			a.askAt(x.changed[counted%uint64(len(x.changed))], d)
		}
	}
	a.counted.Store(x.changes) // after the answers, for readers that do not hold the lock
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
	return a.uses >= often && a.counted.Load() == x.changes && a.refusals == 0 && len(x.names) == n
}

// answerOf returns the answer of a node to a demand. The claim of the demand
// must be the claim of the answers.
func (a *answers) answerOf(n *corev1.Node, d *cpus.PodRequest) place.Answer {
	return a.at(a.index.find(n), d)
}

// answersOf returns the answers of nodes to a demand, in the order of the nodes.
func (a *answers) answersOf(nodes []fwk.NodeInfo, d *cpus.PodRequest) []place.Answer {
	all, at := make([]place.Answer, len(nodes)), int32(-1)
	for i, n := range nodes {
		at = a.index.findAfter(at, n.Node())
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
	s := &a.index.slots[at]
	if s.changes.Load() <= a.counted.Load() {
		if answer := a.stored(at); answer != 0 {
			return answer
		}
	}
	return s.view.Load().Answer(d)
}
