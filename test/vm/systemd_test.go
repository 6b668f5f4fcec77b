package vm

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The programs of systemd that a guest needs. Debian has both in the package
// systemd.
const (
	systemdProgram = "/lib/systemd/systemd"
	systemctl      = "systemctl"
)

// The units of the guest. systemd loads no other ones, because nothing asks for
// them: there is no udev, no journal and no D-Bus. runc and the kubelet reach
// systemd by its own socket.
const (
	defaultTarget = `[Unit]
Description=The commands of the test
DefaultDependencies=no
Wants=commands.service
After=commands.service
`
	// The limits are those of init.sh, or none.
	commandsService = `[Unit]
Description=The commands of the test
DefaultDependencies=no

[Service]
ExecStart=/bin/sh /commands-of-guest.sh
Environment=HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LimitNOFILE=65536
LimitCORE=0
TasksMax=infinity
OOMPolicy=continue
StandardInput=null
StandardOutput=null
StandardError=null
`
	// Messages go to the log of the kernel, because the console has the markers of
	// the commands.
	managerConfig = `[Manager]
ShowStatus=no
LogTarget=kmsg
LogLevel=warning
DefaultTasksMax=infinity
`
	commandsOfGuest = `exec >/dev/console 2>&1
echo "@@tenon ready"
. /run/commands.sh
echo "@@tenon done"
poweroff -f
`
)

// addSystemd adds systemd of this machine to the root file system of a guest. With
// the file /etc/has-systemd in its initial one, init.sh makes it the first process.
func addSystemd(t *testing.T, root *Image) {
	t.Helper()
	for _, p := range []string{systemdProgram, "/bin/" + systemctl} {
		if _, err := os.Stat(p); err != nil {
			missing(t, "%v: install the package systemd", err)
		}
		if err := root.Program(p, p); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"/etc/systemd/system.conf": managerConfig, "/etc/systemd/system/default.target": defaultTarget,
		"/etc/systemd/system/commands.service": commandsService, "/commands-of-guest.sh": commandsOfGuest,
		"/etc/machine-id": strings.Repeat("7e", 16) + "\n", "/etc/hostname": "guest\n",
	} {
		root.Text(name, text)
	}
}

// bootSystemd makes systemd the first process of a guest with the disk of addSystemd,
// and loads the modules for bridges and overlay file systems before.
func bootSystemd(t *testing.T, boot *Image, series string) {
	t.Helper()
	for _, name := range networkModules {
		if err := boot.File("/lib/"+name+".ko", fromScript(t, "./kernel.sh", "--module="+name, series)); err != nil {
			t.Fatal(err)
		}
	}
	boot.Text("/etc/has-systemd", strings.Join(networkModules, " ")+"\n")
}

// networkModules are the modules of the kernel of most tests with which a node has
// bridges and overlay file systems, in the order in which they are loaded.
var networkModules = []string{"llc", "stp", "bridge", "veth", "overlay"}

// guestRelease is the folder of Tenon's images in a guest.
const guestRelease = "/cache/release"

// addRelease adds what installs Tenon: its images, its chart, and Helm.
func addRelease(t *testing.T, root *Image) {
	t.Helper()
	out := t.TempDir()
	for dir, command := range map[string][]string{
		"../..":    {"go", "run", "./deploy/image", "-version", "test", "-arch", "amd64", "-only", "tenond,tenon-manager,tenon-scheduler", "-out", filepath.Join(out, "images")},
		"../chart": {"go", "build", "-ldflags=-s -w", "-o", filepath.Join(out, "helm"), "helm.sh/helm/v4/cmd/helm"},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, output)
		}
	}
	const chart = "deploy/chart/tenon"
	for to, from := range map[string]string{guestRelease: filepath.Join(out, "images"), path.Join("/src", chart): filepath.Join("../..", chart)} {
		if err := root.Tree(to, from); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.File("/cache/helm", filepath.Join(out, "helm")); err != nil {
		t.Fatal(err)
	}
}

// TestClusterWithSystemd runs a Kubernetes of one node whose kubelet and containerd
// have the cgroup driver systemd.
func TestClusterWithSystemd(t *testing.T) {
	oneOf(t, long, t.Name())
	t.Parallel()
	m := withCluster(t, false)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}
	runInCluster(t, m, 30*time.Minute)
}

// TestTenonWithSystemd installs Tenon by its chart in such a cluster, with the webhooks
// and tenon-scheduler. It runs only in make soak.
func TestTenonWithSystemd(t *testing.T) {
	needMachines(t)
	if !runsEverywhere() {
		t.Skip("runs in make soak: set TENON_TEST_KERNELS=all")
	}
	t.Parallel()
	m := withCluster(t, true)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}
	runInCluster(t, m, 45*time.Minute)
}

// TestSystemdInAGuest boots a guest with systemd, and checks what the tests of
// the cluster rely on: it is the first process, has mounted cgroup v2 with its own
// options, and answers at its socket.
func TestSystemdInAGuest(t *testing.T) {
	needMachines(t)
	if !runsEverywhere() {
		t.Skip("the guest of TestClusterWithSystemd shows the same: set TENON_TEST_KERNELS=all")
	}
	t.Parallel()
	m := countInstructions(t, machine(t))
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}
	root := nodeRoot(t, "/cache/cluster/bin", func(string) bool { return false })
	addSystemd(t, root)
	m.Disk = makeDisk(t, root)
	boot := new(Image)
	bootSystemd(t, boot, seriesOf(m.Kernel))
	report := runOn(t, m, boot, 5*time.Minute,
		Shell("first", "cat /proc/1/comm"),
		Shell("mount", "grep cgroup /proc/self/mounts"),
		Shell("group", "cat /proc/self/cgroup"),
		Shell("manager", "systemctl show --property=Version --property=SystemState"),
		Shell("reload", "systemctl daemon-reload && systemctl is-active commands.service"))
	for name, want := range map[string]string{
		"first": "systemd", "mount": "nsdelegate,memory_recursiveprot", "group": "0::/system.slice/commands.service", "manager": "Version=", "reload": "active",
	} {
		if o, _ := report.Outcome(name); o.Exit != 0 || !strings.Contains(o.Output, want) {
			t.Errorf("%s: exit %d, output %q, want %q", name, o.Exit, o.Output, want)
		}
	}
}
