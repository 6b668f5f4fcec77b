package hold

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/shortage"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// describe returns a sentence about a grant of own CPUs, for the reason of a
// want.
func describe(w node.Workload, o pick.Offer) string {
	text := fmt.Sprintf("%s has %s of its own", w.ID, facts.CountCPUs(o.CPUs.Len()))
	switch {
	case o.CPUs.Len() == 1: // a single CPU is in one place of each kind
	case o.Nodes > 1:
		text += fmt.Sprintf(" on %d NUMA nodes", o.Nodes)
	case o.Caches > 1:
		text += " in " + cpus.NUMA.One()
	default:
		text += " in " + cpus.L3.One()
	}
	if o.Split > 0 {
		text += fmt.Sprintf(", %d beside others on a core", o.Split)
	}
	return text
}

// describeShared returns a sentence about a grant of seats or a pool.
func describeShared(w node.Workload, h cpus.Allocation, m *pick.Map, moved bool) string {
	place := m.LevelOf(h.Domain).One()
	if h.Policy == cpus.Pool {
		return fmt.Sprintf("%s shares the open CPUs of %s", w.ID, place)
	}
	text := fmt.Sprintf("%s has seats on %s of %s", w.ID, facts.CountCPUs(h.CPUs.Len()), place)
	if moved {
		text += ", moved from CPUs that others own now"
	}
	return text
}

// fewer returns a phrase if a pod has fewer seats than it asks for. refusal is
// the same as in author.
func fewer(w node.Workload, h cpus.Allocation, refusal string) string {
	asked := w.Overrides.CPUs.CPUs
	switch {
	case h.Policy != cpus.Shared || h.CPUs.Len() >= asked:
		return ""
	case strings.HasSuffix(refusal, asksNow(asked)):
		return ", but no more CPUs are open there"
	}
	return fmt.Sprintf("; the pod asks for %d, but no more CPUs are open there", asked)
}

// another returns why the node cannot follow the choice of a scheduler that has
// another number of CPUs than the pod asks for. The pod has changed since.
func another(chosen unit.CPUSet, asked int) string {
	return "has " + facts.CountCPUs(chosen.Len()) + asksNow(asked)
}

func asksNow(n int) string { return fmt.Sprintf(", and the pod asks for %d now", n) }

// nodeChose is the text in Held.How before the reason of the node's choice.
const nodeChose = ", chosen by the node: "

// Because returns the reason why the node chose the CPUs of a workload. The
// reason does not repeat the CPUs.
func (g Held) Because(id node.WorkloadID) string {
	if _, why, found := strings.Cut(g.How[id], nodeChose); found {
		return why
	}
	return g.How[id]
}

// author says why the node chose the CPUs of a workload. refusal is the reason
// why it does not follow the choice of a scheduler. If the workload has such a
// choice but refusal is empty, the node could follow the choice only now.
func author(w node.Workload, refusal string) string {
	o := w.Overrides.CPUs
	switch {
	case refusal != "":
		return nodeChose + "its scheduler's choice " + refusal
	case chosenPolicy(o) != 0:
		return fmt.Sprintf("%sits scheduler's choice, %s, was not possible then", nodeChose, named(o.Chosen.CPUs))
	case o.Pod != "":
		return nodeChose + "no scheduler chose CPUs for it"
	}
	return "" // work of one machine has no scheduler
}

// nounOf returns the name of a policy for texts.
func nounOf(p cpus.Policy) string {
	return map[cpus.Policy]string{cpus.Exclusive: "own CPUs", cpus.Shared: "seats", cpus.Pool: "a pool"}[p]
}

// named prints a set with a noun: "CPU 8" or "CPUs 0-3".
func named(set unit.CPUSet) string {
	if set.Len() == 1 {
		return fmt.Sprintf("CPU %v", set)
	}
	return fmt.Sprintf("CPUs %v", set)
}

// refuse returns the reason why the node cannot follow the choice of a
// scheduler for own CPUs, or "". If the workload keeps other CPUs, the reason
// also names the workloads that hold the chosen ones.
func (r *round) refuse(chosen cpus.Choice, c claim, had, free unit.CPUSet, spare int) string {
	all := r.Map.All()
	switch {
	case chosen.Topology != 0 && chosen.Topology != r.Map.Hash():
		return "is for another topology"
	case chosen.Policy != cpus.Exclusive:
		return "is for " + nounOf(chosen.Policy)
	case chosen.CPUs.Len() != c.cpus:
		return another(chosen.CPUs, c.cpus)
	case !all.Contains(chosen.CPUs):
		return fmt.Sprintf("has %s, not online", named(chosen.CPUs.Minus(all)))
	case !r.pool.Contains(chosen.CPUs):
		return fmt.Sprintf("has %s, reserved", named(chosen.CPUs.Minus(r.pool)))
	}
	if closed := chosen.CPUs.Minus(RoomBefore(r.snap.Knobs, c.work.Cgroup, all)); !closed.Empty() {
		return fmt.Sprintf("has %s, which its cgroup may not use", named(closed))
	}
	taken, keeps := chosen.CPUs.Minus(free), !had.Empty() && had != chosen.CPUs
	var holders []string
	for i := range r.asked {
		other := &r.asked[i]
		if taken.Empty() && !keeps || other.work.ID == c.work.ID {
			continue
		}
		set, granted := r.Of[other.work.ID]
		if !granted && r.Why[other.work.ID] == "" {
			set = other.had.Intersect(r.pool)
		}
		if keeps {
			taken = taken.Union(set.Intersect(chosen.CPUs))
		}
		if !set.Intersect(taken).Empty() {
			holders = append(holders, string(other.work.ID))
		}
	}
	switch {
	case len(holders) == 1:
		return fmt.Sprintf("has %s, which %s holds", named(taken), holders[0])
	case len(holders) > 1:
		return fmt.Sprintf("has %s, which %s hold", named(taken), shortage.List(holders))
	case !taken.Empty():
		return fmt.Sprintf("has %s, which others hold", named(taken))
	case c.cpus > spare:
		return fmt.Sprintf("leaves %d CPUs to share, and at least %d must stay", r.free.Len()-c.cpus, r.least)
	}
	return ""
}

// lacks returns the reason why too few CPUs are free for a claim for own CPUs,
// or "" if there are enough. spare is the number of CPUs that an old claim may
// get, and more the number for this claim.
func (r *round) lacks(c claim, free unit.CPUSet, spare, more int) string {
	open := r.free.Len()
	given := fmt.Sprintf("%s of %d open ones can be given", atMost(more), open)
	switch {
	case c.cpus <= more && free.Len() < c.cpus:
		return fmt.Sprintf("its cgroup may use %s of %d open ones", atMost(free.Len()), open)
	case c.cpus <= more:
		return ""
	case open == 0:
		return "none is open"
	case c.cpus <= spare || r.counted > r.least && more < spare:
		return fmt.Sprintf("%s, because services without own CPUs request %d", given, r.counted)
	}
	return fmt.Sprintf("%s, because %d must stay open", given, r.least)
}

func atMost(n int) string {
	if n <= 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// numbersOf says why a claim does not fit although enough CPUs are free.
func numbersOf(n shortage.Node, c cpus.Request) string {
	if why, numbers := n.Numbers(c); numbers != "" {
		return numbers
	} else if why != cpus.Fits {
		return why.Text()
	}
	return "the CPUs that it has cannot become whole cores" // only a demand for whole cores depends on the CPUs that it has
}
