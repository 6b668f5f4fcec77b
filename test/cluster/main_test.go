package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/test/turn"
)

func TestMain(m *testing.M) {
	Main()
	if name := os.Getenv(orphanEnv); name != "" {
		orphan(name)
	}
	status := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(status)
}

// needsCluster skips a test that starts a cluster if this machine cannot run
// one, and gives the reason.
func needsCluster(t *testing.T) {
	t.Helper()
	if os.Getenv("TENON_TEST_CLUSTER") != "1" {
		t.Skip("starts a cluster: make cluster-test")
	}
	if err := Missing(); err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// runParallel lets a test run in parallel with others: each has its own cluster
// and mostly waits. In its long form, a test also measures, so it runs alone.
func runParallel(t *testing.T) {
	t.Helper()
	if pickLength(true, false) {
		t.Parallel()
	}
}

// withoutTenon are the tests in which no program of Tenon runs. They check the
// test cluster, and facts of Kubernetes on which the design of Tenon depends.
// These facts change only with the version of Kubernetes. For each commit one
// of the tests runs, and in make soak all of them.
var withoutTenon = []string{
	"TestKubeletCannotRestartOverAnIdleLevel", "TestKubeletSurvivesIdlePods", "TestAKubeletThatRestartsEndsWhatBatchResourcesDoNotCover",
	"TestSeedsRun", "TestClusterEndsWithItsStarter",
}

// needTurn skips a test of withoutTenon if it is not the one for this commit.
func needTurn(t *testing.T) {
	t.Helper()
	needsCluster(t)
	turn.Skip(t, len(withoutTenon), withoutTenon)
}

// inTurns are tests of which a third runs for each commit: they wait for a kubelet
// that restarts, for a pod that is resized, for a load that has settled. For each
// commit runs a cluster with Tenon on a node (TestTenondKeepsTheNodeOfACluster), its
// removal (TestTenondPutsBackWhatItChangedWhenItsDaemonSetGoes), one of alone, and an
// experiment.
var inTurns = []string{
	"TestAResizedPodGetsItsNewLimits", "TestKubeletAndContainerdAreKilledAtFullLoad", "TestTheBatchPodToBlameGivesWayAlone",
	"TestRequestLatencyMakesBatchWorkGiveWay", "TestSlowAnswersAtTheSocketMakeTheHogGiveWay",
	"TestAPodStartsOnTheCPUsOfItsContract", "TestTheAPIServerGoesAway", "TestReservedCPUsAreNotBestEffortWorks",
	"TestTheSchedulerChoosesCPUs", "TestThePublishedServiceAnswers", "TestARestartedKubeletKeepsBatchPods",
	"TestTenondEvictsByTheAPI", "TestARestartOfTenondWritesNothing", "TestAContainerStartsAgainInABoundedPod",
	"TestANodeThatIsOffLeavesBatchWorkAHundredthOfACPU",
}

// inTurn skips a test of inTurns unless it runs for this commit.
func inTurn(t *testing.T) {
	t.Helper()
	needsCluster(t)
	turn.Skip(t, 3, inTurns)
}

// alone are tests that run beside no other test with a node. One of them runs for
// each commit.
var alone = []string{"TestHelmInstallsAndUninstallsWithoutATrace", "TestAStepOfLoadLowersAllocatable", "TestTheChartInModeObserveWritesNothing"}

// aloneInTurn skips a test of alone if it is not the one for this commit.
func aloneInTurn(t *testing.T) {
	t.Helper()
	needsCluster(t)
	turn.Skip(t, len(alone), alone)
}

// experiments are those of the lab that run in pods of a cluster of their own, each
// for about a minute. One of them runs for each commit in which the first test of
// alone does not: that one has the experiment colocation. In make soak all of them
// run, and without pods all run as root for each commit.
var experiments = []string{"TestConcurrentJobsAreMeasuredOnACluster", "TestPinningIsMeasuredOnACluster"}

// needExperimentsTurn skips a test of experiments if it is not the one for this
// commit.
func needExperimentsTurn(t *testing.T) {
	t.Helper()
	needsCluster(t)
	turn.Skip(t, len(experiments), experiments)
	if !turn.All() && turn.Runs(len(alone), alone, alone[0]) {
		t.Skip("the experiment colocation runs for this commit: TENON_TEST_KERNELS=all runs all, as make soak does")
	}
}

// startCluster starts a cluster of one node for a test.
func startCluster(t *testing.T, name string) (*Cluster, *Node) {
	t.Helper()
	return upWith(t, name, NodeOptions{})
}

func upWith(t *testing.T, name string, o NodeOptions, apiServer ...string) (*Cluster, *Node) {
	t.Helper()
	needsCluster(t)
	if inGuest() {
		return startGuestCluster(t, Options{Name: name, APIServer: apiServer, Controllers: []string{"--controllers=*"}}, o)
	}
	c, err := Up(t.Context(), Options{Name: name, APIServer: apiServer, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubelet:\n%s", grep(filepath.Join(c.Dir, "node-0", "kubelet.log"), "E1", "E0"))
		}
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	n, err := c.AddNode(t.Context(), 0, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, n
}

// grep returns the last lines of a log that begin with one of the prefixes.
func grep(file string, prefixes ...string) string {
	text, _ := os.ReadFile(file)
	var found []string
	for line := range strings.Lines(string(text)) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				found = append(found, line)
			}
		}
	}
	return strings.Join(found[max(0, len(found)-30):], "")
}

// kubectl runs kubectl, or fails the test.
func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// requireSoon fails the test if f does not succeed within the limit.
func requireSoon(t *testing.T, limit time.Duration, claim string, f func() error) {
	t.Helper()
	if err := retry(t.Context(), limit, f); err != nil {
		t.Fatalf("not so: %s: %v", claim, err)
	}
}

// phase returns nil if the pod is in the wanted phase.
func phase(t *testing.T, c *Cluster, pod, want string) error {
	got, err := c.Kubectl(t.Context(), "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.reason} {.status.message} {.status.containerStatuses[0].state.waiting}")
	if err == nil && !strings.HasPrefix(got, want) {
		err = fmt.Errorf("pod %s is %s", pod, got)
	}
	return err
}

func uid(t *testing.T, c *Cluster, pod string) string {
	t.Helper()
	return kubectl(t, c, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
}

// offer sets the batch resources of a node, as Tenon's manager does.
func offer(t *testing.T, c *Cluster, n *Node, milliCPU int, memory string) {
	t.Helper()
	amounts := fmt.Sprintf(`{"kubernetes.io/batch-cpu":"%d","kubernetes.io/batch-memory":%q}`, milliCPU, memory)
	kubectl(t, c, "patch", "node", n.Name, "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s}}`, amounts, amounts))
	// The kubelet has its own copy of the node, by which it admits pods. It
	// updates this copy later.
	time.Sleep(time.Second)
}
