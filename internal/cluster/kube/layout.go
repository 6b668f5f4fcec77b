package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// A Layout is where a kubelet puts the cgroups of pods. The zero Layout is a
// kubelet with the driver cgroupfs and no root of its own.
type Layout struct {
	// Systemd: the kubelet's cgroupDriver is systemd.
	Systemd bool
	// Root is the kubelet's cgroupRoot: "/" or empty for none.
	Root string
	// QOSIdle: the weights of the cgroups of QoS classes are Tenon's to change,
	// cpu.idle too. The kubelet writes them at its start and each minute, and the
	// kernel refuses it a weight where cpu.idle is set.
	QOSIdle bool
}

// QOS is the cgroup that holds the pods of a QoS class; Guaranteed ones have
// none of their own and lie in that of all pods.
func (l Layout) QOS(class corev1.PodQOSClass) node.CgroupPath { return l.path(qosNames(class)...) }

// Pod is the cgroup of a pod.
func (l Layout) Pod(p *corev1.Pod) node.CgroupPath {
	return l.path(append(qosNames(QOSClass(p)), "pod"+UID(p))...)
}

// Container is the cgroup of a container of the pod with the given cgroup. The
// id is as in the status of the pod, with the runtime in front: "containerd://…".
// It is empty while the container has none.
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

// UID is the id of a pod in the names of its cgroups. A pod of a file has that of
// the file's content, which for the pod of the API server that stands for it is
// an annotation.
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

// path is the cgroup of the given names, from the kubelet's root down. With
// systemd each level is a slice that has the names of those above it in its own,
// and a dash in a name is written _ (k8s.io/kubernetes/pkg/kubelet/cm:
// CgroupName.ToSystemd).
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

// A Place is what the path of a cgroup says: of which pod, and of which
// container.
type Place struct {
	// UID is that of the pod, as UID.
	UID string
	// Container is the id of the container or sandbox, without its runtime; empty
	// for the cgroup of the pod itself.
	Container string
}

// ParsePath reads the path of a cgroup of a pod or of a container in one,
// whatever the driver and the root; false: it is none of either.
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

// podOf reads the id of a pod from the name of a cgroup and that above it.
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

// containerOf reads the id of a container from the name of its cgroup; empty if
// it is none, as the processes that CRI-O keeps for a container.
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
