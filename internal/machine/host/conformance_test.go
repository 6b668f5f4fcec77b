package host_test

import (
	"slices"
	"testing"

	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/model/node"
)

// TestConformance checks the facts of the simulator on the running kernel.
func TestConformance(t *testing.T) {
	conformance.Run(t, node.CgroupPath(groupName("conformance")), func(t *testing.T) conformance.Node {
		m := open(t, false)
		m.Show(slices.Concat(node.Files, node.IOFiles))
		return m
	})
}

// TestIsolationConformance checks the facts about the knobs of the isolation
// mechanisms, on the running kernel.
func TestIsolationConformance(t *testing.T) {
	conformance.RunIsolation(t, node.CgroupPath(groupName("isolation")), func(t *testing.T) conformance.Node {
		m := carefulMachine{open(t, false)}
		m.Show(append(slices.Clone(node.Files), node.FileIdentity, node.FileScheduler, node.FilePolicy, node.FileCookie))
		return m
	})
}
