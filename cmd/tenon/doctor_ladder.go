package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// A rung is what tenon doctor says of one means of isolation on the CPU.
type rung struct {
	Name      node.Rung    `json:"name"`
	Available node.Verdict `json:"available"`
	Why       string       `json:"why"`
	// Chosen: Tenon takes it, unless the configuration says otherwise.
	Chosen bool `json:"chosen,omitempty"`
}

// climb asks the policy itself which rung it would take, and what it does below
// every rung.
func (d *diagnosis) climb(can node.Capabilities, i node.Isolation) {
	config := policy.CPUQOS{Enable: true}
	ladder := policy.Ladder(config, can, i)
	for _, r := range ladder.Rungs {
		d.Ladder = append(d.Ladder, rung{Name: r.Rung, Available: r.Can, Why: r.Why, Chosen: r.Rung == ladder.Rung})
	}
	d.Isolation = fmt.Sprintf("%s: %s", ladder.Rung, ladder.Why)
	_, wants := policy.Decide(policy.Config{CPUQOS: config}, policy.State{}, node.Snapshot{Can: can, Workloads: []node.Workload{launchedBE()}})
	for _, w := range wants {
		if w.Intent == plan.Set && w.Knob.File == node.FileCPUWeight {
			d.Isolation += fmt.Sprintf("; below it %s %v on %s: %s", w.Knob.File, w.Value, w.Knob.Cgroup, w.Reason)
		}
	}
}

// printLadder prints the rungs, from the strongest down.
func (d diagnosis) printLadder(out io.Writer) {
	if len(d.Ladder) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUNG\tAVAILABLE\tTENON\tWHY")
	for _, r := range d.Ladder {
		takes := ""
		if r.Chosen {
			takes = "takes it"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Name, r.Available, takes, r.Why)
	}
	table.Flush()
	fmt.Fprintln(out)
}
