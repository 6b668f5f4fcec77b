package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
)

const (
	// systemdDir has the socket of systemd. A machine has it if systemd is its first
	// process.
	systemdDir = "/run/systemd"
	// podSlice is the cgroup of all pods of a kubelet with the cgroup driver systemd.
	podSlice = "kubepods.slice"
)

// unitPath returns the cgroup that the driver systemd makes for what the driver
// cgroupfs calls group, such as kubepods/besteffort/podUID/CONTAINER. Other cgroups
// have the same name.
func unitPath(group string) string {
	names := strings.Split(filepath.Clean(group), "/")
	if names[0] != "kubepods" {
		return group
	}
	l, class, names := kube.Layout{Systemd: true}, corev1.PodQOSGuaranteed, names[1:]
	if len(names) > 0 {
		if of, is := map[string]corev1.PodQOSClass{"burstable": corev1.PodQOSBurstable, "besteffort": corev1.PodQOSBestEffort}[names[0]]; is {
			class, names = of, names[1:]
		}
	}
	if len(names) == 0 {
		return string(l.QOS(class))
	}
	pod := corev1.Pod{}
	pod.UID, pod.Status.QOSClass = types.UID(strings.TrimPrefix(names[0], "pod")), class
	at := l.Pod(&pod)
	if len(names) > 1 {
		return string(l.Container(at, "containerd://"+names[1]))
	}
	return string(at)
}

// endUnits kills the processes of a cluster with systemd, which has no PID namespace
// that would end with its init, and removes the cgroups of its pods.
func (c *Cluster) endUnits() error {
	own, err := os.Readlink("/proc/self/ns/net")
	switch {
	case err != nil:
		return err
	case c.Network == "", c.Network == own:
		return fmt.Errorf("the cluster has no network namespace of its own: %q", c.Network)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, p := range processes {
		if network, err := os.Readlink(filepath.Join(p, "ns/net")); err != nil || network != c.Network {
			continue // also a process that has just ended
		}
		pid, err := strconv.Atoi(filepath.Base(p))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	// The containers of other network namespaces are left.
	switch err := os.WriteFile(filepath.Join("/sys/fs/cgroup", podSlice, "cgroup.kill"), []byte("1"), 0); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("end the pods: %w", err)
	}
	if out, err := exec.Command("systemctl", "stop", podSlice).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl stop %s: %w: %s", podSlice, err, out)
	}
	return nil
}
