// This file finds out which BE work took memory lately.

package slo

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// What a workload took is counted over the last one or two takenSpans.
	takenSpan = time.Minute
	// BE took memory if it gained 1/takenDivisor of the memory of the node or more, and
	// no less than all other work.
	takenDivisor = 100
)

// Taken is the BE work that took memory from others: it gained memory, or had to read
// back more pages than all other work. The zero Taken: there is none.
type Taken struct {
	// By is the workload that took most, and Percent its part of what BE took.
	By      node.WorkloadID `json:"by,omitempty"`
	Percent int64           `json:"percent,omitempty"`
}

// A Ledger follows the memory of all workloads while one of them has an objective for
// its requests.
type Ledger struct {
	// Since is the start of the present span.
	Since time.Time                   `json:"since,omitzero"`
	Work  map[node.WorkloadID]Account `json:"work,omitempty"`
}

// An Account is the memory of one workload. Low is the least in the present span, and
// Before in the span before. Refaults are the pages that it has read back. It had read
// back From at the start of the span, and Earlier at the start of the span before.
type Account struct {
	BE       bool              `json:"be,omitempty"`
	Now      unit.Bytes        `json:"now,omitempty"`
	Low      unit.Bytes        `json:"low,omitempty"`
	Before   unit.Bytes        `json:"before,omitempty"`
	Refaults node.Maybe[int64] `json:"refaults,omitzero"`
	From     int64             `json:"from,omitempty"`
	Earlier  int64             `json:"earlier,omitempty"`
}

// observe adds a snapshot. A workload that comes has taken all the memory that it has; of
// those in the first snapshot that is not known.
func (l Ledger) observe(s node.Snapshot) Ledger {
	first := l.Work == nil
	next := Ledger{Since: l.Since, Work: make(map[node.WorkloadID]Account, len(s.Workloads))}
	age := s.At.Sub(l.Since)
	turn := first || age >= takenSpan || age < 0
	if turn {
		next.Since = s.At
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		a, had := l.Work[w.ID]
		memory, known := w.Usage.Memory.Value()
		if !had && !known {
			continue // it counts from its first reading on
		}
		a.BE = w.Class == node.BE
		if known {
			a.Now = memory
		}
		if n, counted := w.Usage.Refaults.Value(); counted {
			if last, read := a.Refaults.Value(); !read || n < last { // the first reading, or another cgroup of this name
				a.From, a.Earlier = n, n
			}
			a.Refaults = node.Some(n)
		}
		if first {
			a.Low, a.Before = a.Now, a.Now
		}
		if turn {
			a.Before, a.From, a.Earlier = a.Low, a.Refaults.Or(0), a.From
			a.Low = a.Now
		}
		a.Low = min(a.Low, a.Now)
		next.Work[w.ID] = a
	}
	return next
}

// taken returns the BE work that took memory lately. total is the memory of the node.
func (l Ledger) taken(total node.Maybe[unit.Bytes]) Taken {
	gained := func(a Account) int64 { return int64(max(a.Now-min(a.Low, a.Before), 0)) }
	if all, known := total.Value(); known {
		if t := l.mostOf(gained, max(int64(all/takenDivisor), 1)); t.By != "" {
			return t
		}
	}
	return l.mostOf(func(a Account) int64 { return a.Refaults.Or(0) - a.Earlier }, 1)
}

// mostOf returns the BE workload with the largest amount, if BE has at least this much
// in all, and no less than all other work.
func (l Ledger) mostOf(amount func(Account) int64, least int64) Taken {
	var be, others, most int64
	t := Taken{}
	for id, a := range l.Work {
		n := amount(a)
		if !a.BE {
			others += n
			continue
		}
		be += n
		if n > most || n == most && n > 0 && id < t.By {
			t.By, most = id, n
		}
	}
	if be < least || be < others {
		return Taken{}
	}
	t.Percent = most * 100 / be
	return t
}
