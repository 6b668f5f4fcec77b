package manager

import (
	"fmt"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/node"
)

// A claim is an amount that a report has and that was found to be right: its
// terms add up to it. It is kept as what is needed to work it out again with
// what the manager knows of the node and of the owner's wishes.
type claim struct {
	promised bool  // the agent promises this resource, be it 0
	amount   int64 // what it promises
	sum      bool  // the terms are there
	share    int64 // what is divided: the terms above 0
	system   int64 // what the node needs for itself
	others   int64 // what work that does not give way counts for
	degraded string
	// formula is what the formula gives, where that waits to be promised, and
	// held says that it waits.
	formula int64
	held    bool
	// requested is what running pods request of it; 0 also where the agent does
	// not say.
	requested int64
}

// A report is bounded where its author is not trusted to be.
const (
	mostTerms = 64
	mostText  = 1024
)

// claims reads what a report promises, and refuses what cannot be: amounts
// below 0, sums that are wrong, quantities without end.
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
	if len(a.Terms) > mostTerms {
		return c, fmt.Errorf("there are %d terms, more than %d", len(a.Terms), mostTerms)
	}
	if len(a.Degraded) > mostText || len(a.Held) > mostText {
		return c, fmt.Errorf("a reason has more than %d bytes", mostText)
	}
	var err error
	if c.amount, err = k.count(a.Amount); err != nil {
		return c, fmt.Errorf("amount: %w", err)
	}
	if c.amount < 0 {
		return c, fmt.Errorf("amount %s is below 0", k.readable(c.amount))
	}
	var sum int64
	for _, t := range a.Terms {
		v, err := k.count(t.Amount)
		if err != nil {
			return c, fmt.Errorf("term %.40q: %w", t.Name, err)
		}
		if sum += v; sum > most || sum < -most {
			return c, fmt.Errorf("the terms add up to more than can be counted")
		}
		switch name := node.TermName(t.Name); {
		case name == node.TermLimit || name == node.TermFloor:
			// They follow from the others.
		case name == node.TermNode || name == node.TermReserved:
			c.system -= v
		case v > 0:
			c.share += v
		default:
			c.others -= v
		}
	}
	if sum != c.amount {
		return c, fmt.Errorf("the terms add up to %s, the amount is %s", k.readable(sum), k.readable(c.amount))
	}
	if c.formula, err = k.count(a.Formula); err != nil {
		return c, fmt.Errorf("formula: %w", err)
	}
	c.degraded, c.held = a.Degraded, a.Held != ""
	if a.Requested != nil {
		if c.requested, err = k.count(*a.Requested); err != nil {
			return c, fmt.Errorf("requested: %w", err)
		}
		if c.requested < 0 {
			return c, fmt.Errorf("requested %s is below 0", k.readable(c.requested))
		}
	}
	return c, nil
}
