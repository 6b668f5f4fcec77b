package main

import (
	"os"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestTheFirstStepsShowTheTableOfDoctor prints the isolation mechanisms of a
// machine without SMT and sched_ext. docs/first-steps.md must show that table.
func TestTheFirstStepsShowTheTableOfDoctor(t *testing.T) {
	var d diagnosis
	d.isolation(node.Capabilities{
		node.FeatureSchedExt:    {Verdict: node.No, Why: "/sys/kernel/sched_ext does not exist"},
		node.FeatureHardwareSMT: {Verdict: node.No},
		node.FeatureCPUIdle:     {Verdict: node.Yes, Why: "cpu.idle exists in a new cgroup"},
	}, node.Isolation{})
	var table strings.Builder
	d.printSelection(&table)
	page, err := os.ReadFile("../../docs/first-steps.md")
	if want := "```\n" + strings.TrimRight(table.String(), "\n") + "\n```\n"; err != nil || !strings.Contains(string(page), want) {
		t.Errorf("docs/first-steps.md shows another table (%v) than\n%s", err, want)
	}
}
