package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func amounts(request, limit unit.MilliCPU, memory, most unit.Bytes) Amounts {
	var a Amounts
	if request >= 0 {
		a.CPURequest = node.Some(request)
	}
	if limit >= 0 {
		a.CPULimit = node.Some(limit)
	}
	if memory >= 0 {
		a.MemoryRequest = node.Some(memory)
	}
	if most >= 0 {
		a.MemoryLimit = node.Some(most)
	}
	return a
}

func TestBatchResourcesByAllTheirNames(t *testing.T) {
	const gi = 1 << 30
	for name, c := range map[string]struct {
		limits string
		want   Amounts
	}{
		"today":              {"kubernetes.io/batch-cpu=1500 kubernetes.io/batch-memory=1Gi", amounts(1500, 1500, gi, gi)},
		"1k is one CPU":      {"kubernetes.io/batch-cpu=1k", amounts(1000, 1000, -1, -1)},
		"before 1.0":         {"koordinator.sh/batch-cpu=1500 koordinator.sh/batch-memory=1Gi", amounts(1500, 1500, gi, gi)},
		"old ACK":            {"alibabacloud.com/reclaimed-cpu=1500 alibabacloud.com/reclaimed-memory=1Gi", amounts(1500, 1500, gi, gi)},
		"older ACK":          {"alibabacloud.com/reclaimed=1500", amounts(1500, 1500, -1, -1)},
		"today goes first":   {"kubernetes.io/batch-cpu=1 koordinator.sh/batch-cpu=2", amounts(1, 1, -1, -1)},
		"mid is not batch":   {"kubernetes.io/mid-cpu=1500", amounts(-1, -1, -1, -1)},
		"native is not, too": {"cpu=1 memory=1Gi", amounts(-1, -1, -1, -1)},
		"below 0 is nothing": {"kubernetes.io/batch-cpu=-5", amounts(-1, -1, -1, -1)},
	} {
		p := pod("p", container("c", "", c.limits))
		if diff := cmp.Diff(c.want, Batch(&p), exact); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestMidResourcesAreWhatAServiceCountsOn(t *testing.T) {
	p := pod("p", label(LabelQOSClass, "LS"), priority(7500), container("c", "", "mid-cpu=1500 mid-memory=1Gi"))
	if diff := cmp.Diff(amounts(1500, 1500, 1<<30, 1<<30), Mid(&p), exact); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if w := onePod(t, p); w.CPURequest != node.Some(unit.MilliCPU(1500)) || w.CPULimit.Known() {
		t.Errorf("request %v, limit %v: want no limit", w.CPURequest, w.CPULimit)
	}
}

// TestBEOfTheMiddlePriorityDoesNotGiveWay checks a BE pod with the priority
// koord-mid. Its mid resources stay its requests, unless it has batch
// resources.
func TestBEOfTheMiddlePriorityDoesNotGiveWay(t *testing.T) {
	be := label(LabelQOSClass, "BE")
	if w := onePod(t, pod("p", be, priority(7999), container("c", "", "mid-cpu=1500 mid-memory=1Gi"))); !w.Mid || w.CPURequest != node.Some(unit.MilliCPU(1500)) {
		t.Errorf("mid resources: mid %v, request %v", w.Mid, w.CPURequest)
	}
	if w := onePod(t, pod("p", be, priority(7999), container("c", "", "batch-cpu=1500"))); w.Mid {
		t.Error("a pod with batch resources does not give way")
	}
	if w := onePod(t, pod("p", label(LabelQOSClass, "LS"), priority(7999), container("c", "", "cpu=1"))); w.Mid {
		t.Error("a service counts as BE")
	}
}

// The expected values are what the kubelet computes for the same pods:
// PodRequests and PodLimits of k8s.io/component-helpers/resource, and
// ResourceConfigForPod.
func TestAmountsAreCountedAsTheKubeletDoes(t *testing.T) {
	const mi = 1 << 20
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want Amounts
	}{
		"the containers together": {
			pod("p", container("a", "cpu=100m memory=10Mi", "cpu=1 memory=20Mi"), container("b", "cpu=200m memory=10Mi", "cpu=2 memory=20Mi")),
			amounts(300, 3000, 20*mi, 40*mi),
		},
		"one container without a limit": {
			pod("p", container("a", "cpu=100m memory=10Mi", "cpu=1 memory=20Mi"), container("b", "cpu=200m memory=10Mi", "memory=20Mi")),
			amounts(300, -1, 20*mi, 40*mi),
		},
		"a large init container": {
			pod("p", initContainer("i", "cpu=2 memory=5Mi", "cpu=4 memory=5Mi", false), container("a", "cpu=100m memory=10Mi", "cpu=1 memory=20Mi")),
			amounts(2000, 4000, 10*mi, 20*mi),
		},
		"an init container without a limit": {
			pod("p", initContainer("i", "", "", false), container("a", "cpu=100m memory=10Mi", "cpu=1 memory=20Mi")),
			amounts(100, -1, 10*mi, -1),
		},
		"a sidecar runs beside all": {
			pod("p", initContainer("s", "cpu=500m", "cpu=500m", true), initContainer("i", "cpu=1", "cpu=1", false), container("a", "cpu=700m", "cpu=700m")),
			amounts(1500, 1500, -1, -1),
		},
		"a sidecar after an init container": {
			pod("p", initContainer("i", "cpu=1", "cpu=1", false), initContainer("s", "cpu=500m", "cpu=500m", true), container("a", "cpu=700m", "cpu=700m")),
			amounts(1200, 1200, -1, -1),
		},
		"the overhead of the runtime": {
			pod("p", container("a", "cpu=100m memory=10Mi", "cpu=1"), overhead("cpu=50m memory=6Mi")),
			amounts(150, 1050, 16*mi, -1),
		},
		"a limit is a request": {
			pod("p", container("a", "", "cpu=1 memory=10Mi")), amounts(1000, 1000, 10*mi, 10*mi),
		},
		"of the pod as a whole": {
			pod("p", container("a", "cpu=100m", ""), func(p *corev1.Pod) {
				p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu=1"), Limits: list("cpu=2 memory=10Mi")}
			}), amounts(1000, 2000, 10*mi, 10*mi),
		},
		"nothing": {pod("p", container("a", "", "")), Amounts{}},
	} {
		if diff := cmp.Diff(c.want, Native(&c.pod), exact); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestOverheadOfABatchPodCounts(t *testing.T) {
	p := pod("p", be, container("a", "", "batch-cpu=1k batch-memory=1Gi"), overhead("cpu=100m memory=1Mi"))
	if diff := cmp.Diff(amounts(1100, 1100, 1<<30+1<<20, 1<<30+1<<20), Batch(&p), exact); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// If a container has no limit, the pod has none, even if it has an
	// overhead.
	p = pod("p", be, container("a", "", ""), overhead("cpu=100m memory=1Mi"))
	if got := Batch(&p); got != (Amounts{}) {
		t.Errorf("a pod that asks for no batch resources: %+v", got)
	}
}

// The expected values are what the kubelet computes for the same pods:
// PodRequests of k8s.io/component-helpers/resource.
func TestWhatThePodRequestsIsWhatTheKubeletAdmitsItBy(t *testing.T) {
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want [2]int64
	}{
		"containers together, of any class": {pod("p", container("a", "", "batch-cpu=1k batch-memory=10"), container("b", "batch-cpu=500", "batch-cpu=500")), [2]int64{1500, 10}},
		"a large init container":            {pod("p", initContainer("i", "", "batch-cpu=2k", false), container("a", "", "batch-cpu=1k")), [2]int64{2000, 0}},
		"a sidecar beside all":              {pod("p", initContainer("s", "", "batch-cpu=500", true), initContainer("i", "", "batch-cpu=1k", false), container("a", "", "batch-cpu=700")), [2]int64{1500, 0}},
		"overhead has names of its own":     {pod("p", container("a", "", "batch-cpu=1k"), overhead("cpu=100m memory=1Mi")), [2]int64{1000, 0}},
		"overhead of batch resources":       {pod("p", container("a", "", "batch-cpu=1k"), overhead("batch-cpu=100")), [2]int64{1100, 0}},
		"older names are other resources":   {pod("p", container("a", "", "koordinator.sh/batch-cpu=1k")), [2]int64{}},
		"native resources":                  {pod("p", container("a", "", "cpu=1 memory=1Gi")), [2]int64{}},
	} {
		cpu, memory := Requested(&c.pod)
		if got := [2]int64{int64(cpu), int64(memory)}; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestExtendedResourceSpecStandsInForTheSpec(t *testing.T) {
	p := pod("p", be, container("a", "", ""), container("b", "", "batch-cpu=5"),
		annotation(AnnotationExtended, `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1000"},"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":1048576}},"b":{"limits":{"kubernetes.io/batch-cpu":"999"}}}}`))
	w := onePod(t, p)
	if w.CPULimit != node.Some(unit.MilliCPU(1005)) || w.Containers[0].MemoryLimit != node.Some(unit.Bytes(1<<20)) {
		t.Errorf("limit %v, of a %v: want 1005m and 1Mi", w.CPULimit, w.Containers[0].MemoryLimit)
	}
	p.Annotations[AnnotationExtended] = `{"containers":{"a":{"requests":"many"}}}`
	if _, faults := Extended(&p); len(faults) != 1 {
		t.Errorf("faults %v", faults)
	}
}

// TestALargeExponentIsAFault reads annotations with a quantity such as
// 1e-2147483647, which Kubernetes' own parser would read for hours. Each user
// who may create a pod could so stop the agent of a node.
func TestALargeExponentIsAFault(t *testing.T) {
	for _, q := range []string{`"1e-2147483647"`, `1e-2147483647`, `"1e2147483647"`, `"0e2147483647"`} {
		for key, text := range map[string]string{
			AnnotationExtended:       `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":` + q + `}}}}`,
			AnnotationResourceStatus: `{"numaNodeResources":[{"node":0,"resources":{"cpu":` + q + `}}]}`,
		} {
			p := pod("p", be, container("a", "", ""), annotation(key, text))
			read := make(chan []Fault, 1)
			go func() {
				Batch(&p)
				_, _, faults := ChoiceOf(&p)
				read <- append(Faults(&p), faults...)
			}()
			select {
			case faults := <-read:
				if len(faults) == 0 || faults[0].Key != key || !strings.Contains(faults[0].Problem, "want a quantity such as 1500 or 2Gi") {
					t.Errorf("%s: %s: %v", key, text, faults)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: %s: still being read", key, text)
			}
		}
	}
}

// TestAHugeAmountIsNotNone reads amounts that do not fit in 63 bits. Kubernetes
// accepts them.
func TestAHugeAmountIsNotNone(t *testing.T) {
	for name, c := range map[string]struct {
		k    kind
		list corev1.ResourceList
		want int64
	}{
		"memory": {nativeMem, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100E")}, quantity.Max},
		"CPU":    {nativeCPU, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10E")}, quantity.Max},
		"power":  {nativeMem, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1e2147483647")}, quantity.Max},
		"usual":  {nativeCPU, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}, 1500},
		"exact":  {nativeMem, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Pi")}, 1 << 50},
	} {
		if got := c.k.amountIn(c.list, unit.Up).Or(-1); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// In Koordinator, cpu.shares is milli-request × 1024 / 1000, and at least 2.
func TestWeightOfABatchRequest(t *testing.T) {
	for request, shares := range map[unit.MilliCPU]int64{0: 2, 1: 2, 2: 2, 1000: 1024, 1500: 1536, 1 << 50: unit.MaxShares} {
		if got := Weight(request).Shares(); got != shares {
			t.Errorf("%v: %d shares, want %d", request, got, shares)
		}
	}
}

// TestTheReserveOfTheKubeletIsRoundedUp reads the CPU that a kubelet withholds,
// if its allocatable CPU is no whole number of thousandths.
func TestTheReserveOfTheKubeletIsRoundedUp(t *testing.T) {
	for left, want := range map[string]unit.MilliCPU{"16": 0, "15500m": 500, "15499500u": 501, "15999999999n": 1, "1u": 16000, "17": 0} {
		n := &corev1.Node{Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")}, Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(left)},
		}}
		if got := Reserve(n); got != want {
			t.Errorf("%s of 16 CPUs are allocatable: %v are reserved, want %v", left, got, want)
		}
	}
}

func TestQuantitiesOfBatchResources(t *testing.T) {
	if q := quantity.OfBatchCPU(2500); q.String() != "2500" {
		t.Errorf("batch-cpu of 2500m is %s, want 2500", q.String())
	}
	if q := quantity.OfMemory(3 << 30); q.String() != "3Gi" || q.Format != resource.BinarySI {
		t.Errorf("3 GiB are %s", q.String())
	}
}
