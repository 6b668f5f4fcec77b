// Package gate decides which batch pods may go to the scheduler. A batch pod that
// waits for room has a scheduling gate, so that no autoscaler sees it. A gate that is
// open cannot be closed again. So a pod is let through only if it finds a node whatever
// the scheduler does with the pods that went before it and have no node yet.
package gate

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/share"
)

// A Node has batch resources.
type Node struct {
	Name string
	// Free is what the node offers without the requests of the pods that are bound to
	// it. It is below 0 on a node that offers less than its pods request.
	Free share.Amount
}

// A Pod has no node yet.
type Pod struct {
	UID             string
	Namespace, Name string
	Asks            share.Amount
	// Place is the index in Case.Places of the nodes on which the pod may run.
	Place    int
	Priority int32
	Created  time.Time
	// Late says of an assumed pod that no scheduler has bound it for so long that probably
	// none will. Its room stays taken, but other pods do not wait so that it finds a node
	// whatever the scheduler does with them.
	Late bool
}

// A Namespace has pods that wait, or that have batch resources already.
type Namespace struct {
	Name  string
	Terms share.Terms
	// Unread means that the terms of the namespace are not known. Its pods wait.
	Unread bool
	// Bound is what its pods with a node request.
	Bound share.Amount
}

// A Case is all that a decision depends on.
type Case struct {
	// Room is what all nodes offer together, by which shares are measured.
	Room  share.Amount
	Nodes []Node
	// Places are sets of nodes, as indices of Nodes in ascending order: those that a
	// node selector, the required affinity and the tolerations of pods admit.
	Places     [][]int
	Namespaces []Namespace
	// Assumed are the pods that a scheduler may bind at any time: those whose gate is
	// open, and those that never had one. What they ask for is taken until they are
	// bound or gone.
	Assumed []Pod
	// Waiting are the pods whose gate is closed.
	Waiting []Pod
	// Most is the largest number of gates that one decision opens. 0: no limit.
	Most int
}

// A Code says why a pod waits.
type Code string

// The values of Code.
const (
	NoNode  Code = "no-node" // no node admits the pod
	NoRoom  Code = "no-room" // no node that admits it has as much batch room
	Assumed Code = "assumed" // the room is held for pods that have no node yet
	Cap     Code = "cap"     // the namespace would exceed its cap
	Unread  Code = "unread"  // the terms of the namespace have a fault
	Later   Code = "next"    // the next decision looks at it
)

// Codes lists the values of Code.
var Codes = []Code{NoNode, NoRoom, Assumed, Cap, Unread, Later}

// A Wait says why a pod waits.
type Wait struct {
	Code Code
	// Node is the index of the node that comes nearest to having room, for NoRoom; on it,
	// Free is free.
	Node int
	Free share.Amount
	// Pods is the number of pods for which room is held, and Held is their sum, for
	// Assumed. They may run on a node on which the pod may run, too.
	Pods int
	Held share.Amount
	// Used is what the namespace has, and Terms are its terms, for Cap.
	Used  share.Amount
	Terms share.Terms
}

// An Answer is a decision.
type Answer struct {
	// Open are the indices of the pods in Case.Waiting whose gates are opened, in this
	// order.
	Open []int
	// Waits has, for each pod of Case.Waiting, why it waits. Its Code is empty for the
	// pods in Open.
	Waits []Wait
}

// A shape is what counts of a pod for the question whether it fits.
type shape struct {
	place int
	asks  share.Amount
}

// A crowd is a number of assumed pods.
type crowd struct {
	pods int
	held share.Amount // their sum
}

func (c *crowd) add(more crowd) {
	c.pods += more.pods
	c.held = c.held.Plus(more.held)
}

// patience bounds how many nodes one decision looks at for the question whether pods
// that were let through before stay safe. What it cannot answer so is left for the next
// decision (Later). It stands for a second or two.
const patience = 300_000_000

type decision struct {
	Case
	// taken are the places of the assumed pods, in the order in which they came. of and
	// shapes have, for each of them, the pods of this place and their different shapes.
	taken   []int
	of      map[int]*crowd
	shapes  map[int][]shape
	assumed map[shape]bool
	sets    [][]uint64 // of places
	// These are known for the places and shapes that were asked for.
	near    map[int]*crowd
	fitting map[shape]int
	refused map[shape]Wait
	// tight has, for a place, the shape that was not safe beside its last pod. It is
	// probably not safe beside the next one either.
	tight map[int]shape
	spent int
}

// Decide decides which gates are opened now. It opens none that is not safe (see safe),
// and all that are, as far as its patience lasts. The namespace with the lowest level
// goes first (package share), in a namespace the pod with the highest priority, and of
// these the oldest.
func Decide(c Case) Answer {
	d := decision{
		Case: c, of: map[int]*crowd{}, shapes: map[int][]shape{}, assumed: map[shape]bool{},
		near: map[int]*crowd{}, fitting: map[shape]int{}, refused: map[shape]Wait{}, sets: setsOf(c.Places, len(c.Nodes)), tight: map[int]shape{},
	}
	for _, p := range c.Assumed {
		// A pod that fits nowhere takes no room now. It counts again when a node has room.
		if s := shapeOf(p); d.fits(s) > 0 {
			d.assume(s, !p.Late)
		}
	}
	claims, queues, unread := d.queues()
	a := Answer{Waits: make([]Wait, len(c.Waiting))}
	share.Fill(c.Room, claims, func(i int, claim share.Claim) (share.Amount, bool) {
		for len(queues[i]) > 0 {
			next := queues[i][0]
			queues[i] = queues[i][1:]
			if c.Most > 0 && len(a.Open) >= c.Most {
				a.Waits[next].Code = Later
				continue
			}
			p := c.Waiting[next]
			a.Waits[next] = d.ask(p, claim, unread[i])
			if a.Waits[next].Code == "" {
				a.Open = append(a.Open, next)
				d.assume(shapeOf(p), true)
				return p.Asks, true
			}
		}
		return share.Amount{}, false
	})
	return a
}

func shapeOf(p Pod) shape { return shape{p.Place, p.Asks} }

// assume holds room for one more pod. If it is promised, no other pod is let through
// beside which it might find no node.
func (d *decision) assume(s shape, promised bool) {
	if d.of[s.place] == nil {
		d.of[s.place] = &crowd{}
		d.taken = append(d.taken, s.place)
	}
	if promised && !d.assumed[s] {
		d.assumed[s] = true
		d.shapes[s.place] = append(d.shapes[s.place], s)
	}
	one := crowd{1, s.asks}
	d.of[s.place].add(one)
	for place, others := range d.near {
		if d.touch(place, s.place) {
			others.add(one)
		}
	}
}

// queues returns, for each namespace with pods that wait, its claim, its pods in order,
// and whether its terms are unread.
func (d *decision) queues() (claims []share.Claim, queues [][]int, unread []bool) {
	of := map[string]int{}
	known := map[string]Namespace{}
	for _, n := range d.Namespaces {
		known[n.Name] = n
	}
	order := make([]int, len(d.Waiting))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := d.Waiting[i], d.Waiting[j]
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), -cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, i := range order {
		name := d.Waiting[i].Namespace
		at, seen := of[name]
		if !seen {
			n, stated := known[name]
			if !stated {
				n.Terms.Weight = share.DefaultWeight
			}
			at = len(claims)
			of[name] = at
			claims, queues, unread = append(claims, share.Claim{Terms: n.Terms, Used: n.Bound}), append(queues, nil), append(unread, n.Unread)
		}
		queues[at] = append(queues[at], i)
	}
	for _, p := range d.Assumed {
		if at, waits := of[p.Namespace]; waits {
			claims[at].Used = claims[at].Used.Plus(p.Asks)
		}
	}
	return claims, queues, unread
}

// ask returns why a pod waits, with an empty Code if its gate may be opened. What is
// refused to a pod is refused to all of its shape, because assumed amounts only grow
// during a decision.
func (d *decision) ask(p Pod, claim share.Claim, unread bool) Wait {
	s := shapeOf(p)
	switch w, known := d.refused[s]; {
	case unread:
		return Wait{Code: Unread}
	case !claim.Allow(claim.Used, p.Asks):
		return Wait{Code: Cap, Used: claim.Used, Terms: claim.Terms}
	case known:
		return w
	}
	w := d.askNodes(s)
	if w.Code != "" {
		d.refused[s] = w
	}
	return w
}

func (d *decision) askNodes(s shape) Wait {
	if len(d.Places[s.place]) == 0 {
		return Wait{Code: NoNode}
	}
	if d.fits(s) == 0 {
		at := d.nearest(s)
		return Wait{Code: NoRoom, Node: at, Free: d.Nodes[at].Free}
	}
	if d.spent > patience {
		return Wait{Code: Later}
	}
	others := *d.others(s.place)
	wait := Wait{Code: Assumed, Pods: others.pods, Held: others.held}
	if !d.safe(s, others) {
		return wait
	}
	if other, known := d.tight[s.place]; known && other != s && !d.staysSafe(other, s) {
		return wait
	}
	for _, place := range d.taken {
		if !d.touch(s.place, place) {
			continue
		}
		for _, other := range d.shapes[place] {
			if d.spent > patience {
				return Wait{Code: Later}
			}
			if other != s && !d.staysSafe(other, s) {
				d.tight[s.place] = other
				return wait
			}
		}
	}
	return Wait{}
}

// staysSafe reports whether an assumed pod is safe if another one is let through, too.
func (d *decision) staysSafe(s, more shape) bool {
	others := *d.others(s.place)
	others.held = others.held.Minus(s.asks).Plus(more.asks) // one goes, one comes
	return d.safe(s, others)
}

// fits returns the number of nodes that have room for a pod, if no pod without a node
// takes any.
func (d *decision) fits(s shape) int {
	fits, known := d.fitting[s]
	if !known {
		for _, n := range d.Places[s.place] {
			if s.asks.FitsIn(d.Nodes[n].Free) {
				fits++
			}
		}
		d.fitting[s] = fits
	}
	return fits
}

// nearest returns the node that has the largest part of what a pod asks for: the
// smaller of its parts of CPU and of memory.
func (d *decision) nearest(s shape) int {
	best, most := 0, math.Inf(-1)
	for i, n := range d.Places[s.place] {
		free, has := d.Nodes[n].Free, math.Inf(1)
		if s.asks.CPU > 0 {
			has = min(has, float64(free.CPU)/float64(s.asks.CPU))
		}
		if s.asks.Memory > 0 {
			has = min(has, float64(free.Memory)/float64(s.asks.Memory))
		}
		if i == 0 || has > most {
			best, most = n, has
		}
	}
	return best
}

// others returns the assumed pods that may get a node of a place.
func (d *decision) others(place int) *crowd {
	all := d.near[place]
	if all == nil {
		all = &crowd{}
		for _, p := range d.taken {
			if d.touch(place, p) {
				all.add(*d.of[p])
			}
		}
		d.near[place] = all
	}
	return all
}

// touch reports whether two places have a node in common.
func (d *decision) touch(a, b int) bool {
	d.spent++
	if a == b {
		return true
	}
	other := d.sets[b]
	for i, word := range d.sets[a] {
		if word&other[i] != 0 {
			return true
		}
	}
	return false
}

// setsOf returns a bit for each of n nodes of each place.
func setsOf(places [][]int, n int) [][]uint64 {
	sets := make([][]uint64, len(places))
	for i, nodes := range places {
		sets[i] = make([]uint64, (n+63)/64)
		for _, at := range nodes {
			sets[i][at/64] |= 1 << (at % 64)
		}
	}
	return sets
}

// sure is the margin for the rounding of the sums in safe.
const sure = 1e-9

// safe reports whether a pod finds a node wherever a scheduler puts others. It may say
// no where the answer is yes, but never the other way round.
//
// A pod is on one node. So the others keep the pod off at most as many nodes as they are.
//
// The other pods keep the pod off a node if they take more of its CPU, or of its memory,
// than it has beyond what the pod asks for. So each node that is kept has a price, in
// parts of the CPU or of the memory of the others. They can pay 1 of each. If all nodes
// together cost more, one of them stays open. If no node can be kept by the one resource,
// they can pay by the other one only.
func (d *decision) safe(s shape, by crowd) bool {
	if d.fits(s) > by.pods {
		return true
	}
	d.spent += len(d.Places[s.place])
	others := by.held
	var byCPU, byMemory, byEither float64
	canCPU, canMemory := false, false
	for _, n := range d.Places[s.place] {
		free := d.Nodes[n].Free
		if !s.asks.FitsIn(free) {
			continue
		}
		cpu, memory := math.Inf(1), math.Inf(1)
		if s.asks.CPU > 0 && others.CPU > 0 {
			cpu = float64(free.CPU-s.asks.CPU+1) / float64(others.CPU)
		}
		if s.asks.Memory > 0 && others.Memory > 0 {
			memory = float64(free.Memory-s.asks.Memory+1) / float64(others.Memory)
		}
		if cpu > 1 && memory > 1 {
			return true
		}
		canCPU, canMemory = canCPU || cpu <= 1, canMemory || memory <= 1
		byCPU, byMemory, byEither = byCPU+cpu, byMemory+memory, byEither+min(cpu, memory)
	}
	switch {
	case !canMemory:
		return byCPU > 1+sure
	case !canCPU:
		return byMemory > 1+sure
	}
	return byEither > 2+sure
}
