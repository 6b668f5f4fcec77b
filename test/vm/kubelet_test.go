package vm

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/test/cluster"
	"tenon.sh/tenon/test/cluster/image"
)

// TestKubeletOnCgroupV2 runs a Kubernetes of one node in a guest. The test that
// runs in the guest is in test/cluster.
func TestKubeletOnCgroupV2(t *testing.T) {
	oneOf(t, long, t.Name())
	t.Parallel() // the guest uses one CPU of the host
	m := withCluster(t, false)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}
	runInCluster(t, m, 15*time.Minute)
}

// TestCalPiOnFiveCPUs runs the published pod of seed 002 word for word: 3,000
// threads compute 20,000 digits of π on four CPUs of their own. The fifth CPU
// stays shared. The test runs only in make soak.
func TestCalPiOnFiveCPUs(t *testing.T) {
	needMachines(t)
	if !runsEverywhere() {
		t.Skip("runs in make soak: set TENON_TEST_KERNELS=all")
	}
	t.Parallel()
	m := withCluster(t, false)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 5, ThreadsPerCore: 1}
	runInCluster(t, m, 30*time.Minute)
}

// withCluster returns a machine with the disk of clusterDisk. Its clock counts
// instructions, because Kubernetes has timeouts and this machine may be busy.
// release adds what installs Tenon.
func withCluster(t *testing.T, release bool) Machine {
	t.Helper()
	m := forKubernetes(countInstructions(t, machine(t)))
	m.MiBPerNode = 4096
	root := clusterDisk(t)
	if runOf(t).Systemd {
		addSystemd(t, root)
	}
	if release {
		addRelease(t, root)
	}
	m.Disk = makeDisk(t, root)
	return m
}

// runOf returns the list of tests of the calling test.
func runOf(t *testing.T) ClusterRun {
	t.Helper()
	i := slices.IndexFunc(ClusterRuns, func(r ClusterRun) bool { return r.Test == t.Name() })
	if i < 0 {
		t.Fatalf("%s has no list of tests in ClusterRuns", t.Name())
	}
	return ClusterRuns[i]
}

// forKubernetes makes a machine that counts instructions fast enough for the
// programs of Kubernetes.
func forKubernetes(m Machine) Machine {
	// An instruction takes half of the usual time. With a longer time, the
	// guest would be too slow for Kubernetes. With a shorter time, each second
	// of waiting would cost more.
	m.ShorterTicks = true
	// Images are identified by checksums. These are slow to compute without SHA
	// instructions.
	m.CPU = "Skylake-Server-v4,level=0xb,-erms,+sha-ni"
	return m
}

// runInCluster runs the list of the calling test in a machine of withCluster, one
// test after another. limit is on the clock of this machine.
func runInCluster(t *testing.T, m Machine, limit time.Duration) {
	t.Helper()
	run, boot := runOf(t), new(Image)
	list := run.Commit
	if runsEverywhere() {
		list = slices.Concat(run.Commit, run.Soak)
	}
	args := []string{"/usr/bin/env", "-C", "/src/test/cluster", "/tests/cluster", "-test.v", "-test.run=^(" + strings.Join(list, "|") + ")$", "-test.parallel=1", "-test.timeout=" + (limit + 10*time.Minute).String()}
	driver := "cgroupfs"
	if run.Systemd {
		driver = "systemd"
		bootSystemd(t, boot, seriesOf(m.Kernel))
	} else {
		boot.Text("/on-disk.sh", mountDisk)
		args = append([]string{"sh", "/on-disk.sh"}, args...)
	}
	tests := Command{
		Name: "test/cluster",
		Args: args,
		Env: []string{
			"TENON_CACHE=/cache", "TENON_TEST_BIN=/usr/bin", "TENON_TEST_IMAGES=/cache/cluster/images",
			"TENON_TEST_CLUSTER=1", "TENON_TEST_STRICT=1", "TENON_TEST_PATIENCE=3m", "TENON_TEST_CGROUP_DRIVER=" + driver, "TENON_TEST_RELEASE=" + guestRelease,
			"GOGC=400",     // memory is plentiful and CPU time is not
			"GOMAXPROCS=2", // all CPUs share one stream of instructions, so more threads would only search for work
		},
	}
	if runsEverywhere() {
		tests.Env = append(tests.Env, "TENON_TEST_LONG=1")
	}
	report := runOn(t, m, boot, limit, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}

// mountDisk makes the disk the root and runs its arguments there, because no
// container can start on the guest's initial root file system (pivot_root(2)).
const mountDisk = `mkdir /disk && mount -t ext4 /dev/nvme0n1 /disk || exit
for d in proc sys dev run; do mount -o rbind /$d /disk/$d || exit; done
hostname guest
cd /disk && mount -o move . / || exit
exec chroot . "$@"
`

// clusterDisk returns a root file system with the programs of the test cluster, its
// images, the tests and the programs of Tenon.
func clusterDisk(t *testing.T) *Image {
	t.Helper()
	const there = "/cache/cluster"
	root := nodeRoot(t, there+"/bin", func(string) bool { return true })
	// The small images have no encoder, because copying the libraries of one
	// would take a third of the test.
	images, err := image.BuildSmall(t.Context(), t.TempDir())
	if err != nil {
		missing(t, "%v", err)
	}
	if err := root.Tree(path.Join(there, "images"), images.Dir); err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond", "seeds": "./test/cluster/seeds"} {
		if err := root.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	const source = "/src/test/cluster"
	if err := root.Tree(path.Join(source, "testdata"), "../cluster/testdata"); err != nil {
		t.Fatal(err)
	}
	if err := root.Tree("/src/examples", "../../examples"); err != nil {
		t.Fatal(err)
	}
	const crd = "deploy/crds/tenon.sh_nodereports.yaml"
	if err := root.File(path.Join("/src", crd), filepath.Join("../..", crd)); err != nil {
		t.Fatal(err)
	}
	if err := root.File("/tests/cluster", build(t, []string{"test", "-c"}, "./test/cluster")); err != nil {
		t.Fatal(err)
	}
	return root
}

func makeDisk(t *testing.T, root *Image) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.ext4")
	if err := root.Disk(disk, 6<<30); err != nil {
		t.Fatal(err)
	}
	return disk
}

// nodeRoot returns the root file system of a node, with those programs of the
// test cluster that are chosen by name. They are in the folder bin.
func nodeRoot(t *testing.T, bin string, chosen func(name string) bool) *Image {
	t.Helper()
	root := new(Image)
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/lib", "/var/log", "/root"} {
		root.Dir(dir)
	}
	root.Text("/etc/hosts", "127.0.0.1 localhost\n")
	root.Text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	root.Text("/etc/group", "root:x:0:\n")
	root.Text("/etc/resolv.conf", "")
	// The programs of this name in busybox lack options that the cluster needs.
	for _, name := range []string{"nsenter", "unshare", "setpriv", "setsid", "mount", "umount", "ip", "env"} {
		host, err := exec.LookPath(name)
		if err != nil {
			missing(t, "needs %s: run scripts/install-deps.sh test", name)
		}
		if err := root.Program("/usr/bin/"+name, host); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err == nil {
		err = root.Program("/bin/busybox", busybox)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "sleep", "kill", "touch", "mkdir", "mv", "cat"} {
		if err := root.File("/bin/"+name, busybox); err != nil {
			t.Fatal(err)
		}
	}
	have := filepath.Join(cluster.Cache(), "cluster", "bin")
	for _, dir := range []string{"", "cni"} {
		programs, err := os.ReadDir(filepath.Join(have, dir))
		if err != nil {
			missing(t, "%v: run make cluster-build", err)
		}
		for _, p := range programs {
			// No test in a guest runs kube-proxy, which would be another copy of
			// all programs of Kubernetes.
			if p.IsDir() || p.Name()[0] == '.' || p.Name() == "kube-proxy" || dir == "" && !chosen(p.Name()) {
				continue
			}
			if err := root.File(path.Join(bin, dir, p.Name()), filepath.Join(have, dir, p.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}
