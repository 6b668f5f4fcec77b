package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

func object(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// viewsOf returns n different views of a node. The node has two caches, four
// cores in each cache, and two threads in each core.
func viewsOf(t *testing.T, n int) []*place.View {
	t.Helper()
	l := place.New()
	report, err := cpureport.Read(machine("n", 1, 2, 4).Status.CPUs)
	if err != nil {
		t.Fatal(err)
	}
	all := []*place.View{l.View("n")}
	l.Learn("n", report)
	for i := range n {
		all = append(all, l.View("n"))
		l.Assume(place.Pod{UID: place.UID(fmt.Sprint(i)), Request: owns(1 + i%3)}, "n")
		if i%4 == 3 {
			l.Forget(place.UID(fmt.Sprint(i / 2)))
		}
	}
	return all
}

func owns(n int) cpus.PodRequest {
	return cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: n}}
}

// TestAnswersAreThoseOfTheViews compares the answers of the index with those of
// the views. Nodes are added, changed and removed, and get new objects. There
// are more claims than the index can store, and some of them come often.
func TestAnswersAreThoseOfTheViews(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	views := viewsOf(t, 30)
	x, grown, kept, stored := newIndex(4), 0, 0, 0
	present, objects := map[string]*place.View{}, map[string]*corev1.Node{}
	asked := map[int]*answers{}
	for range 100_000 {
		name := fmt.Sprint("node-", rnd.IntN(300))
		switch rnd.IntN(20) {
		case 0:
			x.remove(name)
			delete(present, name)
		case 1:
			objects[name] = object(name)
		case 2, 3, 4:
			v := views[rnd.IntN(len(views))]
			if !x.put(name, v) {
				x = x.enlarge()
				clear(asked)
				grown++
				if !x.put(name, v) {
					t.Fatal("a grown index is full")
				}
			}
			present[name] = v
		case 5:
			n := 1 + rnd.IntN([]int{4, maxSets + 8}[rnd.IntN(2)])
			d := owns(n)
			asked[n] = x.answersTo(&d)
		default:
			o := objects[name]
			if o == nil {
				continue
			}
			want := present[name]
			if want == nil {
				want = noView
			}
			if x.viewByObject(o) != want || x.viewByName(name) != want {
				t.Fatalf("%s: another view", name)
			}
			for n, a := range asked {
				d := owns(n)
				if got := a.answerOf(o, &d); got != want.Answer(&d) {
					t.Fatalf("%s, %d CPUs: %q, want %q", name, n, got.Code(), want.Room(&d))
				}
				kept = max(kept, len(x.sets))
				if at := x.find(o); at >= 0 && a.stored(at) != 0 && x.slots[at].changes.Load() <= a.counted.Load() {
					stored++
				}
				break
			}
		}
	}
	if grown < 5 || kept != maxSets {
		t.Errorf("the index grew %d times, and kept the answers to %d claims", grown, kept)
	}
	if stored < 1000 {
		t.Errorf("%d answers were stored", stored)
	}
}

// TestRefusalsAreCounted compares the counts of the index with the views. Nodes
// are added, changed and removed. Most of their views have room.
func TestRefusalsAreCounted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	views, d := viewsOf(t, 30), owns(1)
	present := map[string]*place.View{}
	x, known, missed := newIndex(minSize), 0, 0
	quiet := 0
	put := func(name string, v *place.View) {
		if present[name] = v; x.put(name, v) {
			return
		}
		x = x.enlarge() // each node that comes again has a new position
		x.put(name, v)
		quiet = 0
	}
	for range 20_000 {
		if quiet++; rnd.IntN(2000) == 0 {
			for i := range 2 * len(x.changed) { // more than the index remembers, and only of one node in the end
				put(fmt.Sprint("node-", min(i, 19)), views[rnd.IntN(len(views))])
			}
			quiet = 0
		}
		name := fmt.Sprint("node-", rnd.IntN(20))
		switch v := views[rnd.IntN(len(views))]; {
		case rnd.IntN(5) == 0:
			x.remove(name)
			delete(present, name)
		case v.Room(&d) == cpus.Fits || rnd.IntN(20) == 0:
			put(name, v)
		}
		room := true
		for _, v := range present {
			room = room && v.Room(&d) == cpus.Fits
		}
		a := x.answersTo(&d)
		switch everywhere := a.fitEverywhere(len(present)); {
		case everywhere && !room:
			t.Fatal("a node has no room")
		case everywhere:
			known++
		case room && quiet > often:
			missed++
		}
		if a.fitEverywhere(len(present) + 1) {
			t.Fatal("there is room on a node that is not known")
		}
	}
	if known < 1000 || missed > 0 {
		t.Errorf("room on all nodes was known %d times, and not known %d times", known, missed)
	}
}

// TestAnAnswerAfterAChangeIsNew changes views while other goroutines ask the
// same nodes. After a change, an answer must not be older than the change, also
// if no demand has come since the change.
func TestAnAnswerAfterAChangeIsNew(t *testing.T) {
	views := viewsOf(t, 30)
	x, d := newIndex(minSize), owns(4)
	var nodes [8]*corev1.Node
	for i := range nodes {
		nodes[i] = object(fmt.Sprint("node-", i))
		x.put(nodes[i].Name, views[0])
	}
	a := x.answersTo(&d)
	var ended atomic.Bool
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			for i := r; !ended.Load(); i++ {
				a.answerOf(nodes[i%len(nodes)], &d)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 100_000 {
		n, v := nodes[rnd.IntN(len(nodes))], views[rnd.IntN(len(views))]
		x.put(n.Name, v)
		if rnd.IntN(2) == 0 {
			x.answersTo(&d)
		}
		if got := a.answerOf(n, &d); got != v.Answer(&d) {
			t.Errorf("%s: %q after a change, want %q", n.Name, got.Code(), v.Room(&d))
			break
		}
	}
	ended.Store(true)
	readers.Wait()
}

// TestEntriesAreNotLost gives each node a new object many times. The entries of old
// objects must go, and must not replace those of new ones.
func TestEntriesAreNotLost(t *testing.T) {
	x, v := newIndex(256), viewsOf(t, 1)[1]
	var nodes [256]*corev1.Node
	for range 50 {
		for i := range nodes {
			nodes[i] = object(fmt.Sprint("node-", i))
			x.put(nodes[i].Name, v)
			x.find(nodes[i])
		}
	}
	used, lost := 0, 0
	for i := range x.table {
		if x.table[i].Load() != 0 {
			used++
		}
	}
	for at, n := range nodes {
		found := false
		for i := range probes {
			found = found || x.table[x.probe(x.hash(n), i)].Load() == addressOf(n)<<positionBits|uint64(at)
		}
		if !found {
			lost++
		}
	}
	if lost > len(nodes)/8 || used != len(nodes)-lost {
		t.Errorf("%d of %d nodes have no entry, and the table has %d", lost, len(nodes), used)
	}
	for _, n := range nodes {
		x.remove(n.Name)
		if x.find(n) != -1 {
			t.Fatalf("%s was removed", n.Name)
		}
	}
}

// TestAnswersOfManyAreThoseOfEach asks for the answers of many nodes in changing
// orders. Meanwhile nodes are added, removed and changed, and get new objects.
func TestAnswersOfManyAreThoseOfEach(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	views, d := viewsOf(t, 30), owns(4)
	x := newIndex(256)
	a := x.answersTo(&d)
	var nodes []fwk.NodeInfo
	for i := range 40 {
		nodes = append(nodes, named(fmt.Sprint("node-", i)))
	}
	for range 5000 {
		switch i := rnd.IntN(len(nodes)); rnd.IntN(8) {
		case 0:
			nodes[i] = named(nodes[i].Node().Name)
		case 1:
			x.remove(nodes[i].Node().Name)
		case 2:
			rnd.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		default:
			if int(x.used) == len(x.slots) {
				x = x.enlarge()
				a = x.answersTo(&d)
			}
			x.put(nodes[i].Node().Name, views[rnd.IntN(len(views))])
		}
		if rnd.IntN(4) == 0 {
			x.follow(slices.Clone(nodes))
		}
		some := slices.Clone(nodes[rnd.IntN(5) : 30+rnd.IntN(10)])
		if n := rnd.IntN(8); n < 4 { // two processors, each with a part of the order
			half := len(some) / 2
			for i := range half {
				some[2*i], some[2*i+1] = nodes[i], nodes[20+i]
			}
			some = slices.Delete(some, n, n+2)
		}
		for i, got := range a.answersOf(some, &d) {
			if want := x.viewByName(some[i].Node().Name).Answer(&d); got != want {
				t.Fatalf("%s: %q, want %q", some[i].Node().Name, got.Code(), want.Code())
			}
		}
	}
}

// TestAWalkNeedsNoObject finds nodes in the order of the scheduler, mixed by two
// processors, of which each tenth was refused. All but the first of each part must
// be found without their objects.
func TestAWalkNeedsNoObject(t *testing.T) {
	x, v := newIndex(256), viewsOf(t, 1)[1]
	var nodes []fwk.NodeInfo
	for i := range 200 {
		nodes = append(nodes, named(fmt.Sprint("node-", i)))
		x.put(nodes[i].Node().Name, v)
	}
	x.follow(nodes)
	var some []fwk.NodeInfo
	for i := range 70 {
		if i%10 != 3 {
			some = append(some, nodes[i], nodes[100+i])
		}
	}
	w, lost := x.order.Load().walk(), 0
	for _, n := range some {
		at, found := w.next(n)
		if !found {
			at = x.find(n.Node())
			w.skip(at)
			lost++
		}
		if at != x.find(n.Node()) {
			t.Fatalf("%s is at %d, not %d", n.Node().Name, x.find(n.Node()), at)
		}
	}
	if lost > 2 {
		t.Errorf("%d of %d nodes were searched by their objects", lost, len(some))
	}
	x.remove("node-1")
	if x.order.Load() != nil {
		t.Error("the order has the position of a node that is gone")
	}
}
