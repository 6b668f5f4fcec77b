package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSeedsRun runs the published manifests on the cluster. Their requests must
// be met, their cgroups must be in the right place, and nothing may be left
// afterwards.
func TestSeedsRun(t *testing.T) {
	needTurn(t)
	runParallel(t)
	c, n := startCluster(t, "seeds")
	offer(t, c, n, 1500, "4Gi")

	for _, file := range []string{"ls-nginx", "besteffort-ffmpeg"} {
		kubectl(t, c, "apply", "-f", serviceAndBatch+file+".yaml")
	}
	requireSoon(t, time.Minute, "nginx runs", func() error { return phase(t, c, "nginx", "Running") })
	requireSoon(t, time.Minute, "the transcoding runs", func() error { return phase(t, c, "besteffort-ffmpeg", "Running") })
	client := http.Client{Transport: &http.Transport{DialContext: c.Dial}}
	requireSoon(t, 10*time.Second, "nginx answers", func() error {
		body, err := get(t.Context(), &client, "http://127.0.0.1:8000/")
		if err == nil && len(body) != 612 {
			err = fmt.Errorf("a page of %d bytes, not 612", len(body))
		}
		return err
	})
	beGroup := n.Cgroup("cpu", "kubepods/besteffort/pod"+uid(t, c, "besteffort-ffmpeg"))
	for _, dir := range []string{beGroup, n.Cgroup("cpu", "kubepods/pod"+uid(t, c, "nginx"))} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	requireSoon(t, 10*time.Second, "ffmpeg works in the best-effort group", func() error {
		groups, err := groupsBelow(beGroup)
		for _, dir := range groups {
			pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, pid := range strings.Fields(string(pids)) {
				if name, _ := os.ReadFile("/proc/" + pid + "/comm"); string(name) == "ffmpeg\n" {
					return nil
				}
			}
		}
		return errors.Join(errors.New("no ffmpeg in "+beGroup), err)
	})

	// At this point, 1300 of the 1500 millicpu are in use.
	kubectl(t, c, "apply", "-f", serviceAndBatch+"be-ffmpeg.yaml")
	requireSoon(t, 30*time.Second, "the kubelet refuses a pod beyond batch-cpu", func() error { return phase(t, c, "be-ffmpeg", "Failed OutOfkubernetes.io/batch-cpu") })
	kubectl(t, c, "delete", "pod", "be-ffmpeg", "besteffort-ffmpeg")
	kubectl(t, c, "apply", "-f", serviceAndBatch+"be-ffmpeg.yaml")
	requireSoon(t, time.Minute, "it runs when there is room", func() error { return phase(t, c, "be-ffmpeg", "Running") })
	kubectl(t, c, "delete", "pod", "be-ffmpeg")
	kubectl(t, c, "apply", "-f", serviceAndBatch+"be-ffmpeg-default.yaml")
	requireSoon(t, time.Minute, "it runs without batch resources", func() error { return phase(t, c, "be-ffmpeg", "Running") })
	theScheduler(t, c)
	usageIsShown(t, c, n)
	theLargeNode(t, c)

	kubectl(t, c, "delete", "pod", "--all")
	requireSoon(t, 30*time.Second, "no pod's control group is left", func() error {
		groups, err := groupsBelow(n.Cgroup("cpu", ""))
		for _, dir := range groups {
			if strings.Contains(filepath.Base(dir), "pod") && filepath.Base(dir) != "kubepods" {
				err = errors.Join(err, fmt.Errorf("%s is left", dir))
			}
		}
		return err
	})
	root := n.Cgroup("cpu", "")
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{root, c.Dir} {
		if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
}

// theScheduler checks that the scheduler counts batch resources as the kubelet
// does. There are two pods of 800 millicpu without a node name, and only one of
// them can run.
func theScheduler(t *testing.T, c *Cluster) {
	t.Helper()
	manifest, err := os.ReadFile(serviceAndBatch + "be-ffmpeg.yaml")
	if err != nil {
		t.Fatal(err)
	}
	edit := strings.NewReplacer("  nodeName: node-0 # write the name of your node here\n", "", `"1300"`, `"800"`)
	for _, name := range []string{"placed-1", "placed-2"} {
		text := strings.ReplaceAll(edit.Replace(string(manifest)), "be-ffmpeg", name)
		if _, err := c.KubectlApply(t.Context(), text, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	requireSoon(t, time.Minute, "one pod runs and one is told why it does not", func() error {
		err1, err2 := phase(t, c, "placed-1", "Running"), phase(t, c, "placed-2", "Running")
		if (err1 == nil) == (err2 == nil) {
			return errors.Join(errors.New("both or none run"), err1, err2)
		}
		events, err := c.Kubectl(t.Context(), "get", "events", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(events, "Insufficient kubernetes.io/batch-cpu") {
			err = errors.New("no event says: Insufficient kubernetes.io/batch-cpu")
		}
		return err
	})
}

// largeNode is a node of the published size. It has the name that the manifests
// of colocation have, and the label that those of own CPUs select.
const largeNode = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cn-beijing.192.168.2.93", "labels": {"policy": "intel7"}}}`

// theLargeNode applies the published manifests unmodified. The API has a node of
// 104 CPUs, and no machine is behind it. So the test shows that the API server
// takes the manifests, and that their requests fit on such a node together.
func theLargeNode(t *testing.T, c *Cluster) {
	t.Helper()
	_, err := c.KubectlApply(t.Context(), largeNode, "create", "-f", "-")
	must(t, err)
	amounts := `{"cpu": "104", "memory": "384Gi", "pods": "110", "kubernetes.io/batch-cpu": "72000", "kubernetes.io/batch-memory": "64Gi"}`
	kubectl(t, c, "patch", "node", "cn-beijing.192.168.2.93", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status": {"capacity": %s, "allocatable": %s, "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": %q, "lastTransitionTime": %[3]q}]}}`,
		amounts, amounts, time.Now().UTC().Format(time.RFC3339)))
	kubectl(t, c, "create", "namespace", "published")
	for _, file := range []string{
		"colocation/ls-nginx", "colocation/besteffort-ffmpeg", "scheduling/cal-pi", "scheduling/go-demo",
		"scheduling/service", "scheduling/configmap", "scheduling/nginx-topology-aware",
	} {
		requireSoon(t, 20*time.Second, "the API server takes "+file, func() error { // once it has made the service account
			_, err := c.Kubectl(t.Context(), "apply", "-n", "published", "-f", "../../examples/"+file+".yaml")
			return err
		})
	}
	requireSoon(t, 40*time.Second, "all published pods have a node", func() error {
		said := kubectl(t, c, "get", "pods", "-n", "published", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)
		if there := strings.Count(said, " cn-beijing.192.168.2.93"); len(strings.Fields(said)) != 2*9 || there < 5 {
			return fmt.Errorf("9 pods, and all that request more than 2 CPUs on the large node: %s", said)
		}
		return nil
	})
	kubectl(t, c, "delete", "deployments", "-n", "published", "--all")
	kubectl(t, c, "delete", "pods", "-n", "published", "--all", "--force", "--grace-period=0")
	kubectl(t, c, "delete", "node", "cn-beijing.192.168.2.93")
	kubectl(t, c, "delete", "namespace", "published")
}

// usageIsShown checks that kubectl top shows the use of the node and its pods.
func usageIsShown(t *testing.T, c *Cluster, n *Node) {
	t.Helper()
	for _, args := range [][]string{{"top", "node", "--no-headers"}, {"top", "pod", "--no-headers", "-l", "app=nginx"}} {
		requireSoon(t, 90*time.Second, "kubectl "+strings.Join(args, " ")+" has an answer", func() error {
			out, err := c.Kubectl(t.Context(), args...)
			f := strings.Fields(out)
			if err == nil && (len(f) < 3 || f[0] != n.Name && f[0] != "nginx" || !strings.HasSuffix(f[1], "m")) {
				err = fmt.Errorf("it is %q", out)
			}
			return err
		})
	}
	t.Logf("%s", kubectl(t, c, "top", "node"))
}
