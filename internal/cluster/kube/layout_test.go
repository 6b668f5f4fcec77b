package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/model/node"
)

func TestWhereTheKubeletPutsPods(t *testing.T) {
	burstable, bestEffort, guaranteed := container("c", "cpu=1", ""), container("c", "", ""), container("c", "", "cpu=1 memory=1Gi")
	systemd := Layout{Systemd: true}
	for _, c := range []struct {
		layout Layout
		shape  podChange
		id     string
		want   node.CgroupPath
	}{
		{Layout{}, guaranteed, "", "kubepods/poda1-b2"},
		{Layout{}, burstable, "containerd://0f", "kubepods/burstable/poda1-b2/0f"},
		{Layout{Root: "/"}, bestEffort, "docker://0f", "kubepods/besteffort/poda1-b2/0f"},
		{Layout{Root: "/k8s/node"}, bestEffort, "cri-o://0f", "k8s/node/kubepods/besteffort/poda1-b2/crio-0f"},
		{systemd, guaranteed, "containerd://0f", "kubepods.slice/kubepods-poda1_b2.slice/cri-containerd-0f.scope"},
		{systemd, burstable, "cri-o://0f", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda1_b2.slice/crio-0f.scope"},
		{systemd, bestEffort, "docker://0f", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda1_b2.slice/docker-0f.scope"},
		{Layout{Systemd: true, Root: "/kubelet"}, bestEffort, "containerd://0f", "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-poda1_b2.slice/cri-containerd-0f.scope"},
	} {
		p := pod("p", c.shape)
		p.UID = "a1-b2"
		got := c.layout.Pod(&p)
		if c.id != "" {
			got = c.layout.Container(got, c.id)
		}
		if got != c.want {
			t.Errorf("%+v %s: %s, want %s", c.layout, c.id, got, c.want)
		}
		place, ok := ParsePodPath(got)
		if _, id, _ := strings.Cut(c.id, "://"); !ok || place != (PodPlace{UID: "a1-b2", Container: id}) {
			t.Errorf("%s is read back as %+v, %v", got, place, ok)
		}
	}
}

// TestANodeKnowsAMirrorByTheHashOfItsFile reads pods from the API server, where
// users can write the annotations of a kubelet.
func TestANodeKnowsAMirrorByTheHashOfItsFile(t *testing.T) {
	owned := func(version, kind string, controls bool) podChange {
		return func(p *corev1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "n", Controller: &controls})
		}
	}
	mirror, hash := annotation(annotationMirror, "8f3e"), annotation(annotationHash, "8f3e")
	for name, c := range map[string]struct {
		made []podChange
		want string
	}{
		"a mirror":                        {[]podChange{mirror, hash, annotation(annotationSource, "file"), owned("v1", "Node", true)}, "8f3e"},
		"a mirror with a second owner":    {[]podChange{mirror, owned("v1", "ConfigMap", false), owned("v1", "Node", true)}, "8f3e"},
		"a pod":                           {nil, "uid-p"},
		"a pod that a node owns":          {[]podChange{owned("v1", "Node", true)}, "uid-p"},
		"a hash without a mirror":         {[]podChange{hash, owned("v1", "Node", true)}, "uid-p"},
		"a user's annotation":             {[]podChange{mirror, hash}, "uid-p"},
		"a Job's annotation":              {[]podChange{mirror, owned("batch/v1", "Job", true)}, "uid-p"},
		"a Node of another API":           {[]podChange{mirror, owned("example.com/v1", "Node", true)}, "uid-p"},
		"a node that does not control it": {[]podChange{mirror, owned("v1", "Node", false)}, "uid-p"},
	} {
		p := pod("p", c.made...)
		if got := UIDOnNode(&p); got != c.want || IsMirror(&p) != (c.want == "8f3e") {
			t.Errorf("%s: %q, and it is a mirror: %v; want %q", name, got, IsMirror(&p), c.want)
		}
	}
}

func TestContainerIDsThatAreNoNamesHaveNoPath(t *testing.T) {
	for _, id := range []string{"", "containerd://", "0f", "containerd://../x", "containerd://a\x00"} {
		if got := (Layout{}).Container("kubepods/poda", id); got != "" {
			t.Errorf("%q: %s", id, got)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	for _, p := range []string{
		"kubepods/besteffort/poda1-b2/0f", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda1_b2.slice/cri-containerd-0f.scope",
		"k/kubepods/pod1/crio-2", "/", "kubepods//pod1", "pod.slice/pod.slice-pod",
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		place, ok := ParsePodPath(node.CgroupPath(path))
		if !ok {
			return
		}
		if place.UID == "" || strings.Contains(place.UID, "/") || strings.Contains(place.Container, "/") {
			t.Errorf("%q is read as %+v", path, place)
		}
		if strings.ContainsAny(place.UID, "_.") {
			return // systemd escapes a dash, so the kubelet never creates this name
		}
		for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBestEffort} {
			for _, l := range []Layout{{}, {Systemd: true}} {
				p := pod("p")
				p.UID, p.Status.QOSClass = "", class
				p.Annotations[annotationMirror] = place.UID
				if again, ok := ParsePodPath(l.Pod(&p)); !ok || again.UID != place.UID {
					t.Errorf("%q is at %s, which is read as %+v", place.UID, l.Pod(&p), again)
				}
			}
		}
	})
}
