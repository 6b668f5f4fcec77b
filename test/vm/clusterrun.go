package vm

// A ClusterRun is a list of tests of test/cluster that run in one guest, on a whole
// Kubernetes with cgroup v2. The tests of this package run these lists, and the page
// about support shows them.
type ClusterRun struct {
	// Test is the test of this package that boots the guest.
	Test string
	// Systemd means that the guest has systemd, which is then the cgroup driver of
	// kubelet and containerd. Otherwise it is cgroupfs.
	Systemd bool
	// Commit are the tests for the commits that run this guest at all. Soak are those
	// that run in make soak only.
	Commit, Soak []string
}

// ClusterRuns are all of them. The kernel is that of most guests (kernel.sh).
var ClusterRuns = []ClusterRun{
	{Test: "TestKubeletOnCgroupV2", Commit: []string{"TestSeedsOnCgroupV2"}},
	{Test: "TestCalPiOnFiveCPUs", Soak: []string{"TestCalPiRunsAsPublished"}},
	{Test: "TestClusterWithSystemd", Systemd: true, Commit: []string{"TestSeedsOnCgroupV2"}},
	{Test: "TestTenonWithSystemd", Systemd: true, Soak: []string{"TestHelmInstallsAndUninstallsWithoutATrace"}},
}
