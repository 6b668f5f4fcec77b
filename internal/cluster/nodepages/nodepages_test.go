package nodepages

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	nodeText = `
metadata: {name: node-1}
status:
  capacity: {cpu: "16", memory: 32Gi}
  allocatable: {cpu: "16", memory: 32Gi, kubernetes.io/batch-cpu: "7200", kubernetes.io/batch-memory: 8Gi}
`
	reportText = `
metadata: {name: node-1}
status:
  reported: "2026-03-01T11:59:56.000000Z"
  agent: v1
  usage: {cpu: 2400m, memory: 8Gi}
  pods: {LS: 2, BE: 3, Unmanaged: 1}
  isolation: cpu.idle
  batch:
    cpu:
      amount: 7200m
      policy: usage
      over: 5m0s
      formula: 7500m
      held: more is promised every 1m0s
      requested: "3"
      terms:
      - {name: capacity, amount: 9600m, text: 60% of 16000m}
      - {name: node, amount: -400m, text: used by the system}
      - {name: LS, amount: "-2", text: used by LS}
    memory:
      amount: 8Gi
      policy: request
      formula: 8Gi
      terms:
      - {name: capacity, amount: 21299Mi, text: 65% of 32Gi}
      - {name: node, amount: -4915Mi, text: used by the system}
      - {name: LS, amount: -8Gi, text: requested by LS}
  trials:
    kept: cpu.idle
    since: "2026-03-01T10:00:00Z"
    why: "siblings was tried: no gain"
    results:
    - {candidate: cpu.idle, finding: kept, why: the services wait less with it, ended: "2026-03-01T10:00:00Z", pairs: 32, without: 20µs,
       with: 15.5µs, ratio: 775, low: 690, high: 860, services: [{name: web, pairs: 32, without: 1m12s, with: 55.8s}], more: 1}
    - {candidate: siblings, against: cpu.idle, finding: no gain, why: it does not save a tenth of the waiting, ended: "2026-03-01T10:10:00Z",
       pairs: 32, without: 15.6µs, with: 15.6µs, ratio: 1003, low: 930, high: 1080}
  cpus:
    caches: [{socket: 0, numa: 0, l3: 0, cpus: 0-7}, {socket: 0, numa: 0, l3: 1, cpus: 8-15}]
    reserved: "7"
    keep: 1
    pods:
    - {uid: a, policy: exclusive, cpus: 0-3}
    - {uid: b, policy: exclusive, cpus: 8-9}
    - {uid: c, policy: shared, cpus: 4-5, domain: 0-7, request: 500}
    - {uid: d, policy: pool, cpus: 10-15, domain: 8-15, request: 4000}
    - {uid: e, why: none can be granted}
  published: {cpu: 7200m, memory: 8Gi, at: "2026-03-01T11:59:30.000000Z", reason: as the agent reports}
  means:
  - {feature: cpuQOS, by: cpu.idle}
  - {feature: memoryQOS, why: cgroup v1 has no memory.min}
  conditions:
  - {type: ConfigAccepted, status: "True", reason: AsAsked}
  - {type: MemoryQOS, status: "False", reason: Unsupported, message: cgroup v1 has no memory.min}
  - {type: Suppressing, status: "False", reason: Nothing, message: there is no best-effort work}
`
)

func scene(t *testing.T) []Node {
	t.Helper()
	var n corev1.Node
	var r v1alpha1.NodeReport
	for text, v := range map[string]any{nodeText: &n, reportText: &r} {
		if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
			t.Fatal(err)
		}
	}
	other := *n.DeepCopy()
	other.Name = "node-0"
	other.Status.Allocatable = nil
	return Nodes([]corev1.Node{n, other}, []v1alpha1.NodeReport{r})
}

func alike(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// checkShown checks that docs/operate.md or docs/troubleshoot.md contains a text.
func checkShown(t *testing.T, text string) {
	t.Helper()
	var pages string
	for _, name := range []string{"operate", "troubleshoot"} {
		page, err := os.ReadFile("../../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		pages += string(page)
	}
	if !strings.Contains(pages, text) {
		t.Errorf("neither docs/operate.md nor docs/troubleshoot.md shows this text:\n%s", text)
	}
}

func TestANodesPromiseIsExplainedTermByTerm(t *testing.T) {
	checkShown(t, Explain(scene(t)[1], noon))
	alike(t, Explain(scene(t)[1], noon), `
node-1, as reported 4s ago by tenond v1

batch-cpu 7200m: what batch work may count on, by usage over 5m0s
         9600m  60% of 16000m
  -       400m  used by the system
  -      2000m  used by LS
  =      7200m
  now     the formula gives 7500m: more is promised every 1m0s
  pods    3000m requested by running pods

batch-memory 8192Mi: what batch work may count on, by request
       21299Mi  65% of 32Gi
  -     4915Mi  used by the system
  -     8192Mi  requested by LS
  =     8192Mi

The scheduler sees batch-cpu 7200m, batch-memory 8192Mi, written 30s ago: as the agent reports

CPUs for pods: 9 of 16 CPUs open (1 must stay open), 1 reserved; 6 owned by 2 pods, seats of 1 pod, 1 pool
  bound by  tenond: the kubelet (cpuManagerPolicy: static) and DRA drivers bind none, as far as tenond can see
  refused   1 pod asks for CPUs and has none: kubectl tenon explain pod says why
  see       kubectl tenon map node-1

Isolation by trials: cpu.idle, which a trial kept, for 2h0m (siblings was tried: no gain)
  TRIED     AGAINST    FOUND    PAIRS  WAIT WITHOUT  WAIT WITH  RATIO                ENDED
  cpu.idle  the floor  kept     32     20µs          15.5µs     0.78 (0.69 to 0.86)  2h0m ago
  siblings  cpu.idle   no gain  32     15.6µs        15.6µs     1.00 (0.93 to 1.08)  1h50m ago
  cpu.idle: kept, because the services wait less with it
    web: cpu.idle saves 16.2s of waiting for a CPU an hour (55.8s instead of 1m12s)
    and 1 more
  siblings: no gain, because it does not save a tenth of the waiting
`)
}

func TestANodeWithoutAReportSaysWhatToLookAt(t *testing.T) {
	alike(t, Explain(scene(t)[0], noon), `
node-0 has no report, so batch work is promised nothing there: does tenond run on it? (kubectl -n tenon-system get pods -o wide)
`)
}

func TestWhatIsHeldForPodsIsSaid(t *testing.T) {
	n := scene(t)[1]
	n.Report.Status.Batch.CPU.Requested.Set(8)
	if text, want := Explain(n, noon), "\n  pods    8000m requested by running pods: what is published does not fall below that while they run\n"; !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
}

func TestWhatDoesNotAddUpIsSaid(t *testing.T) {
	n := scene(t)[1]
	n.Report.Status.Batch.CPU.Terms = n.Report.Status.Batch.CPU.Terms[:2]
	n.Report.Status.Published.CPU.Set(5)
	text := Explain(n, noon.Add(time.Hour))
	for _, want := range []string{"wrong   the terms add up to 9200m", "another component also writes the status of this node", "the agent is silent"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// diagnose returns the text of doctor, and whether there are no problems.
func diagnose(nodes []Node, profiles []configv1alpha1.ClusterColocationProfile, others []string, now time.Time) (string, bool) {
	d := Doctor(nodes, profiles, others, now)
	return d.Text(), d.Healthy
}

// TestTopCountsMissedObjectives checks that only missed objectives are trouble.
func TestTopCountsMissedObjectives(t *testing.T) {
	nodes := scene(t)
	for i, want := range []string{"", "1 objective missed", "2 objectives missed"} {
		o := &v1alpha1.Objectives{Services: []v1alpha1.ServiceObjective{{State: v1alpha1.ObjectiveKept}, {State: v1alpha1.ObjectiveUndecided}}}
		for range i {
			o.Services = append(o.Services, v1alpha1.ServiceObjective{State: v1alpha1.ObjectiveMissed})
		}
		nodes[1].Report.Status.Objectives = o
		if text := Top(nodes, noon); strings.Contains(text, "missed") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%d are missed:\n%s", i, text)
		}
	}
}

func TestTopHasALineForEachNode(t *testing.T) {
	checkShown(t, Top(scene(t), noon))
	alike(t, Top(scene(t), noon), `
NODE    CPU    CPU%  MEMORY  MEMORY%  BATCH-CPU  BATCH-MEMORY  PODS                     ISOLATION  REPORTED  TROUBLE
node-0  -      -     -       -        -          -             -                        -          -         no report
node-1  2400m  15%   8192Mi  25%      7200m      8192Mi        2 LS, 3 BE, 1 unmanaged  cpu.idle   4s        MemoryQOS, 1 pod asks for CPUs and has none
`)
}

func TestDoctorSaysWhereAFeatureIsNotDoneAndWhy(t *testing.T) {
	text, healthy := diagnose(scene(t), nil, nil, noon)
	checkShown(t, text)
	alike(t, text, `
2 nodes, 1 with a report
  no report: node-0 (kubectl -n tenon-system get pods -o wide)

How each feature works
  cpuQOS       cpu.idle: node-1
  cpus         tenond binds CPUs: node-1
  memoryQOS    not done: cgroup v1 has no memory.min: node-1

Problems
  node-1: MemoryQOS: Unsupported: cgroup v1 has no memory.min
`)
	if healthy {
		t.Error("the result is healthy")
	}
}

func TestDoctorIsContentWithNodesThatDoWhatIsAsked(t *testing.T) {
	n := scene(t)[1:]
	n[0].Report.Status.Conditions = n[0].Report.Status.Conditions[:1]
	if text, healthy := diagnose(n, nil, nil, noon); !healthy || strings.Contains(text, "wrong") {
		t.Errorf("healthy %v:\n%s", healthy, text)
	}
	if text, healthy := diagnose(n, nil, nil, noon.Add(time.Hour)); healthy || !strings.Contains(text, "silent for 1h0m") {
		t.Errorf("an hour later: healthy %v:\n%s", healthy, text)
	}
}

func TestTrialsOfAllNodesAreAddedUp(t *testing.T) {
	nodes := scene(t)
	for i, kept := range []string{"cpu.idle", "", ""} {
		n := nodes[1]
		n.Node, n.Report = n.DeepCopy(), n.Report.DeepCopy()
		n.Name = fmt.Sprintf("node-%d", 2+i)
		found := n.Report.Status.Trials
		if found.Kept = kept; kept == "" {
			found.Results = found.Results[:1]
			r := &found.Results[0]
			r.Finding, r.Ratio, r.Low, r.High = "worse", 1250, 1100, 1400
		}
		if i == 2 {
			found.Results, found.Why = nil, "no best-effort work runs"
		}
		nodes = append(nodes, n)
	}
	alike(t, Isolation(nodes, noon), `
NODE    IN USE    SINCE  TRIED     FOUND    PAIRS  WAIT WITHOUT  WAIT WITH  RATIO
node-1  cpu.idle  2h0m   cpu.idle  kept     32     20µs          15.5µs     0.78 (0.69 to 0.86)
node-1  cpu.idle  2h0m   siblings  no gain  32     15.6µs        15.6µs     1.00 (0.93 to 1.08)
node-2  cpu.idle  2h0m   cpu.idle  kept     32     20µs          15.5µs     0.78 (0.69 to 0.86)
node-2  cpu.idle  2h0m   siblings  no gain  32     15.6µs        15.6µs     1.00 (0.93 to 1.08)
node-3  cpu.idle  2h0m   cpu.idle  worse    32     20µs          15.5µs     1.25 (1.10 to 1.40)
node-4  cpu.idle  2h0m   -         -        -      -             -          -

Together
  cpu.idle: kept on 2, worse on 1; where it is in use, saves 32.4s of waiting for a CPU an hour (1m51.6s instead of 2m24s); 2 more services are not counted
  siblings: no gain on 2

Without a result
  node-0: no report of trials
  node-4: no trial yet: no best-effort work runs
`)
}

func TestANodeThatReportsNoTrialsIsNamed(t *testing.T) {
	n := scene(t)[1]
	n.Report.Status.Trials = nil
	if text := Explain(n, noon); strings.Contains(text, "trials") {
		t.Errorf("trials in\n%s", text)
	}
	if text, want := Isolation([]Node{n}, noon), "node-1: no report of trials"; !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
}

func TestDoctorNamesAFightOverKnobs(t *testing.T) {
	n := scene(t)[1:]
	n[0].Report.Status.Conditions = []metav1.Condition{{Type: "KnobsWritten", Status: metav1.ConditionTrue, Reason: "Contested", Message: "another program wrote kubepods cpu.max"}}
	if text, healthy := diagnose(n, nil, nil, noon); healthy || !strings.Contains(text, "node-1: KnobsWritten: Contested: another program wrote") {
		t.Errorf("healthy %v:\n%s", healthy, text)
	}
}

func TestDoctorNamesPodsThatAProfileMissed(t *testing.T) {
	n := scene(t)[1:]
	n[0].Report.Status.Conditions = nil
	var missed, fine configv1alpha1.ClusterColocationProfile
	missed.Name, fine.Name = "spark", "web"
	missed.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionFalse, Reason: "PodsMissed", Message: "default/job runs without it"}}
	fine.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, Reason: "NoPodMissed"}}
	text, healthy := diagnose(n, []configv1alpha1.ClusterColocationProfile{fine, missed}, nil, noon)
	const want = "\nProblems\n  ClusterColocationProfile spark: Applied: PodsMissed: default/job runs without it\n"
	if healthy || !strings.HasSuffix(text, want) {
		t.Errorf("healthy %v, want %q at the end of\n%s", healthy, want, text)
	}
}

// TestAKubeletThatBindsCPUsIsNamed checks nodes where another component binds
// containers to CPUs.
func TestAKubeletThatBindsCPUsIsNamed(t *testing.T) {
	for manager, by := range map[string]string{"static": "the kubelet's static CPU manager", "dra": "a DRA driver", "other": "other"} {
		n := scene(t)[1:]
		n[0].Report.Status.CPUs.Manager = manager
		n[0].Report.Status.Conditions = nil
		text, healthy := diagnose(n, nil, nil, noon)
		if want := "  cpus         not done: " + by + " binds CPUs, so tenon-scheduler gives the node no pod that asks for CPUs: node-1\n"; !healthy || !strings.Contains(text, want) {
			t.Errorf("healthy %v, want %q in\n%s", healthy, want, text)
		}
		if text, want := Top(n, noon), "CPUs bound by "+by; !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
		if text, want := Explain(n[0], noon), "  bound by  "+by+": tenon-scheduler gives the node no pod that asks for CPUs, and such pods act as LS here\n"; !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	n := scene(t)[1]
	n.Report.Status.CPUs = nil
	if text, want := Explain(n, noon), "\nCPUs for pods: the agent reports none, so no pod gets CPUs of its own there\n"; !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
}

// TestANodeWhoseCPUsAreAllReservedIsNamed reserves all CPUs of a node by
// different means.
func TestANodeWhoseCPUsAreAllReservedIsNamed(t *testing.T) {
	const (
		start  = "no CPU is left for pods that ask for CPUs: all 16 are reserved, by "
		others = "the kubelet (reservedSystemCPUs), the file of tenond (cpus), the kernel (isolcpus) or work outside pods"
	)
	for name, x := range map[string]struct{ annotation, reserved, allocatable, want string }{
		"by the annotation":                  {`{"reservedCPUs": "0-31"}`, "0-15", "16", start + "the annotation node.koordinator.sh/reservation"},
		"by the annotation and something":    {`{"reservedCPUs": "0-3"}`, "0-15", "16", start + "the annotation node.koordinator.sh/reservation (0-3), and for the others " + others},
		"by something":                       {"", "0-15", "16", start + others},
		"by something beside a wrong text":   {"x", "0-15", "16", start + others},
		"all but one":                        {`{"reservedCPUs": "0-14"}`, "0-14", "16", ""},
		"by the kubelet":                     {"", "", "0", "no CPU is left for pods: the kubelet reserves all 16 (reservedSystemCPUs, systemReserved or kubeReserved)"},
		"a node that has said nothing of it": {"", "", "", ""},
	} {
		nodes := scene(t)
		n := &nodes[1]
		n.Annotations = map[string]string{annotationReservation: x.annotation}
		n.Report.Status.CPUs.Reserved = x.reserved
		delete(n.Status.Allocatable, corev1.ResourceCPU)
		if x.allocatable != "" {
			n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(x.allocatable)
		}
		text, healthy := diagnose(nodes, nil, nil, noon)
		if has := strings.Contains(text, "  node-1: "+x.want+"\n"); x.want != "" && (healthy || !has) || x.want == "" && strings.Contains(text, "no CPU is left") {
			t.Errorf("%s: healthy %v; want %q in\n%s", name, healthy, x.want, text)
		}
		if text := Top(nodes, noon); strings.Contains(text, "all CPUs reserved") != (x.want != "") {
			t.Errorf("%s: want its trouble in\n%s", name, text)
		}
		if text := Explain(*n, noon); strings.Contains(text, "must stay open") == (x.reserved == "0-15") {
			t.Errorf("%s: a CPU must stay open only where one can be open:\n%s", name, text)
		}
		if text := Explain(*n, noon); x.want != "" && !strings.Contains(text, "  fault     "+x.want+"\n") || x.want == "" && strings.Contains(text, "fault") {
			t.Errorf("%s: want %q in\n%s", name, x.want, text)
		}
	}
}

func TestDoctorPrintsTheProblemsOfItsCaller(t *testing.T) {
	n := scene(t)[1:]
	n[0].Report.Status.Conditions = nil
	if text, healthy := diagnose(n, nil, []string{"2 pods wait"}, noon); healthy || !strings.HasSuffix(text, "\nProblems\n  2 pods wait\n") {
		t.Errorf("healthy %v:\n%s", healthy, text)
	}
}

// TestDoctorNamesASettingThatIsNotMeant gives a healthy node a setting that
// counts, but that is probably not meant.
func TestDoctorNamesASettingThatIsNotMeant(t *testing.T) {
	n := scene(t)[1:2]
	for reason, want := range map[string]bool{v1alpha1.ReasonUnlikely: true, "Partly": false} {
		n[0].Report.Status.Conditions = []metav1.Condition{{Type: "ConfigAccepted", Status: metav1.ConditionTrue, Reason: reason, Message: "ConfigMap a/b: x: 250 counts"}}
		text, healthy := diagnose(n, nil, nil, noon)
		if healthy == want || strings.Contains(text, "ConfigAccepted: Unlikely: ConfigMap a/b: x: 250 counts") != want {
			t.Errorf("%s: healthy %v:\n%s", reason, healthy, text)
		}
	}
}

// TestPodsWithoutTheCPUsThatTheyAskForAreNamed checks pods with equal reasons on
// two nodes, a pod that is not known, and a reader who may not list pods.
func TestPodsWithoutTheCPUsThatTheyAskForAreNamed(t *testing.T) {
	nodes := scene(t)
	nodes[0].Report = nodes[1].Report.DeepCopy()
	nodes[0].Report.Status.CPUs.Pods = []v1alpha1.PodCPUs{{UID: "d", Pod: "shop/d", Why: "requests 4 CPUs of its own"}}
	nodes[1].Report.Status.CPUs.Pods = []v1alpha1.PodCPUs{
		{UID: "e", Pod: "shop/e", Why: "requests 4 CPUs of its own"}, {UID: "f", Pod: "shop/f", Why: "is in a cgroup without the cpuset controller"}, {UID: "h", Why: "has no pool"},
	}
	for name, x := range map[string]struct {
		names map[string]string
		want  string
	}{
		"with names": {map[string]string{"d": "shop/d", "e": "shop/e", "f": "shop/f"}, `
node-0, node-1: shop/d, shop/e ask for CPUs and have none: each requests 4 CPUs of its own
node-1: shop/f asks for CPUs and has none: it is in a cgroup without the cpuset controller
node-1: the pod with UID h asks for CPUs and has none: it has no pool
`},
		"without names": {nil, `
node-0, node-1: 2 pods ask for CPUs and have none: each requests 4 CPUs of its own
node-1: 1 pod asks for CPUs and has none: it has no pool
node-1: 1 pod asks for CPUs and has none: it is in a cgroup without the cpuset controller
`},
	} {
		t.Run(name, func(t *testing.T) { alike(t, strings.Join(Refused(nodes, x.names), "\n")+"\n", x.want) })
	}
	if !HasRefused(nodes) || HasRefused([]Node{{}}) {
		t.Error("whether a node has such pods is wrong")
	}
}
