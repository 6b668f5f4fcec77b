package manager

import (
	"fmt"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
)

// A claim is the amount of one resource in a report, with a checked sum. The
// manager computes the amount again from the other fields, with its own
// knowledge of the node and of the settings.
type claim struct {
	promised bool  // the agent reports this resource, perhaps with the amount 0
	amount   int64 // the reported amount
	sum      bool  // the report has terms
	share    int64 // sum of the positive terms: the capacity that all work shares
	system   int64 // CPU or memory that the system uses
	others   int64 // CPU or memory for work that is not best-effort
	degraded string
	// formula is the present result of the agent's formula. held means that the
	// amount differs from this result, because a change has to wait.
	formula int64
	held    bool
	// requested is the sum of the requests of the running pods, or 0 if the
	// agent does not report it.
	requested int64
}

// These limits bound the size of a report, because its author is not trusted.
const (
	maxTerms = 64
	maxText  = 1024
)

// claims reads the amounts of a report. It refuses amounts below 0, wrong sums,
// and quantities that are too large.
func claims(b v1alpha1.Batch) ([kinds]claim, error) {
	var all [kinds]claim
	for k, a := range [kinds]*v1alpha1.BatchAmount{cpu: b.CPU, memory: b.Memory} {
		c, err := kind(k).claim(a)
		if err != nil {
			return all, fmt.Errorf("%v: %w", kind(k), err)
		}
		all[k] = c
	}
	return all, nil
}

func (k kind) claim(a *v1alpha1.BatchAmount) (claim, error) {
	if a == nil || a.Policy == "" {
		return claim{}, nil
	}
	c := claim{promised: true, sum: len(a.Terms) > 0}
	switch a.Policy {
	case "usage", "request", "maxUsageRequest":
	default:
		return c, fmt.Errorf("policy is %.40q, want usage, request or maxUsageRequest", a.Policy)
	}
	if len(a.Terms) > maxTerms {
		return c, fmt.Errorf("there are %d terms, more than %d", len(a.Terms), maxTerms)
	}
	if len(a.Degraded) > maxText || len(a.Held) > maxText {
		return c, fmt.Errorf("a reason has more than %d bytes", maxText)
	}
	var err error
	if c.amount, err = k.exactly(a.Amount); err != nil {
		return c, fmt.Errorf("amount: %w", err)
	}
	if c.amount < 0 {
		return c, fmt.Errorf("amount %s is below 0", k.printAmount(c.amount))
	}
	var sum int64
	for _, t := range a.Terms {
		v, err := k.exactly(t.Amount)
		if err != nil {
			return c, fmt.Errorf("term %.40q: %w", t.Name, err)
		}
		if sum += v; sum > quantity.Max || sum < -quantity.Max {
			return c, fmt.Errorf("the terms add up to more than can be counted")
		}
		switch name := node.TermName(t.Name); {
		case name == node.TermLimit || name == node.TermFloor:
			// The manager computes the terms TermLimit and TermFloor from the others.
		case name == node.TermNode || name == node.TermReserved:
			c.system -= v
		case v > 0:
			c.share += v
		default:
			c.others -= v
		}
	}
	if sum != c.amount {
		return c, fmt.Errorf("the terms add up to %s, the amount is %s", k.printAmount(sum), k.printAmount(c.amount))
	}
	if c.formula, err = k.exactly(a.Formula); err != nil {
		return c, fmt.Errorf("formula: %w", err)
	}
	c.degraded, c.held = a.Degraded, a.Held != ""
	if a.Requested != nil {
		if c.requested, err = k.exactly(*a.Requested); err != nil {
			return c, fmt.Errorf("requested: %w", err)
		}
		if c.requested < 0 {
			return c, fmt.Errorf("requested %s is below 0", k.printAmount(c.requested))
		}
	}
	return c, nil
}
