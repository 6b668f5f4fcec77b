package cpus

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// Text returns the note as a predicate, whose subject is the workload: "has 2
// CPUs of its own in one L3 cache, as its scheduler chose".
func (n *Note) Text() string {
	text := ""
	switch {
	case n.Refused():
		return n.refusedText()
	case n.Reason != nil && n.Reason.Code == CPUSetMissing:
		has := map[Policy]string{Exclusive: Count(n.Has), Shared: "seats", Pool: "pool"}[n.Policy]
		return fmt.Sprintf("keeps its %s: %s", has, n.Reason.Text())
	case n.Policy == Exclusive && n.Reason != nil:
		return fmt.Sprintf("keeps its %s and requests %d: %s", Count(n.Has), n.Asked, n.Reason.Text())
	case n.Policy == Exclusive:
		text = fmt.Sprintf("has %s of its own%s", Count(n.Has), n.whereText())
	case n.Policy == Pool:
		text = "shares the open CPUs of " + n.Level.One()
	default:
		text = fmt.Sprintf("has seats on %s of %s", Count(n.Has), n.Level.One())
		if n.Moved {
			text += ", moved from CPUs that others own now"
		}
	}
	switch {
	case n.By == ByScheduler:
		return text + ", as its scheduler chose" + n.tail()
	case n.Choice != nil:
		return text + ", chosen by the node: " + n.choiceText()
	}
	return text + n.tail() // work of one machine has no scheduler
}

// Because returns the reason why the node chose the CPUs, without the CPUs. If
// the workload keeps CPUs because it gets no others, Because returns Text.
func (n *Note) Because() string {
	if n.Choice == nil || n.Reason != nil {
		return n.Text()
	}
	return n.choiceText()
}

func (n *Note) choiceText() string { return n.Choice.Text() + n.tail() }

// refusedText says why the workload has no CPUs, and where it runs then.
func (n *Note) refusedText() string {
	text := ""
	switch r := n.Reason; {
	case r.Code >= NoNumber && r.Code <= NoCPUSet && n.Policy != Exclusive:
		return r.Text() + ": it shares all open CPUs"
	case r.Code >= NoNumber && r.Code <= NoCPUSet && n.Bound:
		return r.Text() + ": it keeps the CPUs to which it was bound"
	case r.Code >= NoNumber && r.Code <= NoCPUSet:
		return r.Text() + ": it is treated as LS"
	case n.Policy == Exclusive:
		text = fmt.Sprintf("requests %s of its own, has none and is treated as LS: %s", Count(n.Asked), r.Text())
	default:
		text = fmt.Sprintf("has no %s and shares all open CPUs: %s", map[Policy]string{Shared: "seats", Pool: "pool"}[n.Policy], r.Text())
	}
	if n.Choice != nil {
		text += "; " + n.Choice.Text()
	}
	return text
}

// whereText says where exclusive CPUs lie. A single CPU is in one place of each
// kind.
func (n *Note) whereText() string {
	text := ""
	switch {
	case n.Has == 1:
	case n.Nodes > 1:
		text = fmt.Sprintf(" on %d NUMA nodes", n.Nodes)
	default:
		text = " in " + n.Level.One()
	}
	if n.Split > 0 {
		text += fmt.Sprintf(", %d beside others on a core", n.Split)
	}
	return text
}

// tail says that a pod has fewer shared CPUs than it asks for, and how a pool has
// grown.
func (n *Note) tail() string {
	text := ""
	switch {
	case n.Policy != Shared || n.Has >= n.Asked:
	case n.Choice != nil && n.Choice.Code == ChoiceForNumber: // it says for how many the pod asks
		text = ", but no more CPUs are open there"
	default:
		text = fmt.Sprintf("; the pod asks for %d, but no more CPUs are open there", n.Asked)
	}
	if len(n.Growth) > 0 {
		text += "; " + growthText(n.Growth)
	}
	return text
}

// growthText says how a pool last grew or shrank.
func growthText(all []Growth) string {
	if g := all[0]; g.Code == GrowthFull {
		return fmt.Sprintf("grew into CPUs %v: latency-sensitive work used %d %% of its CPUs for %v, and %d %% of these for %v", g.CPUs, g.Full, g.FullFor, g.Percent, g.For)
	}
	var parts []string
	for _, g := range all {
		parts = append(parts, fmt.Sprintf("CPUs %v: %s", g.CPUs, g.leftText()))
	}
	return "gave back " + strings.Join(parts, ", ")
}

// leftText says why a pool gave back CPUs.
func (g Growth) leftText() string {
	switch g.Code {
	case GrowthTaken:
		return fmt.Sprintf("others own %v or keep them", g.Taken)
	case GrowthBusy:
		return fmt.Sprintf("other services use %d %% of them", g.Percent)
	case GrowthAway:
		return "they are in no cache beside its home any more"
	case GrowthUncounted:
		return fmt.Sprintf("the use of each CPU by %s is not counted", g.Workload)
	case GrowthOtherWaits:
		return g.Workload + " waits longer than its objective"
	case GrowthSpare:
		return fmt.Sprintf("the rest would have been used to %d %% at most for %v", g.Percent, g.For)
	case GrowthIdle:
		return fmt.Sprintf("the pod used less than %d %% of its CPU request for %v", g.Percent, g.For)
	}
	return string(g.Code)
}

// Full returns the reason with its kind: "no room for seats: 2 seats for ...".
func (r *Reason) Full() string {
	if r.Code < codes && words[r.Code].kind != "" {
		return words[r.Code].kind + ": " + r.Text()
	}
	return r.Text()
}

// Text returns the reason as a clause, with its numbers.
func (r *Reason) Text() string {
	const choice = "its scheduler's choice "
	switch r.Code {
	case FractionalCPU:
		return fmt.Sprintf("requests %v of CPU, which is not a whole number of CPUs", r.CPU)
	case ClosedToCgroup:
		return fmt.Sprintf("its cgroup may use %s of %d open ones", orNone(r.Given), r.Open)
	case ForServices:
		return fmt.Sprintf("%s of %d open ones can be given, because services without own CPUs request %d", orNone(r.Given), r.Open, r.Stay)
	case MustStay:
		return fmt.Sprintf("%s of %d open ones can be given, because %d must stay open", orNone(r.Given), r.Open, r.Stay)
	case ChoiceNotPossible:
		return fmt.Sprintf("its scheduler's choice, %s, was not possible then", named(r.CPUs))
	case ChoiceForPolicy:
		return choice + "is for " + map[Policy]string{Exclusive: "own CPUs", Shared: "seats", Pool: "a pool"}[r.Policy]
	case ChoiceForNumber:
		return fmt.Sprintf("%shas %s, and the pod asks for %d now", choice, Count(r.CPUs.Len()), r.Request.CPUs)
	case ChoiceOffline:
		return fmt.Sprintf("%shas %s, not online", choice, named(r.CPUs))
	case ChoiceReserved:
		return fmt.Sprintf("%shas %s, reserved", choice, named(r.CPUs))
	case ChoiceClosed:
		return fmt.Sprintf("%shas %s, which its cgroup may not use", choice, named(r.CPUs))
	case ChoiceTaken:
		return fmt.Sprintf("%shas %s, which %s", choice, named(r.CPUs), r.holders())
	case ChoiceLeavesTooFew:
		return fmt.Sprintf("%sleaves %s to share, and at least %d must stay", choice, Count(r.Open), r.Stay)
	}
	switch {
	case r.Code == OtherManager && len(r.Others) > 0:
		return r.Code.Text() + ": " + r.othersText()
	case r.Request.Policy == 0 || r.Code >= NoReport || r.Code <= NoDemand:
		return r.Code.Text()
	case r.Request.Policy == Exclusive:
		return r.exclusiveText()
	}
	return r.sharedText()
}

// exclusiveText returns the numbers of a request for exclusive CPUs.
func (r *Reason) exclusiveText() string {
	asked := fmt.Sprintf("%d asked", r.Request.CPUs)
	where := ""
	if r.Request.Within > Machine {
		where = " in " + r.Request.Within.One()
	}
	if r.Request.Fewest {
		where += " on the fewest NUMA nodes"
	}
	switch r.Request.Bind {
	case OnlyWhole:
		asked += " as whole cores"
	case OnlySpread:
		asked += ", one of each core"
		if where != "" {
			asked += ","
		}
	}
	asked += where
	if r.Code == NotWhole {
		var texts []string
		for _, size := range r.Sizes {
			texts = append(texts, fmt.Sprint(size))
		}
		return asked + ", and a core has " + strings.Join(texts, " or ") + " CPUs"
	}
	text := fmt.Sprintf("%s, %s can be given: %d open", asked, orNone(r.Given), r.Open)
	switch {
	case r.Request.Bind == OnlyWhole && r.Cores < r.Open:
		text += fmt.Sprintf(" (%d on whole cores)", r.Cores)
	case r.Request.Bind == OnlySpread:
		text += fmt.Sprintf(" (on %d cores)", r.Cores)
	}
	if r.Stay > 0 {
		text += fmt.Sprintf(", of which %d %s", r.Stay, r.forWhom())
	}
	return text
}

// forWhom says for which work a number of CPUs stays open.
func (r *Reason) forWhom() string {
	verb := plural(r.Stay, "stays", "stay")
	if len(r.Others) == 0 {
		return verb + " open for work without own CPUs"
	}
	text := fmt.Sprintf("%s open for %s, which %s %v", verb, r.othersText(), plural(r.others(), "requests", "request"), r.Shared)
	if unit.CPUs(r.Stay-1) >= r.Shared { // each L3 cache and NUMA node keeps whole CPUs for the work in it
		text += " in several places"
	}
	return text
}

// sharedText returns the numbers of a request for shared CPUs or a pool.
func (r *Reason) sharedText() string {
	asked := fmt.Sprintf("a request of %v", r.Request.CPU)
	if r.Request.Policy == Shared {
		asked = fmt.Sprintf("%d %s for %s", r.Request.CPUs, plural(r.Request.CPUs, "seat", "seats"), asked)
	}
	place := ""
	if r.Request.Within > Machine {
		asked += " in " + r.Request.Within.One()
		place = " in the best"
	}
	if r.Code != SharedRequested && r.Code != PoolRequested {
		return fmt.Sprintf("%s asked, %s open%s", asked, orNone(r.Given), place)
	}
	return fmt.Sprintf("%s asked, %v left%s: %d open, of which %s %s %v", asked, r.CPU, place, r.Open, r.othersText(), plural(r.others(), "requests", "request"), r.Shared)
}

// holders says who has the CPUs of a choice.
func (r *Reason) holders() string {
	if len(r.Others) == 0 {
		return "others hold"
	}
	return r.othersText() + " " + plural(r.others(), "holds", "hold")
}

func (r *Reason) others() int { return len(r.Others) + r.OthersMore }

// othersText prints the names of the others: "a", "a and b" or "a, b and 2 more".
func (r *Reason) othersText() string {
	names := r.Others
	if r.OthersMore > 0 {
		names = append(names[:len(names):len(names)], fmt.Sprintf("%d more", r.OthersMore))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Count prints a number of CPUs: "1 CPU" or "2 CPUs".
func Count(n int) string { return fmt.Sprintf("%d %s", n, plural(n, "CPU", "CPUs")) }

// named prints a set with a noun: "CPU 8" or "CPUs 0-3".
func named(set unit.CPUSet) string { return plural(set.Len(), "CPU", "CPUs") + " " + set.String() }

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func orNone(n int) string {
	if n <= 0 {
		return "none"
	}
	return fmt.Sprint(n)
}
