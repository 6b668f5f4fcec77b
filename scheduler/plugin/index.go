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
	changes atomic.Uint64 // number of changes of the view
	next    atomic.Int32  // the position that was searched after this one, the last time
}

// answers contains the answers of all nodes to one claim. An answer is computed
// when a cycle asks the node for the first time after a change of the node.
type answers struct {
	index *index
	cells []atomic.Uint64 // by position: the number of changes, and in the lowest byte the answer
	turn  uint64          // turn of the last demand
	// refusals is the number of nodes that refuse the claim. refusing marks these
	// nodes by position, and is nil before they are counted. Both include the
	// first changes of the index; the field counted is the number of these.
	uses, refusals int
	refusing       []bool
	counted        uint64
}

const (
	probes  = 4   // number of places in which a hint may be
	minSize = 64  // least size of an index
	maxSets = 64  // maximum number of sets of answers
	low     = 8   // number of bits of a cell that contain the answer
	often   = 32  // number of demands after which refusals are counted
	recent  = 256 // least number of changes that an index remembers
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
	s := &x.slots[at]
	s.view.Store(v)
	s.changes.Add(1) // after the store of the view: an answer with the new number must not come from the old view
	x.changed[x.changes%uint64(len(x.changed))] = at
	x.changes++
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

// answersTo returns the answers to a claim, for a pod whose cycle begins. The
// index stores the answers to the last claims.
func (x *index) answersTo(c cpus.Request) *answers {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.turn++
	a := x.sets[c]
	if a == nil {
		if len(x.sets) == maxSets {
			x.dropOldest()
		}
		a = &answers{index: x, cells: make([]atomic.Uint64, len(x.slots))}
		x.sets[c] = a
	}
	a.turn = x.turn
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

// answerOf returns the answer of a node to a demand. The claim of the demand
// must be the claim of the answers.
func (a *answers) answerOf(n *corev1.Node, d *cpus.PodRequest) place.Answer {
	at := a.index.find(n)
	if at < 0 {
		return noView.Answer(d)
	}
	return a.at(at, d)
}

// answersOf returns the answers of nodes to a demand, in the order of the nodes.
func (a *answers) answersOf(nodes []fwk.NodeInfo, d *cpus.PodRequest) []place.Answer {
	all, at := make([]place.Answer, len(nodes)), int32(-1)
	for i, n := range nodes {
		if at = a.index.findAfter(at, n.Node()); at < 0 {
			all[i] = noView.Answer(d)
			continue
		}
		all[i] = a.at(at, d)
	}
	return all
}

// at returns the answer of the node at a position.
func (a *answers) at(at int32, d *cpus.PodRequest) place.Answer {
	s := &a.index.slots[at]
	changes := s.changes.Load() // must be read before the view
	if cell := a.cells[at].Load(); cell>>low == changes && cell&(1<<low-1) != 0 {
		return place.Answer(cell)
	}
	answer := s.view.Load().Answer(d)
	a.cells[at].Store(changes<<low | uint64(answer))
	return answer
}

// fitsEverywhere reports whether the demand fits on all nodes of the index, if their
// number is n. It returns false if this is not known, because the claim is rare.
func (a *answers) fitsEverywhere(d *cpus.PodRequest, n int) bool {
	x := a.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.changes-a.counted > uint64(len(x.changed)) { // the claim came too long ago
		a.uses, a.refusing = 0, nil
	}
	a.uses++
	switch {
	case a.uses < often:
	case a.refusing == nil:
		a.refusing, a.refusals = make([]bool, len(x.slots)), 0
		for at := range x.used {
			a.count(at, d)
		}
	default:
		for i := a.counted; i < x.changes; i++ {
			a.count(x.changed[i%uint64(len(x.changed))], d)
		}
	}
	a.counted = x.changes
	return a.refusing != nil && a.refusals == 0 && len(x.names) == n
}

// count adds the node at a position to the refusals if it refuses the demand.
// The caller holds the lock of the index.
func (a *answers) count(at int32, d *cpus.PodRequest) {
	refuses := a.index.slots[at].view.Load() != noView && !a.at(at, d).Fits()
	switch {
	case refuses == a.refusing[at]:
		return
	case refuses:
		a.refusals++
	default:
		a.refusals--
	}
	a.refusing[at] = refuses
}
