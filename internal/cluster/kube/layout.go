package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// A Layout describes where a kubelet creates the cgroups of pods. The zero
// Layout is for the cgroupDriver cgroupfs without a cgroupRoot.
type Layout struct {
	// Systemd means that the cgroupDriver of the kubelet is systemd.
	Systemd bool
	// Root is the cgroupRoot of the kubelet. "/" and "" mean the root of the
	// tree.
	Root string
	// QOSIdle means that Tenon may change the weights of the cgroups of QoS
	// classes, including cpu.idle. Otherwise it may not: the kubelet writes
	// these weights at its start and every minute, and the kernel refuses such
	// a write while cpu.idle is set.
	QOSIdle bool
}

// QOS returns the cgroup that holds the pods of a QoS class. For Guaranteed pods it returns the
// cgroup of all pods, because they have no cgroup of their class.
func (l Layout) QOS(class corev1.PodQOSClass) node.CgroupPath { return l.path(qosNames(class)...) }

// Pod returns the cgroup of a pod.
func (l Layout) Pod(p *corev1.Pod) node.CgroupPath {
	return l.path(append(qosNames(QOSClass(p)), "pod"+UID(p))...)
}

// Container returns the cgroup of a container in the cgroup of its pod. id is
// the id in the status of the pod. It begins with the name of the runtime:
// "containerd://…". If id is empty or has a wrong form, the result is "".
func (l Layout) Container(pod node.CgroupPath, id string) node.CgroupPath {
	runtime, name, _ := strings.Cut(id, "://")
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return ""
	}
	prefix := map[string]string{"containerd": "cri-containerd-", "cri-o": "crio-", "docker": "docker-"}[runtime]
	switch {
	case l.Systemd:
		return pod.Join(prefix + name + ".scope")
	case runtime == "cri-o":
		return pod.Join(prefix + name)
	}
	return pod.Join(name)
}

// UID returns the id of a pod in the names of its cgroups. For a static pod, this is
// the hash of its file, which is in an annotation of the mirror pod.
func UID(p *corev1.Pod) string {
	if hash := p.Annotations[annotationMirror]; hash != "" {
		return hash
	}
	if hash := p.Annotations[annotationHash]; hash != "" && p.Annotations[annotationSource] != "api" {
		return hash
	}
	return string(p.UID)
}

func qosNames(class corev1.PodQOSClass) []string {
	switch class {
	case corev1.PodQOSBurstable:
		return []string{"kubepods", "burstable"}
	case corev1.PodQOSBestEffort:
		return []string{"kubepods", "besteffort"}
	}
	return []string{"kubepods"}
}

// path returns the cgroup with the given names, below the cgroupRoot of the
// kubelet. With the cgroup driver systemd, each level is a slice whose name
// begins with the names of the slices above it, and a dash in a name becomes an
// underscore (k8s.io/kubernetes/pkg/kubelet/cm: CgroupName.ToSystemd).
func (l Layout) path(names ...string) node.CgroupPath {
	var all []string
	for _, n := range append(strings.Split(l.Root, "/"), names...) {
		if n != "" {
			all = append(all, n)
		}
	}
	if !l.Systemd {
		return node.CgroupPath(strings.Join(all, "/"))
	}
	p, slice := node.CgroupPath(""), ""
	for _, n := range all {
		if slice != "" {
			slice += "-"
		}
		slice += strings.ReplaceAll(n, "-", "_")
		p = p.Join(slice + ".slice")
	}
	return p
}

// A Place identifies the pod and container to which a cgroup belongs.
type Place struct {
	// UID is the id of the pod, in the form of the function UID.
	UID string
	// Container is the id of the container or sandbox, without the name of the
	// runtime. It is empty for the cgroup of the pod itself.
	Container string
}

// ParsePath returns the pod and container to which a cgroup belongs. It reads
// the paths of every cgroup driver and cgroupRoot. It returns false if the
// cgroup belongs to no pod.
func ParsePath(path node.CgroupPath) (Place, bool) {
	names := strings.Split(string(path), "/")
	for i := len(names) - 1; i > 0 && i >= len(names)-2; i-- {
		uid, is := podOf(names[i], names[i-1])
		if !is {
			continue
		}
		if i == len(names)-1 {
			return Place{UID: uid}, true
		}
		id := containerOf(names[i+1])
		return Place{uid, id}, id != ""
	}
	return Place{}, false
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
