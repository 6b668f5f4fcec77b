package main

import (
	"fmt"
	"path"
	"strings"

	"tenon.sh/tenon/internal/table"
)

// podCgroups says whether the cgroups of pods on this machine show two cgroup
// drivers. The zero value: they show one, or there are no pods.
type podCgroups struct {
	// Beside is the number of containers whose cgroup has a name for systemd, which
	// a runtime with the driver cgroupfs made of it: SLICE:PREFIX:ID. The kubelet has
	// the driver systemd.
	Beside int `json:"beside,omitempty"`
	// Cgroupfs and Systemd are the numbers of pods of each driver, if there are pods
	// of both.
	Cgroupfs int `json:"cgroupfs,omitempty"`
	Systemd  int `json:"systemd,omitempty"`
	// Example is the cgroup of one container, or of one pod of the driver cgroupfs.
	Example string `json:"example,omitempty"`
}

// findPodCgroups looks for the cgroups of pods among all cgroups. A setting does not
// count, because the kubelet asks the runtime for its driver, or a file that no
// program reads any more has another.
func findPodCgroups(paths []string) *podCgroups {
	var found podCgroups
	pod := "" // of the driver cgroupfs
	for _, p := range paths {
		above, name := path.Split(p)
		slice, _, beside := strings.Cut(name, ".slice:")
		_, uid, systemd := strings.Cut(strings.TrimSuffix(name, ".slice"), "-pod")
		switch level := path.Base(above); {
		case beside && strings.Contains(slice, "kubepods") && strings.Count(name, ":") == 2:
			found.Beside, found.Example = found.Beside+1, p
		case systemd && uid != "" && strings.HasSuffix(name, ".slice") && strings.Contains(name, "kubepods"):
			found.Systemd++
		case strings.HasPrefix(name, "pod") && (level == "kubepods" || level == "burstable" || level == "besteffort"):
			found.Cgroupfs, pod = found.Cgroupfs+1, p
		}
	}
	both := found.Cgroupfs > 0 && found.Systemd > 0
	switch {
	case !both && found.Beside == 0:
		return nil
	case !both:
		found.Cgroupfs, found.Systemd = 0, 0
	case found.Beside == 0:
		found.Example = pod
	}
	return &found
}

// lines says what is wrong, and what to do.
func (c *podCgroups) lines() (all []string) {
	if c == nil {
		return nil
	}
	if c.Beside > 0 {
		all = append(all, fmt.Sprintf("the kubelet has the cgroup driver systemd and the container runtime has cgroupfs: %s outside of the cgroups of the pods, such as %s. What Tenon does to pods does not reach them: give both the driver systemd",
			table.Count(c.Beside, "container")+areOf(c.Beside), c.Example))
	}
	if c.Cgroupfs > 0 {
		text := fmt.Sprintf("%s of the cgroup driver cgroupfs and %d of systemd: the driver of the kubelet was changed while pods ran, and Tenon bounds only those of the present driver. Drain the node", table.Count(c.Cgroupfs, "pod")+areOf(c.Cgroupfs), c.Systemd)
		if c.Beside == 0 {
			text += "; a pod of cgroupfs is " + c.Example
		}
		all = append(all, text)
	}
	return all
}

// areOf returns the verb for a number of things.
func areOf(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
