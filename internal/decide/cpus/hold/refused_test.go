package hold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTheLedgerFollowsANodeThatRefusesPods runs random histories of pods on a
// node. Its reserved CPUs change, so the agent takes CPUs from pods, gives them
// others, and refuses some. After each report, the open CPUs of the ledger must
// be those that the agent has given to no pod, and no CPU may have two owners. A
// ledger made from the pods and the report must agree. A new pod that the ledger
// gives own CPUs must get them from the agent, although refused pods wait there.
func TestTheLedgerFollowsANodeThatRefusesPods(t *testing.T) {
	rnd, refused, granted := rand.New(rand.NewPCG(83, 84)), 0, 0
	for try := range 400 {
		n := &site{topo: machine(1+rnd.IntN(2), 1+rnd.IntN(2), 1+rnd.IntN(4), 1+rnd.IntN(2)), ledger: place.New(), pods: map[place.UID]place.Pod{}}
		n.ledger.Learn("n", n.report())
		late := map[place.UID]place.Contract{} // of bound pods of which the ledger does not know yet
		for i := range 60 {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				p := place.Pod{UID: place.UID(fmt.Sprint("p", i)), Request: anyDemand(rnd, len(n.topo.CPUs))}
				c, why := n.ledger.Assume(p, "n")
				if why != cpus.Fits {
					continue
				}
				n.pods[p.UID] = p
				if late[p.UID] = c; rnd.IntN(3) > 0 {
					n.ledger.Confirm(p, "n", c.Choice)
					delete(late, p.UID)
				}
			case 3:
				for uid := range n.pods {
					n.ledger.RemovePod(uid)
					delete(n.pods, uid)
					delete(late, uid)
					break
				}
			case 4:
				n.reserved = unit.CPUSet{}
				for c := range n.topo.All().All() {
					if rnd.IntN(3) == 0 {
						n.reserved.Add(c)
					}
				}
			case 5:
				for uid, c := range late {
					n.ledger.Confirm(n.pods[uid], "n", c.Choice)
				}
				clear(late)
			default:
				n.tick()
				n.tick() // a pod with a new home may free CPUs
				n.ledger.Learn("n", n.report())
				for uid, c := range late {
					n.ledger.Confirm(n.pods[uid], "n", c.Choice)
				}
				clear(late)
				for _, a := range n.report().Pods {
					if a.CPUs.Empty() {
						refused++
					}
				}
				n.checkOpen(t)
				granted += n.checkNew(t, rnd, place.UID(fmt.Sprint("new", i)))
			}
			if t.Failed() {
				t.Fatalf("try %d, step %d", try, i)
			}
		}
	}
	if refused < 1000 || granted < 30 {
		t.Errorf("only %d pods were refused, and %d new ones were granted", refused, granted)
	}
}

// checkNew binds a new pod that demands own CPUs, beside pods that the node
// refuses. It returns 1 if the ledger has room for the pod.
func (n *site) checkNew(t *testing.T, rnd *rand.Rand, uid place.UID) int {
	t.Helper()
	p := place.Pod{UID: uid, Request: anyDemand(rnd, len(n.topo.CPUs))}
	p.Request.Policy, p.Request.CPU = cpus.Exclusive, 0
	p.Request.CPUs = max(p.Request.CPUs, 1)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(n.grants.Notes)), n.grants.Refused) {
		return 0
	}
	c, why := n.ledger.Assume(p, "n")
	if why != cpus.Fits {
		return 0
	}
	n.ledger.Confirm(p, "n", c.Choice)
	n.pods[p.UID] = p
	n.tick()
	if id := node.WorkloadID(uid); n.grants.own()[id] != c.CPUs {
		t.Errorf("%s has %v, and its contract says %v: %s", uid, n.grants.own()[id], c.CPUs, n.grants.Text(id))
	}
	n.ledger.Learn("n", n.report())
	n.checkOpen(t)
	return 1
}

// checkOpen compares the open CPUs of the ledger with the decision of the agent.
func (n *site) checkOpen(t *testing.T) {
	t.Helper()
	want := n.topo.All().Minus(n.reserved)
	for id, set := range n.grants.own() {
		if !want.Contains(set) {
			t.Errorf("%s owns %v, and %v are left", id, set, want)
		}
		want = want.Minus(set)
	}
	rebuilt := place.New()
	rebuilt.Learn("n", n.report())
	for uid, p := range n.pods {
		c, _, _ := n.ledger.Contract(uid)
		rebuilt.Confirm(p, "n", c.Choice)
	}
	a, b := n.ledger.View("n"), rebuilt.View("n")
	if a.Open() != want || fmt.Sprint(a.Holds()) != fmt.Sprint(b.Holds()) {
		t.Errorf("open are %v, in the ledger %v: %v\nrebuilt %v: %v", want, a.Open(), a.Holds(), b.Open(), b.Holds())
	}
}
