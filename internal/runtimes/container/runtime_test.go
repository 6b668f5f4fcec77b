package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// need skips a test if a program is missing. If TENON_TEST_STRICT is set, the
// test fails instead.
func need(t *testing.T, programs ...string) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil && missing == "" {
			missing = p
		}
	}
	switch {
	case missing == "":
	case os.Getenv("TENON_TEST_STRICT") != "" && os.Geteuid() == 0:
		t.Fatalf("this test needs %s", missing)
	default:
		t.Skipf("this test needs %s", missing)
	}
}

// rootfs returns a root file system in which /bin/sleep runs.
func rootfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"bin", "proc", "sys", "dev", "etc", "tmp", "run"} {
		do(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	busybox, err := exec.LookPath("busybox")
	do(t, err)
	program, err := os.ReadFile(busybox)
	do(t, err)
	do(t, os.WriteFile(filepath.Join(dir, "bin/busybox"), program, 0o755))
	do(t, os.Symlink("busybox", filepath.Join(dir, "bin/sleep")))
	return dir
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// parent creates a cgroup for the containers of a test, and removes it
// afterwards.
func parent(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("tenon-test-container-%d-%s", os.Getpid(), strings.ToLower(t.Name()))
	t.Cleanup(func() {
		for _, dir := range append(glob(name+"/*"), glob(name)...) {
			if err := syscall.Rmdir(dir); err != nil {
				t.Errorf("remove %s: %v", dir, err)
			}
		}
	})
	return name
}

// glob returns the cgroups that match a pattern, in all hierarchies.
func glob(pattern string) []string {
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + pattern)
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + pattern)
	return slices.DeleteFunc(append(v2, v1...), func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir()
	})
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// serveFor runs a service until the end of the test, and waits for its socket.
func serveFor(t *testing.T, socket string, name string, args ...string) {
	t.Helper()
	var said strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	do(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
		if t.Failed() {
			t.Log(said.String())
		}
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended: %s", name, said.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not serve %s", name, socket)
		}
	}
}

// findContainer lists the containers, and returns the one with the given name.
func findContainer(t *testing.T, address, name string) (Container, bool) {
	t.Helper()
	all, err := list(t, address)
	do(t, err)
	for _, c := range all {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

const label = "koordinator.sh/qosClass"

func TestPodmanTellsItsContainers(t *testing.T) {
	need(t, "podman", "runc", "busybox")
	group := parent(t)
	dir, err := os.MkdirTemp("", "podman") // Podman allows a path of at most 50 characters
	do(t, err)
	t.Cleanup(func() { do(t, os.RemoveAll(dir)) })
	podman := func(args ...string) []string {
		return append([]string{
			"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
			"--cgroup-manager", "cgroupfs", "--runtime", "runc", "--log-level", "error",
		}, args...)
	}
	socket := filepath.Join(dir, "podman.sock")
	serveFor(t, socket, "podman", podman("system", "service", "-t", "0", "unix://"+socket)...)
	// The test needs no network, and no limits, which root may not set here. The
	// flags disable both.
	command(t, "podman", podman("run", "-d", "--name", "encode", "--label", label+"=BE", "--cgroup-parent", "/"+group, "--cgroups", "no-conmon",
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none", "--no-hosts", "--rootfs", rootfs(t), "/bin/sleep", "600")...)
	end := func() { command(t, "podman", podman("rm", "-f", "-t", "0", "encode")...) }
	t.Cleanup(end)
	c, ok := findContainer(t, "podman://"+socket, "encode")
	if !ok || c.Labels[label] != "BE" || len(c.ID) != idLength {
		t.Fatalf("got %+v", c)
	}
	var paths []string
	for _, p := range glob(group + "/*") {
		paths = append(paths, p[strings.Index(p, group):])
	}
	groups := Groups([]Container{c}, paths)
	if len(groups) != 1 || groups[paths[0]].Name != "encode" {
		t.Errorf("the cgroup of the container is not among %v: %v", paths, groups)
	}
	end()
	if c, ok := findContainer(t, "podman://"+socket, "encode"); ok {
		t.Errorf("the container was removed, but is still listed: %+v", c)
	}
}

func TestContainerdTellsItsContainers(t *testing.T) {
	need(t, "containerd", "ctr", "runc", "busybox")
	dir, group := t.TempDir(), parent(t)
	socket := filepath.Join(dir, "containerd.sock")
	config := filepath.Join(dir, "config.toml")
	do(t, os.WriteFile(config, fmt.Appendf(nil, `version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = %q
[ttrpc]
  address = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket, socket+".ttrpc"), 0o644))
	serveFor(t, socket, "containerd", "--config", config)
	ctr := func(args ...string) []string {
		return append([]string{"--address", socket, "--namespace", "tenon-test"}, args...)
	}
	command(t, "ctr", ctr("run", "-d", "--rootfs", "--label", label+"=BE", "--cgroup", "/"+group+"/encode", rootfs(t), "encode", "/bin/sleep", "600")...)
	end := func() {
		command(t, "ctr", ctr("task", "kill", "-s", "KILL", "encode")...)
		_ = exec.Command("ctr", ctr("task", "rm", "-f", "encode")...).Run()
		command(t, "ctr", ctr("container", "rm", "encode")...)
	}
	c, ok := findContainer(t, "containerd://"+socket, "encode")
	if !ok || c.Labels[label] != "BE" || c.PID == 0 {
		t.Errorf("got %+v", c)
	}
	end()
	if c, ok := findContainer(t, "containerd://"+socket, "encode"); ok {
		t.Errorf("the container was removed, but is still listed: %+v", c)
	}
}
