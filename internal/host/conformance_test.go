package host_test

import (
	"testing"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/nodetest"
)

// TestConformance asks of the running kernel what the simulator does.
func TestConformance(t *testing.T) {
	nodetest.Conformance(t, node.CgroupPath(groupName("conformance")), func(t *testing.T) nodetest.Node {
		return open(t, false)
	})
}
