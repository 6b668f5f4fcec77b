package main

import (
	"fmt"
	"io"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// A mechanismLine is the line of one isolation mechanism in the output of tenon doctor.
type mechanismLine struct {
	Name      node.Mechanism `json:"name"`
	Available node.Verdict   `json:"available"`
	Why       string         `json:"why"`
	// Chosen means that Tenon uses the mechanism. But the configuration may select
	// another mechanism, or a trial may show that another one helps.
	Chosen bool `json:"chosen,omitempty"`
}

// isolation adds the mechanism that the policy would choose. It also adds the
// weight, which the policy writes together with each mechanism.
func (d *diagnosis) isolation(can node.Capabilities, i node.Isolation) {
	config := isolation.Config{Enable: true, Measured: true}
	chosen := isolation.Mechanisms(config, can, i)
	for _, r := range chosen.Mechanisms {
		d.Selection = append(d.Selection, mechanismLine{Name: r.Mechanism, Available: r.Can, Why: r.Why, Chosen: r.Mechanism == chosen.Mechanism})
	}
	d.Isolation = fmt.Sprintf("%s: %s", chosen.Mechanism, chosen.Why)
	_, wants := policy.Decide(policy.Config{CPUQOS: config}, policy.State{}, node.Snapshot{Capabilities: can, Workloads: []node.Workload{launchedBE()}})
	for _, w := range wants {
		if w.Intent == plan.Set && w.Knob.File == node.FileCPUWeight {
			d.Isolation += fmt.Sprintf("; with it, %s gets %s %v", w.Knob.Cgroup, w.Knob.File, w.Value)
		}
	}
}

// printSelection prints the isolation mechanisms, the strongest first.
func (d diagnosis) printSelection(out io.Writer) {
	if len(d.Selection) == 0 {
		return
	}
	const row, indent = "%-10s  %-9s  %-8s  %s\n", 10 + 2 + 9 + 2 + 8 + 2
	fmt.Fprintf(out, row, "ISOLATION", "AVAILABLE", "TENON", "WHY")
	for _, r := range d.Selection {
		takes := ""
		if r.Chosen {
			takes = "takes it"
		}
		fmt.Fprintf(out, row, r.Name, r.Available, takes, fold(r.Why, indent))
	}
	fmt.Fprintln(out)
}
