package kube

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

func TestPathsThatAreNoPods(t *testing.T) {
	for _, p := range []node.CgroupPath{
		"", "kubepods", "kubepods/besteffort", "kubepods/besteffort/pod", "system.slice/podman.service", "a/pod1", "kubepods.slice/kubepods-besteffort.slice",
		"kubepods.slice/kubepods-pod.slice", "kubepods/poda/b/c", "kubepods.slice/kubepods-poda.slice/crio-conmon-b.scope", "kubepods.slice/other-poda.slice",
		"user.slice/user-pod1.slice",
	} {
		if place, ok := ParsePodPath(p); ok {
			t.Errorf("%s is read as %+v", p, place)
		}
	}
}
