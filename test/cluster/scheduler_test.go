package cluster

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/unit"
)

// schedulerConfig is the configuration that tenon-scheduler gets from the
// chart, but without leader election.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: KUBECONFIG, qps: 5000, burst: 10000}
profiles:
  - schedulerName: tenon-scheduler
    plugins:
      multiPoint: {enabled: [{name: TenonCPUs, weight: 5}]}
      bind: {enabled: [{name: TenonCPUs}]}
`

// The API of PodGroups, and the feature gate of the API server and the scheduler.
// Both are off by default.
const (
	gateOfGroups = "--feature-gates=GenericWorkload=true"
	apiOfGroups  = "scheduling.k8s.io/v1beta1"
)

// A schedulerCluster is a control plane with tenon-scheduler. Its nodes exist
// only as objects. Each node has two L3 caches, each cache has four cores, and
// each core has two threads. One CPU of a node stays shared.
type schedulerCluster struct {
	t         *testing.T
	c         *Cluster
	binary    string
	scheduler *daemon
	nodes     []string
}

func newChoosing(t *testing.T, nodes int) *schedulerCluster {
	t.Helper()
	needsCluster(t)
	binary := schedulerBinary(t)
	c, err := Up(t.Context(), Options{
		Name: "choosing", NoScheduler: true, NoMetrics: true, Log: t.Logf,
		APIServer:   []string{gateOfGroups, "--runtime-config=" + apiOfGroups + "=true"},
		Controllers: []string{"--controllers=serviceaccount-controller,root-ca-certificate-publisher-controller"},
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("tenon-scheduler: %s", tail(c.file("log", "tenon-scheduler.log")))
		}
		must(t, c.Down())
	})
	h := &schedulerCluster{t: t, c: c, binary: binary}
	kubectl(t, c, "apply", "--validate=false", "-f", "../../deploy/crds/tenon.sh_nodereports.yaml")
	requireSoon(t, time.Minute, "the API server serves reports", func() error {
		_, err := c.Get(t.Context(), "/apis/tenon.sh/v1alpha1/nodereports")
		return err
	})
	for i := range nodes {
		h.nodes = append(h.nodes, fmt.Sprint("n", i))
		h.node(h.nodes[i])
	}
	h.configureScheduler()
	return h
}

// schedulerBinary builds tenon-scheduler, or takes it from TENON_TEST_BIN.
func schedulerBinary(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TENON_TEST_BIN"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "tenon-scheduler")); err == nil {
			return filepath.Join(dir, "tenon-scheduler")
		}
	}
	if out, err := exec.Command("make", "--no-print-directory", "-C", "../..", "scheduler-build").CombinedOutput(); err != nil {
		t.Fatalf("make scheduler-build: %v\n%s", err, out)
	}
	binary, err := filepath.Abs("../../bin/tenon-scheduler")
	must(t, err)
	return binary
}

// configureScheduler writes the configuration of tenon-scheduler. The method
// start uses it.
func (h *schedulerCluster) configureScheduler() {
	h.t.Helper()
	must(h.t, os.WriteFile(h.c.file("scheduler.yaml"), []byte(strings.Replace(schedulerConfig, "KUBECONFIG", h.c.Kubeconfig("admin"), 1)), 0o644))
}

// node adds a node and its report.
func (h *schedulerCluster) node(name string) {
	h.t.Helper()
	amounts := `{"cpu":"16","memory":"64Gi","pods":"110"}`
	h.apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, name))
	kubectl(h.t, h.c, "patch", "node", name, "--subresource=status", "--type=merge", "-p", `{"status":{"capacity":`+amounts+`,"allocatable":`+amounts+`}}`)
	// Remove the taint that the API server gives to a new node until the node
	// is ready.
	kubectl(h.t, h.c, "patch", "node", name, "--type=merge", "-p", `{"spec":{"taints":null}}`)
	h.apply(fmt.Sprintf(`{"apiVersion":"tenon.sh/v1alpha1","kind":"NodeReport","metadata":{"name":%q}}`, name))
	status, err := json.Marshal(map[string]any{"status": v1alpha1.NodeReportStatus{Run: "run", Sequence: 1, CPUs: &v1alpha1.CPUs{
		Caches: []v1alpha1.Cache{{L3: 0, CPUs: "0-3,8-11"}, {L3: 1, CPUs: "4-7,12-15"}}, Cores: "0,8;1,9;2,10;3,11;4,12;5,13;6,14;7,15", Keep: 1,
	}}})
	must(h.t, err)
	kubectl(h.t, h.c, "patch", "nodereport", name, "--subresource=status", "--type=merge", "-p", string(status))
}

func (h *schedulerCluster) apply(object string) {
	h.t.Helper()
	_, err := h.c.KubectlApply(h.t.Context(), object, "apply", "--validate=false", "-f", "-")
	must(h.t, err)
}

func (h *schedulerCluster) start() {
	h.t.Helper()
	h.scheduler = h.startAs("tenon-scheduler")
}

// startAs starts a scheduler whose log has the given name. The scheduler serves
// its metrics to all clients.
func (h *schedulerCluster) startAs(name string, flags ...string) *daemon {
	h.t.Helper()
	d, err := h.c.daemon(0, h.c.file("log", name), append([]string{
		h.binary, "--config=" + h.c.file("scheduler.yaml"), "--secure-port=" + metricsPort, "--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics", "--v=2",
	}, flags...)...)
	must(h.t, err)
	return d
}

// metricsPort is the port, in the cluster's network, at which a scheduler
// serves its metrics.
const metricsPort = "10269"

func (h *schedulerCluster) kill() { must(h.t, h.scheduler.kill(h.t.Context())) }

// pods creates pods that own as many CPUs as they request.
func (h *schedulerCluster) pods(prefix string, sizes ...int) {
	h.t.Helper()
	var list []string
	for i, n := range sizes {
		amounts := fmt.Sprintf(`{"cpu":"%d","memory":"1Gi"}`, n)
		list = append(list, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s%d","annotations":{"cpuset-scheduler":"true"}},"spec":{"schedulerName":"tenon-scheduler","terminationGracePeriodSeconds":0,
"containers":[{"name":"main","image":"busybox:1","resources":{"requests":%s,"limits":%s}}]}}`, prefix, i, amounts, amounts))
	}
	h.apply(`{"apiVersion":"v1","kind":"List","items":[` + strings.Join(list, ",") + `]}`)
}

// look returns all pods, and checks that no two own the same CPU.
func (h *schedulerCluster) look() []corev1.Pod {
	h.t.Helper()
	text, err := h.c.Get(h.t.Context(), "/api/v1/namespaces/default/pods")
	must(h.t, err)
	var pods corev1.PodList
	must(h.t, json.Unmarshal(text, &pods))
	owners := map[string]string{}
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		for cpu := range h.ownedCPUs(p).All() {
			at := fmt.Sprintf("CPU %d of %s", cpu, p.Spec.NodeName)
			if first := owners[at]; first != "" {
				h.t.Errorf("%s and %s own %s", first, p.Name, at)
			}
			owners[at] = p.Name
		}
	}
	return pods.Items
}

// ownedCPUs returns the CPUs in the annotations of a bound pod. It checks that
// the pod has as many as it requests.
func (h *schedulerCluster) ownedCPUs(p corev1.Pod) unit.CPUSet {
	h.t.Helper()
	var contract struct {
		Policy string      `json:"policy"`
		CPUs   unit.CPUSet `json:"cpus"`
	}
	if err := json.Unmarshal([]byte(p.Annotations["tenon.sh/cpus"]), &contract); err != nil {
		h.t.Fatalf("%s is bound and has %v: %v", p.Name, p.Annotations, err)
	}
	want := p.Spec.Containers[0].Resources.Requests.Cpu().Value()
	if contract.Policy != "exclusive" || int64(contract.CPUs.Len()) != want || p.Annotations["cpuset"] == "" || p.Annotations["scheduling.koordinator.sh/resource-status"] == "" {
		h.t.Errorf("%s requests %d CPUs and has %v", p.Name, want, p.Annotations)
	}
	return contract.CPUs
}

// metricsNeedARight reads the metrics of a scheduler that asks the API server
// who the reader is. A reader with the rights of docs/metrics.md must get them,
// and a reader without a token must not.
func (h *schedulerCluster) metricsNeedARight() {
	h.t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	must(h.t, err)
	_, rights, found := strings.Cut(string(page), "```yaml\napiVersion: v1\nkind: ServiceAccount\n")
	rights, _, closed := strings.Cut(rights, "```")
	if !found || !closed {
		h.t.Fatal("docs/metrics.md has no ServiceAccount for the metrics")
	}
	h.apply(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"tenon-system"}}`)
	h.apply("apiVersion: v1\nkind: ServiceAccount\n" + rights)
	admin := h.c.Kubeconfig("admin")
	d, err := h.c.daemon(0, h.c.file("log", "asking"), h.binary, "--config="+h.c.file("scheduler.yaml"), "--secure-port="+metricsPort, "--bind-address=127.0.0.1",
		"--authentication-kubeconfig="+admin, "--authorization-kubeconfig="+admin)
	must(h.t, err)
	token := strings.TrimSpace(kubectl(h.t, h.c, "create", "token", "scheduler-metrics", "-n", "tenon-system"))
	client := &http.Client{Transport: &http.Transport{DialContext: h.c.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	read := func(token string) (int, string, error) {
		request, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "https://127.0.0.1:"+metricsPort+"/metrics", nil)
		must(h.t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text), err
	}
	requireSoon(h.t, time.Minute, "the scheduler gives its metrics to a reader with the right", func() error {
		code, text, err := read(token)
		if err == nil && (code != http.StatusOK || !strings.Contains(text, "tenon_scheduler_cpus{")) {
			err = fmt.Errorf("%d: %.200s", code, text)
		}
		return err
	})
	if code, _, err := read(""); err != nil || code != http.StatusForbidden {
		h.t.Errorf("a reader without a token gets the answer %d (%v), want %d", code, err, http.StatusForbidden)
	}
	must(h.t, d.kill(h.t.Context()))
}

// TestTheSchedulerChoosesCPUs runs tenon-scheduler against a real API server. A
// pod must get its CPUs together with its node. A pod that does not fit must
// wait, say why, and start when there is room. A scheduler that is killed at any
// time must not give a CPU to two pods, and must not forget any pod. The pods of
// a PodGroup must be bound all or not at all.
func TestTheSchedulerChoosesCPUs(t *testing.T) {
	inTurn(t)
	runParallel(t)
	const nodes = 3
	h := newChoosing(t, nodes)
	h.metricsNeedARight()
	h.start()
	h.pods("big", 12, 12, 12)
	requireSoon(t, time.Minute, "three pods have a node each", func() error {
		at := map[string]bool{}
		for _, p := range h.look() {
			at[p.Spec.NodeName] = true
		}
		if len(at) != nodes || at[""] {
			return fmt.Errorf("they are on %v", at)
		}
		return nil
	})
	h.pods("small", 4)
	condition := func() metav1.Condition {
		for _, p := range h.look() {
			for _, c := range p.Status.Conditions {
				if p.Name == "small0" && c.Type == corev1.PodScheduled {
					return metav1.Condition{Status: metav1.ConditionStatus(c.Status), Message: c.Message}
				}
			}
		}
		return metav1.Condition{}
	}
	requireSoon(t, time.Minute, "the pod says why it waits", func() error {
		if c := condition(); !strings.Contains(c.Message, "0/3 nodes are available: 3 no room for own CPUs: the last open ones stay open") {
			return fmt.Errorf("%s %q", c.Status, c.Message)
		}
		return nil
	})
	begun := time.Now()
	kubectl(t, h.c, "delete", "pod", "big0", "--force", "--grace-period=0")
	requireSoon(t, time.Minute, "it is bound when there is room", func() error {
		if c := condition(); c.Status != metav1.ConditionTrue {
			return fmt.Errorf("%s", c.Message)
		}
		return nil
	})
	t.Logf("bound %v after the deletion of the other pod was asked for", time.Since(begun).Round(time.Millisecond))
	kubectl(t, h.c, "delete", "pod", "--all", "--force", "--grace-period=0")

	f := newFlow(h)
	t.Run("a PodGroup that fits only in part", f.grouped)
	t.Run("killed at random", f.killScheduler)
	t.Run("a leader that freezes", f.freezeLeader)
}
