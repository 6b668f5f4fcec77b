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

// QOS returns the cgroup for the pods of a QoS class. Guaranteed pods have no cgroup of their
// class; for them, QOS returns the cgroup of all pods.
func (l Layout) QOS(class corev1.PodQOSClass) node.CgroupPath { return l.path(qosNames(class)...) }

// Pod returns the cgroup of a pod.
func (l Layout) Pod(p *corev1.Pod) node.CgroupPath {
	return l.path(append(qosNames(QOSClass(p)), "pod"+UID(p))...)
}

// Container returns the cgroup of a container in the cgroup of its pod. id is
// the id in the status of the pod, such as "containerd://…", where the name of
// the runtime comes first. The result is "" if id is empty or malformed.
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

// services are the cgroups of services that may run a container runtime.
var services = []node.CgroupPath{
	"system.slice/containerd.service", "system.slice/docker.service", "system.slice/crio.service", "system.slice/k3s.service",
	"system.slice/k3s-agent.service", "system.slice/rke2-server.service", "system.slice/rke2-agent.service", "system.slice", "",
}

// find returns the cgroup of a container, or "" if it does not exist. If only
// the driver of the kubelet is systemd, the name that the kubelet gives has the
// form SLICE:PREFIX:ID, and the runtime makes a cgroup of that name below its own
// cgroup (v1), beside it (v2) or below the root
// (github.com/opencontainers/cgroups: fs, fs2).
func (l Layout) find(pod node.CgroupPath, id string, exists func(node.CgroupPath) bool) node.CgroupPath {
	at := l.Container(pod, id)
	switch {
	case at == "":
		return ""
	case exists(at):
		return at
	case !l.Systemd:
		return ""
	}
	runtime, name, _ := strings.Cut(id, "://")
	prefix := map[string]string{"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}[runtime]
	slice := string(pod[strings.LastIndexByte(string(pod), '/')+1:])
	for _, s := range services {
		if p := s.Join(slice + ":" + prefix + ":" + name); exists(p) {
			return p
		}
	}
	return ""
}

// UID returns the id of a pod as it appears in the names of its cgroups. For a
// static pod, this is the hash of its file, from an annotation of the mirror pod.
// The pod must be from a kubelet, or without the annotations that others than a
// kubelet wrote (kubelet.SlimOfAPI).
func UID(p *corev1.Pod) string {
	if hash := p.Annotations[annotationMirror]; hash != "" {
		return hash
	}
	if hash := p.Annotations[annotationHash]; hash != "" && p.Annotations[annotationSource] != "api" {
		return hash
	}
	return string(p.UID)
}

// UIDOnNode returns the id by which the node of a pod knows the pod, which was
// read from the API server. It is that of UID. For the mirror of a static pod,
// this is not the UID that the API server gave the mirror.
func UIDOnNode(p *corev1.Pod) string {
	if IsMirror(p) {
		return p.Annotations[annotationMirror]
	}
	return string(p.UID)
}

// IsMirror reports whether a pod of the API server is the mirror of a static
// pod. Any client may write the annotation of a mirror. A kubelet also makes its
// node the owner of each mirror (admission plugin NodeRestriction), so the
// annotation does not count in other pods.
func IsMirror(p *corev1.Pod) bool {
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; o.Controller != nil && *o.Controller && o.Kind == "Node" && o.APIVersion == "v1" {
			return p.Annotations[annotationMirror] != ""
		}
	}
	return false
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
