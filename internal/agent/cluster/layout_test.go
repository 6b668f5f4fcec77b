package cluster

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/apiserver/apitest"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// groups makes directories like those of cgroup v2, and returns the tree and the
// paths of all cgroups.
func groups(t *testing.T, deepest ...string) (tree *cgroup.Tree, paths []string) {
	t.Helper()
	dir := t.TempDir()
	for _, path := range deepest {
		if err := os.MkdirAll(filepath.Join(dir, "v2", path), 0o755); err != nil {
			t.Fatal(err)
		}
		for ; path != "."; path = filepath.Dir(path) {
			paths = append(paths, path)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "proc/self"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"proc/self/mountinfo": "31 24 0:28 / " + dir + "/v2 rw - cgroup2 cgroup2 rw\n", "v2/cgroup.controllers": "cpu\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroup.Detect(filepath.Join(dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	return tree, paths
}

// TestTheCgroupsOfPodsAreFoundWhateverDriverTheKubeletReports checks a node whose
// kubelet reports a cgroup driver that it does not use. The Follower must find
// the pod. If both drivers have cgroups, the report must count.
func TestTheCgroupsOfPodsAreFoundWhateverDriverTheKubeletReports(t *testing.T) {
	const (
		cgroupfs = "kubepods/burstable/poduid-a"
		systemd  = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_a.slice"
		below    = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-poduid_a.slice"
	)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "uid-a"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}
	for _, c := range []struct {
		driver, root string
		exist        []string
		want         node.CgroupPath
	}{
		{"systemd", "", []string{cgroupfs}, cgroupfs},
		{"cgroupfs", "", []string{systemd}, systemd},
		{"cgroupfs", "/kubelet", []string{below}, below},
		{"", "", []string{systemd}, systemd},
		{"systemd", "", []string{cgroupfs, systemd}, systemd},
		{"cgroupfs", "", []string{cgroupfs, systemd}, cgroupfs},
		{"systemd", "", []string{"system.slice"}, ""},
	} {
		tree, paths := groups(t, c.exist...)
		f := openTestCluster(t, apitest.New(t), t.TempDir())
		f.tree, f.last.Pods = tree, []corev1.Pod{pod}
		f.last.Facts = kubelet.Facts{CgroupDriver: c.driver, CgroupRoot: c.root}
		all, _ := f.Workloads(paths, nil, "system.slice/tenond", func(func(node.Knob, node.Value) node.Value) error { return nil })
		var got node.CgroupPath
		if len(all) > 0 {
			got = all[0].Cgroup
		}
		if len(all) > 1 || got != c.want {
			t.Errorf("the kubelet reports %q, and %v exist: the pods are in %q, want %q", c.driver, c.exist, got, c.want)
		}
	}
}
