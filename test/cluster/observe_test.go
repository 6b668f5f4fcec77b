package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// idlePod is a pod of class BE without batch resources, which a node without Tenon does not
// have.
const idlePod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: BE}}, spec: {nodeName: node-0, terminationGracePeriodSeconds: 1,
containers: [{name: main, image: "busybox:1", command: [sleep, "10000"]}]}}`

// TestTheChartInModeObserveWritesNothing installs the chart in mode observe on a node with
// a service and batch pods that come and go. By the audit log of the API server, the agent
// may only have read objects and written the report of its node. No file of the cgroups of
// pods may have another value than the kubelet and the runtime gave it.
func TestTheChartInModeObserveWritesNothing(t *testing.T) {
	aloneInTurn(t)
	if inGuest() {
		t.Skip("the guest has no place for another cluster")
	}
	const history = "/var/lib/tenon"
	if _, err := os.Stat(history); errors.Is(err, fs.ErrNotExist) {
		t.Cleanup(func() {
			if err := os.RemoveAll(history); err != nil {
				t.Error(err)
			}
		})
	}
	audit, log := auditing(t)
	c, n := upWith(t, "observe", NodeOptions{}, audit...)
	h := newChart(t, c, n)
	h.kubectl("create", "namespace", home)
	a := &agent{t: t, c: c, n: n}
	web := a.pod(strings.Replace(servicePod, "LIMIT", "1", 1), "web", "burstable")
	a.pod(idlePod, "job", "besteffort")
	before := a.awaitSettled()
	h.run(append([]string{"install", release, h.from, "--set", "mode=observe"}, append(h.args, "--set", "strategies.resource-threshold-config.clusterStrategy.enable=true")...)...)
	requireSoon(t, 2*time.Minute, "the node says what it would offer and write", func() error {
		text, err := c.Kubectl(t.Context(), "get", "nodereport", n.Name, "-o", "jsonpath={.status.batch}{.status.shadow.steps[?(@.policy=='suppress')].policy} {.status.conditions[*].type} {.status.shadow.batch.cpu.amount}")
		if amount, rest, found := strings.Cut(text, "suppress AgentHealthy ConfigAccepted PodsKnown "); err == nil && (!found || rest == "" || strings.Trim(amount, "{}") != "") {
			err = fmt.Errorf("the report has %q", text)
		}
		return err
	})
	jobs := []string{"job", "job-1", "job-2", "job-3"}
	for i, name := range jobs[1:] {
		a.pod(idlePod, name, "besteffort")
		h.kubectl("delete", "pod", jobs[i], "--grace-period=1")
	}
	with := a.awaitSettled()
	time.Sleep(5 * time.Second) // five ticks
	last := a.values()
	compared := 0
	for file, value := range last {
		if was, there := with[file]; there && was != value {
			t.Errorf("%s is %q and was %q", file, value, was)
		}
		if was, there := before[file]; there && (strings.Contains(file, web) || path.Base(path.Dir(file)) == "besteffort") {
			if compared++; was != value {
				t.Errorf("%s is %q, and was %q before the installation", file, value, was)
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d files from before are left", compared)
	}
	if found, err := h.batchResources(); err != nil || len(found) > 0 {
		t.Errorf("the node has %v, %v", found, err)
	}
	if said := h.kubectl("logs", "-n", home, "daemonset/tenond"); strings.Contains(said, "is not read-only") || !strings.Contains(said, "observing: ") {
		t.Errorf("the agent could write, by its log:\n%s", said)
	} else if at := strings.Index(said, "delays are not counted"); at >= 0 {
		t.Errorf("it cannot trace, by its log:\n%s", said)
	}
	made := strings.Fields(h.kubectl("get", "deployments,statefulsets,jobs,mutatingwebhookconfigurations,validatingwebhookconfigurations,priorityclasses", "-A", "-o", "name"))
	made = slices.DeleteFunc(made, func(name string) bool { return strings.HasPrefix(name, "priorityclass.scheduling.k8s.io/system-") })
	if len(made) > 0 {
		t.Errorf("the cluster has %q", made)
	}
	granted := h.granted()
	h.run("uninstall", release, "--namespace", home)
	var wrote []string
	for r := range usedRights(t, log) {
		if r.verb != "get" && r.verb != "list" && r.verb != "watch" && !strings.HasPrefix(r.resource, "nodereports") {
			wrote = append(wrote, fmt.Sprint(r))
		}
		if !granted[r] {
			t.Errorf("used and not granted: %v", r)
		}
	}
	if diff := cmp.Diff([]string(nil), wrote); diff != "" {
		t.Errorf("the agent wrote (-want +got):\n%s", diff)
	}
	if !usedRights(t, log)[right{"tenond", "patch", "tenon.sh", "nodereports/status"}] {
		t.Error("the audit log has no report of the agent, so it shows nothing")
	}
}
