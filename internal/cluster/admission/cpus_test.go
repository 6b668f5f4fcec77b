package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	ledger "tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// emptyNode returns an empty node of 16 cores with two threads each, two NUMA
// nodes, and two L3 caches in each of them.
func emptyNode() *ledger.View {
	var t node.Topology
	for c := range 32 {
		core := c % 16
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(core), L3: node.CacheID(core / 4), NUMA: node.NUMANode(core / 8), Socket: node.SocketID(core / 8)})
	}
	l := ledger.New()
	l.Learn("n", ledger.Report{Topology: t, Keep: 1})
	return l.View("n")
}

// whatItGets returns what a pod gets on an empty node: "exclusive, 2 CPUs", "exclusive,
// 4 CPUs on 2 whole cores" if it may have no others, or "pool of one L3 cache". It returns "nothing" if the pod demands no CPUs, and "refused"
// if the webhook refuses the pod. A warning follows after a colon.
func whatItGets(t *testing.T, text string) string {
	t.Helper()
	var sent corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &sent); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	p, v := admit(Request{Pod: &sent, Scheduler: "tenon-scheduler"})
	if !v.Allowed() {
		return "refused"
	}
	d, demands, _ := kube.DemandOf(p)
	if name := p.Spec.SchedulerName; (name == "tenon-scheduler") != demands {
		t.Errorf("%s: the scheduler is %q", p.Name, name)
	}
	if !demands {
		return "nothing"
	}
	c, o, why := emptyNode().Offer(&d)
	switch {
	case why != cpus.Fits:
		return why.Text()
	case d.Policy == cpus.Pool:
		return fmt.Sprintf("pool of one %v", o.Level)
	}
	if len(d.Containers) > 1 {
		for _, k := range d.Containers {
			if c.Containers[k.Name].Len() != k.CPUs {
				t.Errorf("%s: container %s demands %d CPUs and has %v", p.Name, k.Name, k.CPUs, c.Containers[k.Name])
			}
		}
	}
	got := fmt.Sprintf("%v, %d CPUs", d.Policy, o.CPUs.Len())
	if d.Bind == cpus.OnlyWhole {
		got += fmt.Sprintf(" on %d whole cores", wholeCores(o.CPUs))
	}
	return strings.Join(append([]string{got}, v.Texts()...), ": ")
}

// wholeCores returns the number of cores of emptyNode of which a set has both threads.
func wholeCores(set unit.CPUSet) (n int) {
	for core := range unit.CPU(16) {
		if set.Has(core) && set.Has(core+16) {
			n++
		}
	}
	return n
}

// TestThePageOfCPUsSaysWhatPodsGet compares the manifests of examples/cpus with
// the table of docs/cpus.md that lists the CPUs of each pod. The page shows one of
// the manifests, and one for a node of two CPUs is not in the table.
func TestThePageOfCPUsSaysWhatPodsGet(t *testing.T) {
	text := readPage(t, "cpus")
	said := map[string]string{"own": "exclusive, 1 CPUs"}
	for _, m := range regexp.MustCompile("(?m)\\| `(\\w+)`: ([^|]+) \\|$").FindAllStringSubmatch(text, -1) {
		said[m[1]] = m[2]
	}
	files, err := filepath.Glob("../../../examples/cpus/*.yaml")
	if err != nil || len(files) != len(said) {
		t.Errorf("%d manifests (%v), and the table has %v", len(files), err, said)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if got := whatItGets(t, string(manifest)); got != said[name] {
			t.Errorf("the pod %s gets %q, and the table says %q", name, got, said[name])
		}
		if name != "cores" {
			continue
		}
		if !strings.Contains(text, "```yaml\n"+string(manifest)+"```\n") {
			t.Errorf("docs/cpus.md shows another manifest of %s than %s", name, file)
		}
		const never = "no room for own CPUs: the number is not a number of whole cores"
		if got := whatItGets(t, strings.Replace(string(manifest), `cpu: "4"`, `cpu: "3"`, 1)); got != never {
			t.Errorf("with three CPUs the pod gets %q, want %q", got, never)
		}
	}
}

// TestTheProfileOfTheMigrationGivesOwnCPUs applies the profile of docs/migrate.md
// to a pod that it selects. Then the pod must own its CPUs.
func TestTheProfileOfTheMigrationGivesOwnCPUs(t *testing.T) {
	manifest := firstYAML(t, "migrate")
	var profile configv1alpha1.ClusterColocationProfile
	if err := yaml.UnmarshalStrict([]byte(manifest), &profile); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	if v := ValidateProfile(&profile, map[string]schedulingv1.PriorityClass{}); !v.Allowed() || len(v.Warnings) > 0 {
		t.Errorf("refusals %q, warnings %q of the profile", v.Message(), v.Warnings)
	}
	sent := pod(t, "app: db", "", "requests: {cpu: 2}")
	p, v := admit(Request{Pod: sent, Namespace: &corev1.Namespace{}, Profiles: []configv1alpha1.ClusterColocationProfile{profile}})
	if d, demands, _ := kube.DemandOf(p); !v.Allowed() || !demands || d.Policy != cpus.Exclusive || d.CPUs != 2 {
		t.Errorf("with the profile the pod demands %+v; %s", d, v.Message())
	}
}

// TestSidecarsCountForTheCPUsOfAPod checks what docs/cpus-rules.md says about
// init containers, sidecars and containers without a limit. A pod that would
// have own CPUs without the CPU request of one of these is admitted with a
// warning.
func TestSidecarsCountForTheCPUsOfAPod(t *testing.T) {
	const lsr, ack = "{labels: {koordinator.sh/qosClass: LSR}}", `{annotations: {cpuset-scheduler: "true"}}`
	const four = "{name: c, resources: {requests: {cpu: 4}, limits: {cpu: 4}}}"
	seats := func(by string) string {
		return "shared, 4 CPUs: metadata.annotations[cpuset-scheduler]: the CPU request of " + by + " turns 4 own CPUs into seats, which others may share: leave it out, or write class LSR and request whole CPUs"
	}
	for name, tc := range map[string]struct{ meta, init, containers, want string }{
		"LSR without a limit":                               {lsr, "", "{name: c, resources: {requests: {cpu: 4}}}", "exclusive, 4 CPUs"},
		"LSR with a sidecar of one CPU":                     {lsr, "{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}", four, "exclusive, 5 CPUs"},
		"LSR with a sidecar of 100m":                        {lsr, "{name: s, restartPolicy: Always, resources: {requests: {cpu: 100m}}}", four, "refused"},
		"LSR with a larger init container":                  {lsr, "{name: i, resources: {requests: {cpu: 6}}}", four, "exclusive, 6 CPUs"},
		"LSR of a fraction, and ConstrainedBurst":           {`{labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "ConstrainedBurst"}'}}`, "", "{name: c, resources: {requests: {cpu: 1500m}}}", "refused"},
		"ACK with a sidecar without a request":              {ack, "{name: s, restartPolicy: Always}", four, "exclusive, 4 CPUs"},
		"ACK with a sidecar of 100m":                        {ack, "{name: s, restartPolicy: Always, resources: {requests: {cpu: 100m}}}", four, seats(`sidecar "s"`)},
		"ACK with a sidecar of one CPU":                     {ack, "{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}", four, seats(`sidecar "s"`)},
		"ACK with a smaller init container":                 {ack, "{name: i, resources: {requests: {cpu: 1}}}", four, "exclusive, 4 CPUs"},
		"ACK with a larger init container":                  {ack, "{name: i, resources: {requests: {cpu: 6}}}", four, seats(`init container "i"`)},
		"ACK with a container without a limit":              {ack, "", four + ", {name: d}", "exclusive, 4 CPUs"},
		"ACK with a request without a limit":                {ack, "", four + ", {name: d, resources: {requests: {cpu: 100m}}}", seats(`container "d"`)},
		"ACK with a sidecar, and a request below the limit": {ack, "{name: s, restartPolicy: Always, resources: {requests: {cpu: 100m}}}", "{name: c, resources: {requests: {cpu: 2}, limits: {cpu: 4}}}", "shared, 4 CPUs"},
		"ACK with half a CPU as limit":                      {ack, "", "{name: c, resources: {limits: {cpu: 1500m}}}", "refused"},
		"ACK in parts":                                      {ack, "", four + ", {name: d, resources: {limits: {cpu: 2}}}", "exclusive, 6 CPUs"},
	} {
		if got := whatItGets(t, fmt.Sprintf("{metadata: %s, spec: {initContainers: [%s], containers: [%s]}}", tc.meta, tc.init, tc.containers)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
