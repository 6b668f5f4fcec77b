package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// labelled is a configuration that selects batch work only by the labels of
// containers.
const labelled = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
containerSockets: ["containerd://SOCKET"]
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: encoders, class: BE, containers: ["koordinator.sh/qosClass=BE"]}
resource-qos-config: {policies: {cpuIsolation: strongest}, beClass: {cpuQOS: {enable: true}}}
`

// TestTenondTakesContainersByTheirLabels checks that a container with the label
// becomes best-effort work when it starts. tenond must not change a container
// without the label.
func TestTenondTakesContainersByTheirLabels(t *testing.T) {
	s, socket := plantContainerd(t)
	d := s.tenond()
	s.contain(socket, "encode", "BE")
	s.contain(socket, "other", "none")
	eventually(t, "the labelled container is idle", func() bool { return s.weight("pods/encode").Idle })
	if s.weight("pods/other").Idle || s.weight("pods").Idle {
		t.Error("a container without the label was touched")
	}
	d.stop()
	s.restore()
	if s.weight("pods/encode").Idle {
		t.Error("the knobs of the container differ from before")
	}
}

// TestTenondRestartedKeepsContainersByTheirLabels checks that a restart of
// tenond changes nothing, although the first tick comes before the runtime
// answers. It also checks a runtime that never answers.
func TestTenondRestartedKeepsContainersByTheirLabels(t *testing.T) {
	inTurn(t)
	s, socket := plantContainerd(t)
	d := s.tenond()
	s.contain(socket, "encode", "BE")
	s.contain(socket, "other", "none")
	eventually(t, "the container is best-effort work", func() bool { return s.weight("pods/encode").Idle })
	time.Sleep(2 * time.Second) // wait until the list of its start is complete
	away := socket + ".away"
	for _, c := range []struct{ name, from, to string }{
		{"the runtime answers", socket, socket},
		{"the runtime is gone", socket, away},
		{"the runtime is still gone", away, away},
	} {
		d.stop()
		before, begun := s.dump(t), s.countIntents()
		if err := os.Rename(c.from, c.to); err != nil {
			t.Fatal(err)
		}
		d = s.tenond()
		time.Sleep(2 * time.Second) // about twenty ticks
		if n := s.countIntents(); n != begun {
			t.Errorf("%s: the restart began %d writes", c.name, n-begun)
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("%s: the restart changed (-before +after):\n%s", c.name, diff)
		}
	}
	if err := os.Rename(away, socket); err != nil {
		t.Fatal(err)
	}
	d.await("lists its containers again", 1)
	d.stop()
	s.restore()
}

// plantContainerd makes a site with its own containerd.
func plantContainerd(t *testing.T) (s *site, socket string) {
	t.Helper()
	for _, program := range []string{"containerd", "ctr", "runc", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			failIfStrict(t, "this test runs containers: "+err.Error())
		}
	}
	dir := t.TempDir()
	socket = filepath.Join(dir, "containerd.sock")
	s = plantSite(t, strings.Replace(labelled, "SOCKET", socket, 1))
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket, socket+".ttrpc")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	runtime := startUntil(t, syscall.SIGTERM, "containerd", "--config", config)
	t.Cleanup(func() { _ = runtime.Process.Signal(syscall.SIGTERM) })
	eventually(t, "containerd serves", func() bool { _, err := os.Stat(socket); return err == nil })
	t.Cleanup(func() {
		// The runtime makes cgroups in every hierarchy. The site itself removes
		// cgroups only in the hierarchies that tenond uses.
		for _, below := range []string{"/pods/*", "/pods", ""} {
			dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + s.root + below)
			for _, dir := range dirs {
				_ = syscall.Rmdir(dir)
			}
		}
	})
	return s, socket
}

// contain starts a container with a label in a cgroup of the site.
func (s *site) contain(socket, name, class string) {
	s.t.Helper()
	ctr(s.t, socket, "run", "-d", "--rootfs", "--label", "koordinator.sh/qosClass="+class, "--cgroup", "/"+string(s.path("pods/"+name)), rootfs(s.t), name, "/bin/sleep", "600")
	s.t.Cleanup(func() {
		_ = os.Rename(socket+".away", socket) // after a failed test the socket may still be away
		_ = exec.Command("ctr", "--address", socket, "--namespace", "test", "task", "rm", "-f", name).Run()
	})
}

func ctr(t *testing.T, socket string, args ...string) {
	t.Helper()
	if out, err := exec.Command("ctr", append([]string{"--address", socket, "--namespace", "test"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// rootfs returns a root file system in which /bin/sleep runs.
func rootfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bin", "proc", "sys", "dev", "tmp", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/sleep"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
