package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	chartDir = "../../deploy/chart/tenon"
	release  = "tenon"
	home     = "tenon-system"
)

// firstLines is a pod whose containers first print their own limits.
const firstLines = `{apiVersion: v1, kind: Pod, metadata: {name: first, labels: {koordinator.sh/qosClass: BE}}, spec: {terminationGracePeriodSeconds: 1,
initContainers: [{name: init, image: "busybox:1", command: [sh, -c, "SAY"], resources: {limits: {kubernetes.io/batch-cpu: "250", kubernetes.io/batch-memory: 64Mi}}}],
containers: [{name: main, image: "busybox:1", command: [sh, -c, "SAY; sleep 10000"], resources: {limits: {kubernetes.io/batch-cpu: "500", kubernetes.io/batch-memory: 128Mi}}}]}}`

// A chart is an installation of Tenon by Helm from the project's images.
type chart struct {
	t    *testing.T
	c    *Cluster
	n    *Node
	helm string
	from string // the folder of the chart, or its file
	args []string
}

// newChart builds Helm and the images, and adds these images to the registry.
func newChart(t *testing.T, c *Cluster, n *Node) *chart {
	t.Helper()
	h := &chart{t: t, c: c, n: n, helm: filepath.Join(Cache(), "helm"), from: chartDir}
	images := os.Getenv("TENON_TEST_RELEASE") // of a guest, which has Helm, too
	if images == "" {
		images = t.TempDir()
		h.build("../chart", "go", "build", "-o", h.helm, "helm.sh/helm/v4/cmd/helm")
		h.build(".", "go", "run", "../../deploy/image", "-root", "../..", "-version", "test", "-arch", runtime.GOARCH, "-only", "tenond,tenon-manager", "-out", images)
	}
	if err := c.addRelease(Release{Images: images, Version: "test", Scheduler: inGuest()}); err != nil {
		t.Fatal(err)
	}
	// With the default settings, a busy machine would have no batch resources,
	// and no machine would have any within the first minute.
	colocation := `{"enable": true, "metricReportIntervalSeconds": 5, "metricAggregateDurationSeconds": 10, "cpuReclaimThresholdPercent": 1000, "memoryReclaimThresholdPercent": 95}`
	h.args = append([]string{"--namespace", home, "--set", "image.registry=" + imageRegistry, "--set", "image.tag=test", "--set-json", "strategies.colocation-config=" + colocation}, lackedValues()...)
	return h
}

func (h *chart) build(dir string, command ...string) {
	h.t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

func (h *chart) run(args ...string) string {
	h.t.Helper()
	out, err := h.c.Command(h.t.Context(), h.helm, args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (h *chart) kubectl(args ...string) string {
	h.t.Helper()
	return kubectl(h.t, h.c, args...)
}

// batchResources returns the batch resources of the node.
func (h *chart) batchResources() (found map[string]string, err error) {
	text, err := h.c.Kubectl(h.t.Context(), "get", "node", h.n.Name, "-o", "jsonpath={.status.allocatable}")
	if err != nil {
		return nil, err
	}
	all, found := map[string]string{}, map[string]string{}
	err = json.Unmarshal([]byte(text), &all)
	for name, amount := range all {
		if strings.HasPrefix(name, "kubernetes.io/batch-") {
			found[name] = amount
		}
	}
	return found, err
}

// TestHelmInstallsAndUninstallsWithoutATrace installs the chart, replaces the
// agents, and uninstalls everything. A best-effort pod must have its values
// before its first instruction. The roles of the chart must grant no permission
// that these steps do not need.
//
// In a guest it is the whole cluster on cgroup v2, with tenon-scheduler. The parts
// that do not depend on the version of cgroups do not run there.
func TestHelmInstallsAndUninstallsWithoutATrace(t *testing.T) {
	aloneInTurn(t)
	if inGuest() {
		wholeClusterInAGuest(t)
		return
	}
	audit, log := auditing(t)
	// CPU 0 is for processes outside pods, such as the client of the lab.
	c, n := upWith(t, "chart", NodeOptions{Kubelet: "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n"}, audit...)
	h := newChart(t, c, n)
	h.kubectl("create", "namespace", home)
	h.run(append([]string{"install", release, chartDir, "--dry-run=server"}, h.args...)...)

	h.install()
	t.Logf("helm test:\n%s", h.run("test", release, "--namespace", home, "--logs"))
	h.updateCRDs()
	if warnings := h.kubectl("get", "validatingadmissionpolicy", "tenon-own-report", "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); warnings != "" {
		t.Errorf("the policy's expressions: %s", warnings)
	}
	h.agentsWriteTheirOwnReports()
	h.viewersSeeTheReports()
	h.firstInstruction()
	h.tenantTakesNothing()
	h.replaceAgents()
	h.tenantsLeave()
	h.replaceManagers()
	h.experiment()
	if pickLength(false, true) { // this takes minutes
		h.manuals()
	}
	granted := h.granted()
	h.uninstall()
	h.grantsNoMore(granted, log)
}

// wholeClusterInAGuest installs the chart in a guest, with tenon-scheduler. After it
// is uninstalled, each file of each cgroup must be as before.
func wholeClusterInAGuest(t *testing.T) {
	c, n := startGuestCluster(t, Options{Name: "chart", Controllers: []string{"--controllers=*"}}, NodeOptions{})
	u := &unifiedNode{t: t, c: c, n: n}
	h := newChart(t, c, n)
	h.args = append(h.args, "--set", "scheduler.enabled=true", "--set", "scheduler.replicas=1", "--set", "manager.replicas=1")
	empty := u.values()
	h.kubectl("create", "namespace", home)
	h.install()
	h.firstInstruction()
	h.ownCPUs()
	h.replaceAgents()
	h.uninstall()
	h.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
	u.noPodIsLeft()
	u.unchangedSince(empty)
}

// ownCPUs creates a pod that asks for a CPU of its own. The webhook must give it to
// tenon-scheduler, which chooses the CPU, and tenond must bind the pod to it. The start
// of a container waits for that, but on a slow machine not long enough, so the first
// command may still run elsewhere.
func (h *chart) ownCPUs() {
	h.t.Helper()
	pod := strings.NewReplacer("NAME", "own", "schedulerName: none, ", "").Replace(pinnedPod)
	if _, err := h.c.KubectlApply(h.t.Context(), pod, "apply", "-f", "-"); err != nil {
		h.t.Fatal(err)
	}
	requireSoon(h.t, 2*time.Minute, "the pod with a CPU of its own runs", func() error { return phase(h.t, h.c, "own", "Running") })
	if by := h.kubectl("get", "pod", "own", "-o", "jsonpath={.spec.schedulerName}"); by != "tenon-scheduler" {
		h.t.Errorf("the pod has the scheduler %s", by)
	}
	var chosen struct {
		CPUs unit.CPUSet `json:"cpus"`
	}
	if err := json.Unmarshal([]byte(h.kubectl("get", "pod", "own", "-o", `jsonpath={.metadata.annotations.tenon\.sh/cpus}`)), &chosen); err != nil || chosen.CPUs.Len() != 1 {
		h.t.Errorf("the scheduler chose CPUs %v: %v", chosen.CPUs, err)
	}
	group := "kubepods/pod" + uid(h.t, h.c, "own")
	requireSoon(h.t, time.Minute, "the pod has the CPU that was chosen for it", func() error {
		got, err := h.n.setting("cpuset", group, "cpuset.cpus")
		if err == nil && got != chosen.CPUs.String() {
			err = fmt.Errorf("it has the CPUs %q, want %v", got, chosen.CPUs)
		}
		return err
	})
	h.t.Logf("the pod has CPU %v of its own; its first command says %q", chosen.CPUs, h.kubectl("logs", "own"))
	heldBy(h.t, &agent{t: h.t, c: h.c, n: h.n}, uid(h.t, h.c, "own"), chosen.CPUs, "scheduler")
	endByForce(h.t, h.c, h.n, "own")
}

// install installs the chart, and waits until all parts are ready and the node has
// batch memory.
func (h *chart) install() {
	h.t.Helper()
	begun := time.Now()
	h.run(append([]string{"install", release, h.from}, h.args...)...)
	requireSoon(h.t, 2*time.Minute, "the node has batch memory", func() error {
		found, err := h.batchResources()
		if err == nil && (found["kubernetes.io/batch-memory"] == "" || found["kubernetes.io/batch-memory"] == "0") {
			err = fmt.Errorf("it has %v", found)
		}
		return err
	})
	h.t.Logf("%.1f s from helm install to the first batch resource, with the images to be pulled", time.Since(begun).Seconds())
	requireSoon(h.t, time.Minute, "all of Tenon is ready", func() error { return h.ready() })
}

func (h *chart) ready() error {
	for _, of := range []string{"daemonset/tenond", "deployment/tenon-manager"} {
		if _, err := h.c.Kubectl(h.t.Context(), "rollout", "status", of, "-n", home, "--timeout=1s"); err != nil {
			return err
		}
	}
	return nil
}

// updateCRDs applies CRDs with one more version than those of the chart, by the
// command of docs/upgrade.md. Helm owns the versions of the CRDs that it made.
func (h *chart) updateCRDs() {
	h.t.Helper()
	crds := h.t.TempDir()
	files, err := filepath.Glob(filepath.Join(chartDir, "crds", "*.yaml"))
	if err != nil || len(files) != 2 {
		h.t.Fatalf("the chart has the CRDs %v: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			h.t.Fatal(err)
		}
		more := "\n  versions:\n  - {name: v9, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"
		changed := strings.Replace(string(text), "\n  versions:\n", more, 1)
		if err := os.WriteFile(filepath.Join(crds, filepath.Base(file)), []byte(changed), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	h.kubectl("apply", "--server-side", "--force-conflicts", "-f", crds)
	versions := h.kubectl("get", "crd", "nodereports.tenon.sh", "clustercolocationprofiles.config.koordinator.sh", "-o", "jsonpath={.items[*].spec.versions[*].name}")
	if strings.Count(versions, "v9") != len(files) {
		h.t.Errorf("after the update the CRDs have the versions %s", versions)
	}
}

// agentsWriteTheirOwnReports tries forbidden writes with the token of an agent.
func (h *chart) agentsWriteTheirOwnReports() {
	h.t.Helper()
	pod := h.kubectl("get", "pod", "-n", home, "-l", "app.kubernetes.io/name=tenond", "-o", "jsonpath={.items[0].metadata.name}")
	bound := h.kubectl("create", "token", "tenond", "-n", home, "--bound-object-kind", "Pod", "--bound-object-name", pod)
	free := h.kubectl("create", "token", "tenond", "-n", home)
	// kubectl cannot be used: it reads an object before it patches it, and an
	// agent must not read reports.
	client, err := adminClient(h.c.Dir)
	if err != nil {
		h.t.Fatal(err)
	}
	transport := client.Transport.(*http.Transport)
	transport.DialContext, transport.TLSClientConfig.Certificates = h.c.Dial, nil
	defer transport.CloseIdleConnections()
	write := func(token, name, subresource, body string) string {
		url := Server + "/apis/tenon.sh/v1alpha1/nodereports/" + path.Join(name, subresource)
		request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPatch, url, strings.NewReader(body))
		if err != nil {
			h.t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/merge-patch+json")
		answer, err := client.Do(request)
		if err != nil {
			h.t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			h.t.Fatal(err)
		}
		return answer.Status + ": " + string(text)
	}
	if _, err := h.c.KubectlApply(h.t.Context(), "{apiVersion: tenon.sh/v1alpha1, kind: NodeReport, metadata: {name: other}}", "apply", "-f", "-"); err != nil {
		h.t.Fatal(err)
	}
	for name, c := range map[string]struct{ token, report, subresource, body, says string }{
		"its own node's":          {bound, h.n.Name, "", `{"metadata":{"labels":{"a":"b"}}}`, "200 OK"},
		"another node's":          {bound, "other", "", `{"metadata":{"labels":{"a":"b"}}}`, "the agent of node " + h.n.Name + " may not write the report of other"},
		"another's status":        {bound, "other", "status", `{"status":{"agent":"x"}}`, "may not write the report of other"},
		"what is published":       {bound, h.n.Name, "status", `{"status":{"published":{"reason":"because"}}}`, "status.published is written by tenon-manager"},
		"what Prometheus says":    {bound, h.n.Name, "status", `{"status":{"queried":{}}}`, "status.queried is written by tenon-manager"},
		"from outside of any pod": {free, h.n.Name, "", `{"metadata":{"labels":{"a":"c"}}}`, "does not name its node"},
	} {
		if got := write(c.token, c.report, c.subresource, c.body); !strings.Contains(got, c.says) {
			h.t.Errorf("an agent writes the report: %s: %q, want %q", name, got, c.says)
		}
	}
	h.kubectl("delete", "nodereport", "other")
}

// viewersSeeTheReports binds the ClusterRole for users of kubectl tenon. They may
// then read reports and the Lease of the manager, and no pods of others.
func (h *chart) viewersSeeTheReports() {
	h.t.Helper()
	may := func(verb, what string) bool {
		out, _ := h.c.Kubectl(h.t.Context(), "auth", "can-i", verb, what, "--as", "alice", "--as-group", "shop") // no is an error
		return strings.TrimSpace(out) == "yes"
	}
	if may("list", "nodereports.tenon.sh") {
		h.t.Error("a user without a role may list reports")
	}
	h.kubectl("create", "clusterrolebinding", "shop-sees-tenon", "--clusterrole=tenon-viewer", "--group=shop")
	for what, want := range map[string]bool{"nodes": true, "nodereports.tenon.sh": true, "leases/tenon-manager": true, "leases": false, "pods": false, "secrets": false} {
		if may("list", what) != want {
			h.t.Errorf("a viewer may list %s: %t", what, !want)
		}
	}
	h.kubectl("delete", "clusterrolebinding", "shop-sees-tenon")
	if text := h.kubectl("get", "clusterrole", "view", "-o", "yaml"); !strings.Contains(text, "nodereports") {
		h.t.Error("the ClusterRole view has no reports")
	}
}

// firstInstruction starts containers that first read the values of their own
// cgroup, and checks these values.
func (h *chart) firstInstruction() {
	h.t.Helper()
	requireSoon(h.t, 4*time.Minute, "the node has batch CPU", func() error {
		found, err := h.batchResources()
		if err == nil && len(found["kubernetes.io/batch-cpu"]) < 3 {
			err = fmt.Errorf("it has %v", found)
		}
		return err
	})
	requireSoon(h.t, time.Minute, "the webhooks answer", func() error {
		_, err := h.c.KubectlApply(h.t.Context(), strings.ReplaceAll(firstLines, "SAY", sayLimits()), "apply", "-f", "-")
		return err
	})
	requireSoon(h.t, time.Minute, "the pod runs", func() error { return phase(h.t, h.c, "first", "Running") })
	for container, want := range map[string]struct{ memory, quota int }{"init": {64 << 20, 25000}, "main": {128 << 20, 50000}} {
		var memory, quota int
		text := h.kubectl("logs", "first", "-c", container)
		_, err := fmt.Sscan(text, &memory, &quota)
		if err != nil || memory != want.memory || quota != want.quota {
			h.t.Errorf("container %s began with memory limit and quota %q, want %d and %d", container, text, want.memory, want.quota)
		}
	}
	// The chart's ConfigMap does not enable CPU suppress.
	if class, err := h.n.setting("cpu", "kubepods/besteffort", "cpu.cfs_quota_us"); err != nil || class != "-1" {
		h.t.Errorf("the quota of all best-effort pods is %q (%v), want none", class, err)
	}
}

// pod returns the directory of the pod's cgroup.
func (h *chart) pod(controller string) string {
	return h.n.Cgroup(controller, "kubepods/besteffort/pod"+uid(h.t, h.c, "first"))
}

// knob reads a file of the pod's cgroup or, if container is set, of the cgroup
// of its main container.
func (h *chart) knob(controller, file string, container bool) string {
	h.t.Helper()
	group := "kubepods/besteffort/pod" + uid(h.t, h.c, "first")
	if container {
		id := h.kubectl("get", "pod", "first", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
		group = filepath.Join(group, strings.TrimPrefix(id, "containerd://"))
	}
	text, err := h.n.setting(controller, group, file)
	if err != nil {
		h.t.Fatal(err)
	}
	return text
}

// replaceAgents updates the DaemonSet. The values of pods must stay meanwhile.
func (h *chart) replaceAgents() {
	h.t.Helper()
	requireSoon(h.t, 30*time.Second, "the pod yields", func() error {
		if shares, limit := h.knob("cpu", "cpu.shares", false), h.knob("memory", "memory.limit_in_bytes", false); shares != "2" || limit != "134217728" {
			return fmt.Errorf("cpu.shares is %s, memory.limit_in_bytes is %s", shares, limit)
		}
		return haveSlices(h.pod("cpu"), task.SliceLong)
	})
	h.runProxyPod()
	h.kubectl("rollout", "restart", "daemonset/tenond", "-n", home)
	requireSoon(h.t, time.Minute, "another agent runs", func() error {
		if limit := h.knob("memory", "memory.limit_in_bytes", false); limit != "134217728" {
			h.t.Errorf("memory.limit_in_bytes is %s while the agent is replaced", limit)
		}
		return h.ready()
	})
}

// replaceManagers updates the Deployment. A client must be able to create
// best-effort pods at any moment meanwhile.
func (h *chart) replaceManagers() {
	h.t.Helper()
	pods := func() []string {
		return strings.Fields(h.kubectl("get", "pods", "-n", home, "-l", "app.kubernetes.io/name=tenon-manager", "-o", "name"))
	}
	before := pods()
	h.kubectl("rollout", "restart", "deployment/tenon-manager", "-n", home)
	pod := strings.Replace(firstLines, "name: first", "name: second", 1)
	requireSoon(h.t, 2*time.Minute, "only other managers run", func() error {
		if _, err := h.c.KubectlApply(h.t.Context(), pod, "create", "--dry-run=server", "-f", "-"); err != nil {
			h.t.Errorf("a best-effort pod is refused while the managers are replaced: %v", err)
		}
		now := pods()
		if len(now) != len(before) || slices.ContainsFunc(now, func(p string) bool { return slices.Contains(before, p) }) {
			return fmt.Errorf("there are %v", now)
		}
		return nil
	})
}

// proxyPod is a pod like kube-proxy. The kubelet counts it as best-effort, but
// Tenon does not.
const proxyPod = `{apiVersion: v1, kind: Pod, metadata: {name: proxy, namespace: kube-system}, spec: {priorityClassName: system-node-critical,
terminationGracePeriodSeconds: 1, containers: [{name: c, image: "busybox:1", command: [sleep, "10000"]}]}}`

// runProxyPod runs proxyPod in the cgroup of the best-effort class. Batch pods
// must still have long slices, and the threads of proxyPod must not have them.
func (h *chart) runProxyPod() {
	h.t.Helper()
	if _, err := h.c.KubectlApply(h.t.Context(), proxyPod, "apply", "-f", "-"); err != nil {
		h.t.Fatal(err)
	}
	get := func(field string) string {
		return h.kubectl("get", "pod", "proxy", "-n", "kube-system", "-o", "jsonpath={"+field+"}")
	}
	requireSoon(h.t, time.Minute, "the pod beside it runs", func() error {
		if phase := get(".status.phase"); phase != "Running" {
			return errors.New("it is " + phase)
		}
		return nil
	})
	time.Sleep(3 * time.Second) // the agent takes the slices from the class, and gives them to the pod
	requireSoon(h.t, 20*time.Second, "the batch pod alone has long slices", func() error {
		proxy := h.n.Cgroup("cpu", "kubepods/besteffort/pod"+get(".metadata.uid"))
		return errors.Join(haveSlices(h.pod("cpu"), task.SliceLong), haveSlices(proxy, task.SliceDefault))
	})
	h.kubectl("delete", "pod", "proxy", "-n", "kube-system")
}

// uninstall checks that no value of Tenon remains on pods and nodes.
func (h *chart) uninstall() {
	h.t.Helper()
	begun := time.Now()
	h.run("uninstall", release, "--namespace", home)
	h.t.Logf("helm uninstall took %.1f s", time.Since(begun).Seconds())
	for _, k := range []struct {
		controller, file string
		container        bool
		want             string
	}{
		{"cpu", "cpu.idle", false, "0"}, {"cpu", "cpu.shares", false, "2"}, {"cpu", "cpu.cfs_quota_us", false, "-1"},
		{"memory", "memory.limit_in_bytes", false, "9223372036854771712"},
		{"cpu", "cpu.shares", true, "2"}, {"cpu", "cpu.cfs_quota_us", true, "-1"}, {"memory", "memory.limit_in_bytes", true, "9223372036854771712"},
	} {
		if got := h.knob(k.controller, k.file, k.container); got != k.want {
			h.t.Errorf("%s (of the container: %v) is left at %s, want the kubelet's %s", k.file, k.container, got, k.want)
		}
	}
	if err := haveSlices(h.pod("cpu"), task.SliceDefault); err != nil {
		h.t.Error(err)
	}
	if found, err := h.batchResources(); err != nil || len(found) > 0 {
		h.t.Errorf("the node is left with %v (%v)", found, err)
	}
	if left := h.kubectl("get", "nodereports,clusterroles,clusterrolebindings,validatingadmissionpolicies,mutatingwebhookconfigurations,validatingwebhookconfigurations,priorityclasses", "-o", "name"); strings.Contains(left, "tenon") || strings.Contains(left, "koord-") {
		h.t.Errorf("left in the cluster:\n%s", left)
	}
	requireSoon(h.t, time.Minute, "no pod of Tenon is left", func() error {
		if left := h.kubectl("get", "pods", "-n", home, "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
}
