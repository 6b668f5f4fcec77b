package overcommit

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sides lists the classes in the order of their terms in the formula. The term
// of BE counts only work of node.Workload.Mid.
var sides = [...]node.Class{node.LSE, node.LSR, node.LS, node.System, node.BE}

// usesBatch reports whether a workload runs on batch resources. The usage of
// such a workload does not reduce the offer.
func usesBatch(w *node.Workload) bool { return w.Class == node.BE && !w.Mid }

// A share holds the amount that the formula subtracts for one class (sum). It
// also has numbers of workloads: all, and those that count in a special way.
type share[T unit.MilliCPU | unit.Bytes] struct {
	sum        T
	works      int // number of workloads
	unasked    int // workloads that count by usage, because they have no request
	unmeasured int // workloads that count by request, because their usage is not yet known
	cold       int // workloads with too short a history for a prediction
}

// add adds a workload to the share. used is its usage, or absent if it was
// never measured. begins means that its usage does not count yet, because it is
// starting. add returns false if neither usage nor request is known.
func (h *share[T]) add(r resource[T], c PeakPrediction, w *node.Workload, p *peak, used node.Maybe[T], begins bool) bool {
	h.works++
	asked, has := r.request(w).Value()
	seen, measured := used.Known(), r.measured(w)
	byUse := r.Policy == ByUsage && !slices.Contains(r.countedByRequest, w.Class)
	early := !seen || !measured || begins
	policy := r.Policy
	if policy == ByUsage && (!byUse || early) {
		policy = ByMaxUsageRequest
	}
	counts, _ := Counted(policy, used, r.request(w)) // whether it is known, measured says
	switch {
	case has && byUse && early:
		h.unmeasured++
	case !has && measured && !byUse && seen:
		h.unasked++
	}
	if c.Enable && r.Policy != ByRequest {
		counts = max(counts, T(*r.peak(p))*r.scale)
		if p.Watched < c.ColdStart {
			counts = max(counts, asked)
			h.cold++
		}
	}
	h.sum += counts
	return has || measured
}

// terms returns the terms of the formula with their texts. Their sum is the offer.
func (r resource[T]) terms(c Config, a Amount[T], all [len(sides)]share[T]) []node.Term[T] {
	terms := make([]node.Term[T], 0, len(sides)+5)
	add := func(name node.TermName, amount T, format string, args ...any) {
		terms = append(terms, node.Term[T]{Name: name, Amount: amount, Text: fmt.Sprintf(format, args...)})
	}
	add(node.TermCapacity, a.Capacity, "%v of %s", r.ThresholdPercent, node.Readable(r.capacity))
	if a.ByReservation {
		add(node.TermReserved, a.Node, "reserved for the node")
	} else {
		add(node.TermNode, a.Node, "used by the system")
	}
	for i, h := range all {
		if h.works > 0 {
			add(node.TermName(sides[i]), -h.sum, "%s%s", r.describeCounting(sides[i], c.Peak), h.notes(c.Peak))
		}
	}
	if p, limited := r.LimitPercent.Value(); limited && a.Limit != 0 {
		add(node.TermLimit, a.Limit, "above %s, %v of %s", r.limitKey, p, node.Readable(r.capacity))
	}
	if a.Unneeded != 0 {
		add(node.TermUnneeded, a.Unneeded, "of a node of which other work requests less than %v (minServiceRequestPercent)", c.MinServicePercent)
	}
	if a.Floor != 0 {
		add(node.TermFloor, a.Floor, "of deficit: nothing is left")
	}
	return terms
}

// describeCounting returns the part of a reason that says how a class counts.
func (r resource[T]) describeCounting(class node.Class, c PeakPrediction) string {
	by := []string{"use"}
	switch {
	case r.Policy == ByRequest:
		return fmt.Sprintf("requested by %s", class)
	case r.Policy == ByUsage && slices.Contains(r.countedByRequest, class):
		by[0] = "request"
	case r.Policy == ByMaxUsageRequest:
		by = append(by, "request")
	}
	if c.Enable {
		by = append(by, "peak")
	}
	switch {
	case len(by) > 1:
		return fmt.Sprintf("of %s, the largest of %s", class, strings.Join(by, ", "))
	case by[0] == "request":
		return fmt.Sprintf("requested by %s", class)
	}
	return fmt.Sprintf("used by %s", class)
}

// notes returns the part of a reason about the workloads that count in a
// special way: how many there are, and how they count.
func (h share[T]) notes(c PeakPrediction) string {
	var notes []string
	note := func(n int, format string, args ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf("%d of %d ", n, h.works)+fmt.Sprintf(format, args...))
		}
	}
	note(h.unasked, "by use, no request")
	note(h.unmeasured, "by request, not measured")
	note(h.cold, "watched for less than %v, also by request", c.ColdStart)
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

// portion returns p percent of v, rounded down. p is limited to 100000.
func portion[T unit.MilliCPU | unit.Bytes](v T, p unit.Percent) T {
	p = min(p, 100_000)
	return v/100*T(p) + v%100*T(p)/100
}
