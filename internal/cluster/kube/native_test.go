package kube

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// When Tenon releases a resized container, it must write the limit that the
// kubelet enforces now, not the limit from before Tenon.
func TestWhatTheKubeletEnforcesIsKnownOfEachContainer(t *testing.T) {
	p := pod("p", container("a", "", "cpu=2500m memory=1Gi"), container("b", "cpu=1", ""))
	path := onePod(t, p).Cgroup
	all := Natives(&p, Layout{})
	if len(all) != 3 || all[path].CPURequest != node.Some(unit.MilliCPU(3500)) || all[path].CPULimit.Known() {
		t.Errorf("the pod: %+v", all)
	}
	for _, part := range onePod(t, p).Containers {
		got := all[part.Cgroup]
		if got.CPULimit != part.CPULimit || got.MemoryLimit != part.MemoryLimit || got.CPURequest != part.CPURequest || !got.CPURequest.Known() {
			t.Errorf("container %s: %+v, want %+v", part.Name, got, part)
		}
	}
}
