package main

import (
	"strings"
	"testing"
)

// TestTheCgroupsOfPodsShowTwoDrivers checks what the doctor says about the places
// in which a kubelet and a container runtime have put pods and containers.
func TestTheCgroupsOfPodsShowTwoDrivers(t *testing.T) {
	const (
		level  = "kubepods.slice/kubepods-besteffort.slice"
		pod    = level + "/kubepods-besteffort-podaa_bb.slice"
		inside = pod + "/cri-containerd-01.scope"
		beside = "system.slice/kubepods-besteffort-podaa_bb.slice:cri-containerd:01"
		old    = "kubepods/burstable/podcc-dd"
	)
	for name, c := range map[string]struct {
		paths []string
		want  []string // part of each line
	}{
		"no pods":          {[]string{"system.slice", "system.slice/ssh.service"}, nil},
		"systemd":          {[]string{"kubepods.slice", level, pod, inside, "system.slice/containerd.service"}, nil},
		"cgroupfs":         {[]string{"kubepods", "kubepods/burstable", old, old + "/01", "kubepods/podee"}, nil},
		"a kubelet's root": {[]string{"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pode.slice", "other/podman/libpod-1"}, nil},
		"they differ": {[]string{"kubepods.slice", level, pod, beside},
			[]string{"the container runtime has cgroupfs: 1 container is outside of the cgroups of the pods, such as " + beside}},
		"two differ": {[]string{pod, beside, "kubepods-poda.slice:crio:02"},
			[]string{"2 containers are outside of the cgroups of the pods, such as kubepods-poda.slice:crio:02"}},
		"changed while pods ran": {[]string{"kubepods/burstable", old, old + "/01", pod, inside},
			[]string{"1 pod is of the cgroup driver cgroupfs and 1 of systemd: the driver of the kubelet was changed while pods ran, and Tenon bounds only those of the present driver. Drain the node; a pod of cgroupfs is " + old}},
		"both": {[]string{old, pod, beside}, []string{"such as " + beside, "Drain the node"}},
	} {
		got := findPodCgroups(c.paths).lines()
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %d lines", name, got, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: %q, want %q", name, got[i], want)
			}
		}
	}
	d := diagnosis{Pods: findPodCgroups([]string{pod, beside})}
	if text := d.String(); !strings.Contains(text, "TROUBLE (pods)") || !strings.Contains(strings.Join(strings.Fields(text), " "), "give both the driver systemd") {
		t.Errorf("tenon doctor prints\n%s", text)
	}
}
