// Package shortage says in words and numbers why a node has no room for a claim:
// what the claim asks for, what the node can give, and which work needs the rest.
// All numbers come from the functions that decide, so that they cannot contradict
// the decision. A text is made for one node and one reader. A scheduler that asks
// thousands of nodes uses the constants of package pick instead.
package shortage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A Node is the state of the CPUs of one node.
type Node struct {
	Map   *pick.Map
	Seats pick.Seats
	// Sharers are the workloads with seats or pools.
	Sharers []Sharer
}

// A Sharer is a workload with seats or a pool.
type Sharer struct {
	Name string
	CPU  unit.MilliCPU
}

// SharerOf returns the sharer with a hold. It returns false if the workload
// shares no CPUs.
func SharerOf(name string, h cpus.Allocation) (Sharer, bool) {
	return Sharer{Name: name, CPU: h.CPU}, h.Policy > cpus.Exclusive
}

// Explain returns the reason why a claim does not fit, with numbers. It returns
// "" if the claim fits.
func (n Node) Explain(c cpus.Request) string {
	why, numbers := n.Numbers(c)
	kind, _, found := strings.Cut(why.Text(), ": ")
	if numbers == "" || !found {
		return why.Text()
	}
	return kind + ": " + numbers
}

// Numbers returns the reason why a claim does not fit, and the numbers behind
// it, such as "8 asked, 2 can be given: 8 open, of which 6 stay open for web,
// which requests 5500m". There are no numbers if the claim fits or is for no
// CPU.
func (n Node) Numbers(c cpus.Request) (cpus.Code, string) {
	u := n.Map.Sum(n.Seats)
	why := u.Room(&c)
	switch {
	case why == cpus.Fits || why == cpus.NoDemand:
		return why, ""
	case c.Policy == cpus.Exclusive:
		return why, n.own(&u, c, why)
	}
	return why, n.shared(&u, c, why)
}

// own returns the numbers for a claim for own CPUs.
func (n Node) own(u *pick.Summary, c cpus.Request, why cpus.Code) string {
	asked := fmt.Sprintf("%d asked", c.CPUs)
	switch c.Bind {
	case cpus.OnlyWhole:
		asked += " as whole cores"
	case cpus.OnlySpread:
		asked += ", one of each core,"
	}
	if c.Within > cpus.Machine {
		asked += " in " + c.Within.One()
	}
	if c.Fewest {
		asked += " on the fewest NUMA nodes"
	}
	asked = strings.TrimSuffix(asked, ",")
	if why == cpus.NotWhole {
		return asked + ", and " + sizes(n.Map)
	}
	open := n.Map.Open(n.Seats)
	text := fmt.Sprintf("%s, %s can be given: %d open", asked, orNone(given(u, c)), open.Len())
	switch c.Bind {
	case cpus.OnlyWhole:
		if whole := onCores(n.Map, open, true); whole < open.Len() {
			text += fmt.Sprintf(" (%d on whole cores)", whole)
		}
	case cpus.OnlySpread:
		text += fmt.Sprintf(" (on %d cores)", onCores(n.Map, open, false))
	}
	any := cpus.Request{Policy: cpus.Exclusive, CPUs: open.Len() + 1}
	if stay := open.Len() - given(u, any); stay > 0 {
		text += fmt.Sprintf(", of which %d %s", stay, n.forWhom(stay))
	}
	return text
}

// given returns the largest number of own CPUs, below the number in the claim,
// for which the claim would fit. It tries each number with the function that
// decides.
func given(u *pick.Summary, c cpus.Request) int {
	for c.CPUs = min(c.CPUs, unit.MaxCPUs+1) - 1; c.CPUs > 0 && u.Room(&c) != cpus.Fits; {
		c.CPUs--
	}
	return max(c.CPUs, 0)
}

// forWhom says for which work a number of CPUs stays open.
func (n Node) forWhom(stay int) string {
	verb := "stays"
	if stay > 1 {
		verb = "stay"
	}
	requests := unit.MilliCPU(0)
	for _, s := range n.Sharers {
		requests += s.CPU
	}
	if len(n.Sharers) == 0 || stay <= n.Seats.Keep() {
		return verb + " open for work without own CPUs"
	}
	text := fmt.Sprintf("%s open for %s, which %s %v", verb, n.who(), request(len(n.Sharers)), requests)
	if unit.CPUs(stay-1) >= requests { // each L3 cache and NUMA node keeps whole CPUs for the work in it
		text += " in several places"
	}
	return text
}

// shared returns the numbers for a claim for seats or a pool.
func (n Node) shared(u *pick.Summary, c cpus.Request, why cpus.Code) string {
	asked := fmt.Sprintf("a request of %v", c.CPU)
	if c.Policy == cpus.Shared {
		asked = fmt.Sprintf("%s for %s", countSeats(c.CPUs), asked)
	}
	place := ""
	if c.Within > cpus.Machine {
		asked += " in " + c.Within.One()
		place = " in the best"
	}
	open := n.Map.Open(n.Seats)
	best := 0
	for _, set := range n.Map.Pools(c.Within) {
		best = max(best, set.Intersect(open).Len())
	}
	if why != cpus.SharedRequested && why != cpus.PoolRequested {
		return fmt.Sprintf("%s asked, %s open%s", asked, orNone(best), place)
	}
	requests := unit.MilliCPU(0)
	for _, s := range n.Sharers {
		requests += s.CPU
	}
	return fmt.Sprintf("%s asked, %v left%s: %d open, of which %s %s %v", asked, left(u, c), place, open.Len(), n.who(), request(len(n.Sharers)), requests)
}

// left returns the largest request, below the request of the claim, with which
// a claim for seats or a pool would fit.
func left(u *pick.Summary, c cpus.Request) unit.MilliCPU {
	fits := func(request unit.MilliCPU) bool {
		c.CPU = request
		return u.Room(&c) == cpus.Fits
	}
	least, above := unit.MilliCPU(0), c.CPU
	for above-least > 1 {
		if at := (least + above) / 2; fits(at) {
			least = at
		} else {
			above = at
		}
	}
	return least
}

// mostNames is the number of sharers that a text names.
const mostNames = 3

// who names the workloads with seats or pools. The largest request comes first.
func (n Node) who() string {
	all := slices.Clone(n.Sharers)
	slices.SortFunc(all, func(a, b Sharer) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), strings.Compare(a.Name, b.Name))
	})
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if len(names) > mostNames {
		names = append(names[:mostNames-1], fmt.Sprintf("%d more", len(names)-mostNames+1))
	}
	return List(names)
}

// List prints names as "a", "a and b" or "a, b and c".
func List(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// onCores counts the open CPUs on wholly open cores, if whole is set. Otherwise
// it counts the cores that have an open CPU.
func onCores(m *pick.Map, open unit.CPUSet, whole bool) int {
	n := 0
	for _, core := range pick.Cores(m) {
		switch {
		case whole && open.Contains(core):
			n += core.Len()
		case !whole && !open.Intersect(core).Empty():
			n++
		}
	}
	return n
}

// sizes says how many CPUs the cores have.
func sizes(m *pick.Map) string {
	var all []int
	for _, core := range pick.Cores(m) {
		if !slices.Contains(all, core.Len()) {
			all = append(all, core.Len())
		}
	}
	slices.Sort(all)
	var texts []string
	for _, size := range all {
		texts = append(texts, fmt.Sprint(size))
	}
	return "a core has " + strings.Join(texts, " or ") + " CPUs"
}

func orNone(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func countSeats(n int) string {
	if n == 1 {
		return "1 seat"
	}
	return fmt.Sprintf("%d seats", n)
}

func request(n int) string {
	if n == 1 {
		return "requests"
	}
	return "request"
}
