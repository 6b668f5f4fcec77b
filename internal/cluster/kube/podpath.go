// This file finds out from the path of a cgroup to which pod and container it
// belongs. It is the inverse of Layout.

package kube

import (
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// A PodPlace identifies the pod and container to which a cgroup belongs.
type PodPlace struct {
	// UID is the id of the pod, in the form of kube.UID.
	UID string
	// Container is the id of the container or sandbox, without the name of the
	// runtime. It is empty for the cgroup of the pod itself.
	Container string
}

// ParsePodPath returns the pod and container to which a cgroup belongs. It reads
// the paths of every cgroup driver and cgroupRoot. It returns false if the
// cgroup belongs to no pod.
func ParsePodPath(path node.CgroupPath) (PodPlace, bool) {
	names := strings.Split(string(path), "/")
	for i := len(names) - 1; i > 0 && i >= len(names)-2; i-- {
		uid, is := podOf(names[i], names[i-1])
		if !is {
			continue
		}
		if i == len(names)-1 {
			return PodPlace{UID: uid}, true
		}
		id := containerOf(names[i+1])
		return PodPlace{uid, id}, id != ""
	}
	return PodPlace{}, false
}

// podOf reads the id of a pod from the name of a cgroup. above is the name of
// the parent cgroup.
func podOf(name, above string) (string, bool) {
	slice, systemd := strings.CutSuffix(name, ".slice")
	if !systemd {
		uid, is := strings.CutPrefix(name, "pod")
		return uid, is && uid != "" && (above == "kubepods" || above == "burstable" || above == "besteffort")
	}
	up, is := strings.CutSuffix(above, ".slice")
	if !is || up == "" {
		return "", false
	}
	for _, end := range []string{"kubepods", "kubepods-burstable", "kubepods-besteffort"} {
		uid, is := strings.CutPrefix(slice, up+"-pod")
		if is && uid != "" && (up == end || strings.HasSuffix(up, "-"+end)) {
			return strings.ReplaceAll(uid, "_", "-"), true
		}
	}
	return "", false
}

// containerOf reads the id of a container from the name of its cgroup. It returns ""
// for other cgroups, such as that of CRI-O's monitor process.
func containerOf(name string) string {
	scope, systemd := strings.CutSuffix(name, ".scope")
	if i := strings.LastIndexByte(scope, '-'); i >= 0 {
		switch scope[:i] {
		case "cri-containerd", "crio", "docker":
			scope, systemd = scope[i+1:], false
		}
	}
	if systemd || strings.Contains(scope, "-") || strings.Contains(scope, ".") {
		return ""
	}
	return scope
}
