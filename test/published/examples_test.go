package published

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
)

const examples = root + "examples/"

// A variant is an example that is made of a published one. Each change is a piece
// of the published text, and its replacement.
type variant struct {
	of, name string
	changes  []string
}

const (
	onANode = " # write the name of your node here"
	theirs  = "nodeName: cn-beijing.192.168.2.93" + onANode
	ours    = "nodeName: node-0" + onANode
)

// The share of the two CPUs is about that of the documents: 80 and 70 of 104 CPUs.
var variants = []variant{
	{"colocation/be-ffmpeg", "colocation/be-ffmpeg-default", defaultMode},
	{"colocation/be-ffmpeg", "colocation/two-cpus/be-ffmpeg-default", append(ffmpeg("25"), defaultMode...)},
	{"colocation/be-ffmpeg", "colocation/two-cpus/be-ffmpeg", ffmpeg("25")},
	{"colocation/besteffort-ffmpeg", "colocation/two-cpus/besteffort-ffmpeg", ffmpeg("30")},
	{"colocation/ls-nginx", "colocation/two-cpus/ls-nginx", []string{"worker_processes  80", "worker_processes  2", "cpu: '80'", "cpu: '1500m'", "memory: 10Gi", "memory: 1Gi", theirs, ours}},
	{"scheduling/cal-pi", "scheduling/two-cpus/cal-pi", []string{"cpu: 4", "cpu: 1"}},
	{"scheduling/go-demo", "scheduling/two-cpus/go-demo", []string{"cpu: 1\n", "cpu: 100m\n", "cpu: 4", "cpu: 1"}},
	{"scheduling/nginx", "scheduling/two-cpus/nginx", servers},
	{"scheduling/nginx-topology-aware", "scheduling/two-cpus/nginx-topology-aware", servers},
	{"concurrency/values", "concurrency/two-cpus/values", []string{"parallelism: 8", "parallelism: 2", `cpu: "4"`, `cpu: "0.5"`, "memory: 8Gi", "memory: 1Gi"}},
}

func ffmpeg(processes string) []string {
	return []string{"'" + processes + "' # processes", "'1' # processes", "batch-cpu: 70k", `batch-cpu: "1300"`, "batch-memory: 22Gi", "batch-memory: 2Gi", theirs, ours}
}

var (
	// defaultMode deletes what the document says to delete for Kubernetes' default.
	defaultMode = []string{
		"# Best-effort transcoding, with batch resources.", "# The same pod for Kubernetes' default: without the label and the batch resources.",
		"    koordinator.sh/qosClass: BE\n", "",
		"      resources:\n        limits:\n          kubernetes.io/batch-cpu: 70k\n          kubernetes.io/batch-memory: 22Gi\n        requests:\n          kubernetes.io/batch-cpu: 70k\n          kubernetes.io/batch-memory: 22Gi\n", "",
	}
	servers = []string{"cpu: 4", "cpu: 1", "memory: 8Gi", "memory: 256Mi"}
)

// TestExamplesDifferFromThePublishedInAmountsOnly makes the examples for two CPUs,
// and that for Kubernetes' default, from the published ones. The tests of the
// cluster run both.
func TestExamplesDifferFromThePublishedInAmountsOnly(t *testing.T) {
	for _, v := range variants {
		text, err := os.ReadFile(examples + v.of + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(v.changes); i += 2 {
			if !strings.Contains(string(text), v.changes[i]) {
				t.Errorf("%s has no %q", v.of, v.changes[i])
			}
		}
		want := strings.NewReplacer(v.changes...).Replace(string(text))
		file := examples + v.name + ".yaml"
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the changes make of the published file (%v): go test ./test/published -update writes it", v.name, err)
		}
	}
	small, err := filepath.Glob(examples + "*/two-cpus/*.yaml")
	if err != nil || len(small) != len(variants)-1 {
		t.Errorf("%d examples for two CPUs, want %d (%v)", len(small), len(variants)-1, err)
	}
}

// TestTheConfigMapOfTheThirdModeHasAllFeatures reads the example as tenond does.
func TestTheConfigMapOfTheThirdModeHasAllFeatures(t *testing.T) {
	text, err := os.ReadFile(examples + "colocation/slo-controller-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	c, faults := config.ParseConfigMap(object.Data)
	if len(faults) > 0 || !c.Colocates() {
		t.Fatalf("faults %v; batch resources: %v", faults, c.Colocates())
	}
	n, faults := c.Node(nil, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	p := n.Policy
	if !p.CPUQOS.Enable || !p.Suppress.Enable || p.Suppress.ThresholdPercent != 65 || p.Suppress.Policy != suppress.ByCPUSet {
		t.Errorf("CPU QoS %+v, CPU suppress %+v", p.CPUQOS, p.Suppress)
	}
	if be := p.Cache.Classes[node.BE]; be.End != 30 || be.Bandwidth != 100 {
		t.Errorf("BE has %+v of the L3 cache and of the memory bandwidth, want the default, 0 to 30 %% and 100 %%", be)
	}
	if o := p.Overcommit; !o.Enable || o.CPU.ThresholdPercent != 60 || o.Memory.ThresholdPercent != 65 {
		t.Errorf("batch resources %+v", o)
	}
}
