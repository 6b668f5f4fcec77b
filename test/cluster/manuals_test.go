package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manualConfig holds the keys of the ConfigMap that the manuals of Koordinator
// and ACK describe: CPU QoS, memory QoS, L3 isolation, block I/O and CPU burst.
// The test replaces DISK. Without schedIdle, BE would get cpu.idle only after a
// trial.
var manualConfig = map[string]string{
	"resource-qos-config": `{"clusterStrategy": {
		"lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 2}, "memoryQOS": {"enable": true, "minLimitPercent": 100, "lowLimitPercent": 0, "throttlingPercent": 0, "wmarkRatio": 95},
			"resctrlQOS": {"enable": true, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100}},
		"beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1, "schedIdle": 1}, "memoryQOS": {"enable": true, "wmarkRatio": 95},
			"resctrlQOS": {"enable": true, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 100},
			"blkioQOS": {"enable": true, "blocks": [{"name": "DISK", "type": "device", "ioCfg": {"readBPS": 104857600, "writeBPS": 104857600}}]}}}}`,
	"cpu-burst-config":          `{"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300, "sharePoolThresholdPercent": 50, "cfsQuotaBurstPeriodSeconds": -1}}`,
	"resource-threshold-config": `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}}`,
}

// evicting is the strategy in the manuals' pages about eviction, with a
// threshold that any node exceeds. It does not evict pods without a priority,
// because they count as pods with the default priority of koord-batch.
const evicting = `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0, "evictEnabledPriorityThreshold": 5400}}`

// manualProfile makes the pods of the Spark operator best-effort if they are in
// namespaces with colocation.
const manualProfile = `{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, metadata: {name: colocation-profile-example}, spec: {
namespaceSelector: {matchLabels: {koordinator.sh/enable-colocation: "true"}}, selector: {matchLabels: {sparkoperator.k8s.io/launched-by-spark-operator: "true"}},
qosClass: BE, priorityClassName: koord-batch, koordinatorPriority: 1000, labels: {koordinator.sh/mutated: "true"}, annotations: {koordinator.sh/intercepted: "true"},
patch: {spec: {terminationGracePeriodSeconds: 1}}}}`

// manualPods are the pods of the manuals, reduced to metadata and resources.
var manualPods = []struct{ name, metadata, spec, resources string }{
	{"spark", `labels: {sparkoperator.k8s.io/launched-by-spark-operator: "true"}`, "", "requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 100m, memory: 64Mi}"},
	{"low", "labels: {koordinator.sh/qosClass: BE}", "priorityClassName: koord-batch,", "limits: {kubernetes.io/batch-cpu: 100, kubernetes.io/batch-memory: 32Mi}"},
	{"memory", `labels: {koordinator.sh/qosClass: LS}, annotations: {koordinator.sh/memoryQOS: '{"policy": "auto"}'}`, "", "requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}"},
	{"burst", `labels: {koordinator.sh/qosClass: LS}, annotations: {koordinator.sh/cpuBurst: '{"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300}'}`, "", "requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}"},
	{"l3", "labels: {koordinator.sh/qosClass: BE}", "", "requests: {cpu: 100m, memory: 50Mi}, limits: {cpu: 100m, memory: 128Mi}"},
	{"blkio", `labels: {koordinator.sh/qosClass: BE}, annotations: {koordinator.sh/blkioQOS: '{"blocks": [{"name": "DISK", "type": "device", "ioCfg": {"readBPS": 52428800}}]}'}`, "", "limits: {kubernetes.io/batch-cpu: 100, kubernetes.io/batch-memory: 32Mi}"},
	{"exporter", "labels: {app: exporter}", "", ""},
}

// manuals applies the ConfigMaps, the profile and the pods from the manuals of
// Koordinator and ACK, and checks what each pod gets.
func (h *chart) manuals() {
	h.t.Run("manuals", func(t *testing.T) {
		disk := aDisk()
		if disk == "" {
			t.Skip("this machine has no disk to bound")
		}
		before := h.kubectl("get", "configmap", "-n", home, "slo-controller-config", "-o", "jsonpath={.data}")
		apply := func(text string) {
			t.Helper()
			if out, err := h.c.KubectlApply(t.Context(), strings.ReplaceAll(text, "DISK", "/dev/"+disk), "apply", "-f", "-"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		set := func(data map[string]string) {
			t.Helper()
			patch, err := json.Marshal(map[string]any{"data": data})
			if err != nil {
				t.Fatal(err)
			}
			h.kubectl("patch", "configmap", "-n", home, "slo-controller-config", "--type=merge", "-p", strings.ReplaceAll(string(patch), "DISK", "/dev/"+disk))
		}
		set(manualConfig)
		h.kubectl("label", "namespace", "default", "koordinator.sh/enable-colocation=true")
		apply(manualProfile)
		time.Sleep(time.Second) // the manager reads the profile
		for _, p := range manualPods {
			apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, %s}, spec: {%s terminationGracePeriodSeconds: 1, containers: [{name: main, image: "busybox:1", command: [sleep, "10000"], resources: {%s}}]}}`,
				p.name, p.metadata, p.spec, p.resources))
		}
		for _, p := range manualPods {
			requireSoon(t, time.Minute, p.name+" runs", func() error { return phase(t, h.c, p.name, "Running") })
		}
		h.judgeManuals(t, disk)

		set(map[string]string{"resource-threshold-config": evicting})
		requireSoon(t, time.Minute, "the pods of koord-batch are evicted", func() error {
			left := h.kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "name")
			if strings.Contains(left, "pod/spark") || strings.Contains(left, "pod/low") {
				return errors.New(left)
			}
			return nil
		})
		for _, name := range []string{"exporter", "l3", "blkio", "memory", "burst", "first"} {
			if err := phase(t, h.c, name, "Running"); err != nil {
				t.Errorf("a pod that is to stay: %v", err)
			}
		}
		h.kubectl("patch", "configmap", "-n", home, "slo-controller-config", "--type=json", "-p", `[{"op": "replace", "path": "/data", "value": `+before+`}]`)
		for _, p := range manualPods {
			h.kubectl("delete", "pod", p.name, "--ignore-not-found")
		}
		h.kubectl("delete", "clustercolocationprofile", "colocation-profile-example")
		h.kubectl("label", "namespace", "default", "koordinator.sh/enable-colocation-")
	})
}

// judgeManuals checks the values that the kernel has for each pod, and prints
// them.
func (h *chart) judgeManuals(t *testing.T, disk string) {
	t.Helper()
	var table strings.Builder
	for _, p := range manualPods {
		words := h.kubectl("get", "pod", p.name, "-o", `jsonpath=class {.metadata.labels.koordinator\.sh/qosClass}, Kubernetes QoS {.status.qosClass}, priority {.spec.priority}, {.spec.containers[0].resources}`)
		fmt.Fprintf(&table, "%s: %s\n", p.name, words)
		for _, file := range []string{"cpu/cpu.idle", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_burst_us", "memory/memory.limit_in_bytes", "blkio/blkio.throttle.read_bps_device"} {
			controller, name, _ := strings.Cut(file, "/")
			pod, _ := os.ReadFile(filepath.Join(h.group(p.name, controller), name))
			fmt.Fprintf(&table, "    %s %s\n", name, strings.Join(strings.Fields(string(pod)), " "))
		}
	}
	says := h.kubectl("get", "nodereport", h.n.Name, "-o", `jsonpath={range .status.conditions[*]}{.type} {.status}: {.message}{"\n"}{end}`)
	t.Logf("what the pods of the manuals got:\n%s\nconditions of the node:\n%s", table.String(), says)
	writeRaw(t, "manuals.txt", table.String()+"\n"+says)

	number, err := os.ReadFile("/sys/block/" + disk + "/dev")
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(number))
	for _, x := range []struct{ pod, file, want string }{
		{"spark", "memory/memory.limit_in_bytes", "67108864"},
		{"l3", "memory/memory.limit_in_bytes", "134217728"},
		{"l3", "cpu/cpu.idle", "1"},
		{"exporter", "cpu/cpu.idle", "1"},
		{"memory", "cpu/cpu.idle", "0"},
		{"burst", "cpu/cpu.cfs_burst_us", "20000"},
	} {
		controller, name, _ := strings.Cut(x.file, "/")
		requireSoon(t, 30*time.Second, x.pod+" has its "+name, func() error {
			text, err := os.ReadFile(filepath.Join(h.group(x.pod, controller), name))
			if got := strings.TrimSpace(string(text)); err == nil && got != x.want {
				err = fmt.Errorf("it is %q, want %q", got, x.want)
			}
			return err
		})
	}
	// On cgroup v1, these limits have no hierarchy. So each BE pod has its part
	// of the limit of its class, or its own limit if that is lower.
	for pod, most := range map[string]int{"blkio": 52428800, "l3": 104857600} {
		requireSoon(t, 30*time.Second, pod+" has a limit of its disk", func() error {
			text, err := os.ReadFile(filepath.Join(h.group(pod, "blkio"), "blkio.throttle.read_bps_device"))
			var found string
			var limit int
			if _, scan := fmt.Sscan(string(text), &found, &limit); err == nil && (scan != nil || found != device || limit <= 0 || limit > most) {
				err = fmt.Errorf("it is %q, want at most %d of %s", text, most, device)
			}
			return err
		})
	}
	for name, want := range map[string]string{"spark": "BE 5000 100", "l3": "BE 0 100"} {
		got := h.kubectl("get", "pod", name, "-o", `jsonpath={.metadata.labels.koordinator\.sh/qosClass} {.spec.priority} {.spec.containers[0].resources.limits.kubernetes\.io/batch-cpu}`)
		if got != want {
			t.Errorf("%s has class, priority and batch-cpu %q, want %q", name, got, want)
		}
	}
}

// group returns the directory of a pod's cgroup.
func (h *chart) group(pod, controller string) string {
	class := map[string]string{"BestEffort": "kubepods/besteffort", "Burstable": "kubepods/burstable", "Guaranteed": "kubepods"}[h.kubectl("get", "pod", pod, "-o", "jsonpath={.status.qosClass}")]
	return h.n.Cgroup(controller, class+"/pod"+uid(h.t, h.c, pod))
}

// aDisk returns a block device of this machine that is neither a loop device
// nor in memory, or "" if there is none.
func aDisk() string {
	all, _ := os.ReadDir("/sys/block")
	for _, e := range all {
		if _, err := os.Stat("/sys/block/" + e.Name() + "/device"); err == nil {
			return e.Name()
		}
	}
	return ""
}
