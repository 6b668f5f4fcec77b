package kube

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func percent(n int) node.Maybe[unit.Percent] { return node.Some(unit.Percent(n)) }

// overrides reads these annotations for a pod of the class. It also returns their faults.
func overrides(class node.Class, annotations ...string) (node.Overrides, []string) {
	p := pod("p", label(LabelQOSClass, string(class)))
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	a, faults := OverridesOf(&p)
	var lines []string
	for _, f := range append(faults, Faults(&p)...) {
		lines = append(lines, f.String())
	}
	return a, lines
}

func checkAsks(t *testing.T, name string, want node.Overrides, got node.Overrides, faults []string) {
	t.Helper()
	if diff := cmp.Diff(want, got, exact); diff != "" || len(faults) > 0 {
		t.Errorf("%s: faults %q, -want +got:\n%s", name, faults, diff)
	}
}

func TestCPUBurstByAnnotation(t *testing.T) {
	for text, want := range map[string]node.BurstOverride{
		`{"policy":"auto","cpuBurstPercent":200,"cfsQuotaBurstPercent":150,"cfsQuotaBurstPeriodSeconds":60}`: {Policy: "auto", CPUPercent: percent(200), QuotaPercent: percent(150), PeriodSeconds: node.Some[int64](60)},
		`{"policy":"none"}`: {Policy: node.BurstNone},
		`{"policy":null,"cfsQuotaBurstPeriodSeconds":-1}`: {PeriodSeconds: node.Some[int64](-1)},
		`{}`: {},
	} {
		for _, key := range []string{"koordinator.sh/cpuBurst", "alibabacloud.com/cpuBurst"} {
			got, faults := overrides(node.LS, key, text)
			checkAsks(t, key+" "+text, node.Overrides{Burst: want}, got, faults)
		}
	}
	got, faults := overrides(node.LS, AnnotationCPUBurst, `{"policy":"none"}`, AnnotationACKCPUBurst, `{"policy":"auto"}`)
	checkAsks(t, "the present key takes precedence", node.Overrides{Burst: node.BurstOverride{Policy: node.BurstNone}}, got, faults)
}

// TestEveryKeyOfMemoryQOSReachesThePod sets each key of memoryQOS that Tenon
// supports in the annotation of a pod. Without this test, a key that the code
// does not copy would have no effect and no fault.
func TestEveryKeyOfMemoryQOSReachesThePod(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.MemoryQOS]()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, later := f.Tag.Lookup("later"); later || key == "enable" {
			continue
		}
		got, faults := overrides(node.LS, AnnotationMemoryQOS, `{"`+key+`":7}`)
		if got.Memory == (node.MemoryOverride{}) || len(faults) > 0 {
			t.Errorf("%s of the annotation gives %+v, faults %q", key, got.Memory, faults)
		}
	}
}

func TestMemoryQOSByAnnotation(t *testing.T) {
	for text, want := range map[string]node.MemoryOverride{
		`{"policy":"default","minLimitPercent":10,"lowLimitPercent":20,"throttlingPercent":80}`: {MinPercent: percent(10), LowPercent: percent(20), ThrottlingPercent: percent(80)},
		`{"policy":"none","minLimitPercent":10}`:                                                {OwnOnly: true},
		`{"policy":"auto","lowLimitPercent":20}`:                                                {OwnOnly: true, LowPercent: percent(20)},
		`{"enable":false,"minLimitPercent":10}`:                                                 {OwnOnly: true},
		`{"enable":true,"minLimitPercent":10}`:                                                  {MinPercent: percent(10)},
		`{"throttlingPercent":0}`:                                                               {ThrottlingPercent: percent(0)},
	} {
		for _, key := range []string{"koordinator.sh/memoryQOS", "alibabacloud.com/memoryQOS"} {
			got, faults := overrides(node.LS, key, text)
			checkAsks(t, key+" "+text, node.Overrides{Memory: want}, got, faults)
		}
	}
}

func TestCPUQOSByAnnotation(t *testing.T) {
	for text, want := range map[string]node.Maybe[node.Identity]{
		`{"enable":true,"groupIdentity":1}`:                      node.Some(node.IdentityHigh),
		`{"enable":true,"groupIdentity":0}`:                      node.Some(node.IdentityNone),
		`{"enable":true,"groupIdentity":2,"coreExpeller":false}`: node.Some(node.IdentityHigh),
		`{"enable":true,"coreExpeller":true}`:                    node.Some(node.IdentityExpels),
		`{"enable":false,"groupIdentity":2}`:                     node.Some(node.IdentityNone),
		`{"groupIdentity":2}`:                                    node.Some(node.IdentityNone),
		`{"enable":false,"groupIdentity":-1}`:                    node.Some(node.IdentityNone),
		`{"enable":true}`:                                        {},
	} {
		got, faults := overrides(node.LS, AnnotationCPUQOS, text)
		checkAsks(t, text, node.Overrides{Identity: want}, got, faults)
	}
	if got, faults := overrides(node.LS, AnnotationCPUQOS, `{"enable":true,"groupIdentity":3}`); got.Identity.Known() || !slices.Equal(faults, []string{"koordinator.sh/cpuQOS: groupIdentity: 3: want a whole number from -1 to 2"}) {
		t.Errorf("3: %v, %q", got.Identity, faults)
	}
	// Koordinator accepts -1 on any pod. Tenon does not refuse such a pod, and
	// treats the value as 0.
	if got, faults := overrides(node.LS, AnnotationCPUQOS, `{"enable":true,"groupIdentity":-1}`); got.Identity != node.Some(node.IdentityNone) ||
		!slices.Equal(faults, []string{"koordinator.sh/cpuQOS: groupIdentity: -1 counts as 0 for this pod: only BE yields"}) {
		t.Errorf("-1: %v, %q", got.Identity, faults)
	}
	if got, faults := overrides(node.LSR, AnnotationCPUQOS, `{"enable":true,"groupIdentity":1}`); got.Identity.Known() || len(faults) != 1 {
		t.Errorf("an LSR pod: %v, %q", got.Identity, faults)
	}
}

// A webhook must not refuse a pod for a value that Koordinator accepts but
// Tenon ignores.
func TestValuesWithoutEffectAreNoFaults(t *testing.T) {
	for key, text := range map[string]string{
		AnnotationCPUQOS:   `{"enable":true,"groupIdentity":1}`, // only LS pods use this annotation, and the pod is BE
		AnnotationCPUBurst: `{"sharePoolThresholdPercent":50}`,
		AnnotationBlkIOQOS: `{"blocks":[{"name":"data","type":"podvolume"}]}`,
		AnnotationResctrl:  `{"mb":{"schemataPerCache":[{"cacheID":0,"percent":20}]}}`,
		// A later version of Tenon may define these keys.
		AnnotationMemoryQOS:   `{"minLimitPercent":10,"tieredPercent":5}`,
		AnnotationACKCPUBurst: `{"policy":"auto","tomorrow":{"a":1}}`,
	} {
		p := pod("p", be, annotation(key, text))
		if _, faults := OverridesOf(&p); len(faults) != 1 || !faults[0].Inert {
			t.Errorf("%s %s: %+v", key, text, faults)
		}
		p.Annotations[key] = "wrong"
		if _, faults := OverridesOf(&p); len(faults) != 1 || faults[0].Inert {
			t.Errorf("%s wrong: %+v", key, faults)
		}
	}
}

func TestBlkIOQOSByAnnotation(t *testing.T) {
	const text = `{"blocks":[{"name":"/dev/vda","type":"device","ioCfg":{"readBPS":1048576,"writeIOPS":100,"ioWeightPercent":50,"readLatency":3000,"writeLatency":2000}},{"name":"vg0","type":"volumegroup","ioCfg":{"writeBPS":5}}]}`
	got, faults := overrides(node.BE, AnnotationBlkIOQOS, text)
	want := []node.BlockIO{{Name: "/dev/vda", ReadBPS: 1 << 20, WriteIOPS: 100, WeightPercent: 50}, {Name: "vg0", VolumeGroup: true, WriteBPS: 5}}
	checkAsks(t, "BE", node.Overrides{IO: want}, got, faults)
	got, faults = overrides(node.LS, AnnotationBlkIOQOS, text)
	want[0].Latency = 2 * time.Millisecond
	checkAsks(t, "LS", node.Overrides{IO: want}, got, faults)

	got, faults = overrides(node.BE, AnnotationBlkIOQOS, `{"enable":false,"blocks":[{"name":"vda","ioCfg":{"readBPS":1}}]}`)
	checkAsks(t, "switched off", node.Overrides{}, got, faults)

	got, _ = overrides(node.BE, AnnotationBlkIOQOS, `{"blocks":[{"type":"podvolume","name":"data","ioCfg":{}},{"name":"sda","ioCfg":{"readBPS":1}}]}`)
	if len(got.IO) != 1 {
		t.Errorf("a volume and a device: %+v, want the device only", got.IO)
	}
	got, faults = overrides(node.BE, AnnotationBlkIOQOS, `{"blocks":[{"type":"podvolume","name":"data","ioCfg":{}},{"ioCfg":{"readBPS":1}},{"name":"sda","ioCfg":{"readBPS":1}}]}`)
	if len(got.IO) != 0 || !slices.Equal(faults, []string{
		"koordinator.sh/blkioQOS: blocks[0].type: podvolume is not acted on: want the device or volume group on which the volume lies",
		"koordinator.sh/blkioQOS: blocks[1].name: missing: want a device such as /dev/vda, or a volume group",
	}) {
		t.Errorf("%+v, %q", got.IO, faults)
	}
}

func TestResctrlByAnnotation(t *testing.T) {
	got, faults := overrides(node.LS, AnnotationResctrl, `{"llc":{"schemata":{"range":[0,30]}},"mb":{"schemata":{"percent":20}}}`)
	checkAsks(t, "all caches", node.Overrides{Cache: node.CacheOverride{ControlGroup: "tenon-uid-p", Start: percent(0), End: percent(30), Bandwidth: percent(20)}}, got, faults)
	for text, want := range map[string]string{
		`{"llc":{"schemata":{"range":[30,0]}}}`:                                  "llc.schemata.range: want two whole numbers from 0 to 100, the smaller first",
		`{"llc":{"schemata":{"range":[0,101]}}}`:                                 "llc.schemata.range: want two whole numbers from 0 to 100, the smaller first",
		`{"llc":{"schemata":{"range":[30,0]}},"mb":{"schemata":{"percent":20}}}`: "llc.schemata.range: want two whole numbers from 0 to 100, the smaller first",
		`{"llc":{"schemata":{"range":[7]}}}`:                                     "llc.schemata.range: want two whole numbers from 0 to 100, the smaller first",
		`{"mb":{"schemata":{"percent":0}}}`:                                      "mb.schemata.percent: 0: want a whole number from 1 to 100",
		`{"mb":{"schemataPerCache":[{"cacheID":0,"percent":20}]}}`:               "schemataPerCache: is not acted on: every cache gets what schemata says",
		`{"llc":{"schemataPerCache":[{"cacheID":-1,"range":[0,50]}]}}`:           "llc.schemataPerCache[0].cacheID: -1: want a whole number of at least 0",
	} {
		got, faults := overrides(node.LS, AnnotationResctrl, text)
		if !slices.Equal(faults, []string{AnnotationResctrl + ": " + want}) {
			t.Errorf("%s: %q, want %q", text, faults, want)
		}
		if got.Cache != (node.CacheOverride{}) {
			t.Errorf("%s has a fault, and a part of it is used: %+v", text, got.Cache)
		}
	}
}

func TestEvictionPolicyByAnnotation(t *testing.T) {
	for text, want := range map[string][]string{
		`["BECPUEvict","BEMemoryEvict"]`: nil,
		`["MemoryEvict"]`:                {"cpu"},
		`["CPUAllocatableEvict"]`:        {"memory"},
		`["SomebodyElsesEvict"]`:         {"cpu", "memory"},
		`[]`:                             {"cpu", "memory"},
	} {
		got, faults := overrides(node.BE, AnnotationEvictionPolicy, text)
		checkAsks(t, text, node.Overrides{EvictionExemptFrom: want}, got, faults)
	}
	for _, text := range []string{"", "none", `"BECPUEvict"`, `{}`, `[1]`} {
		if got, faults := overrides(node.BE, AnnotationEvictionPolicy, text); len(faults) != 1 || !got.Equal(node.Overrides{EvictionExemptFrom: []string{"cpu", "memory"}}) {
			t.Errorf("%q, which is no list of names: %+v, faults %q", text, got, faults)
		}
	}
}

func TestEvictionPriorityByAnnotationAndSubPriorityByLabel(t *testing.T) {
	p := pod("p", annotation(AnnotationEvictionPriority, "-2147483648"), label(LabelSubPriority, "12"))
	e, eFaults := EvictionPriority(&p)
	s, sFaults := SubPriority(&p)
	if e != -2147483648 || s != 12 || len(eFaults)+len(sFaults) > 0 {
		t.Errorf("%d %d %v %v", e, s, eFaults, sFaults)
	}
	for _, bad := range []string{"", "1.5", "2147483648", "high"} {
		p := pod("p", annotation(AnnotationEvictionPriority, bad), label(LabelSubPriority, bad))
		e, eFaults := EvictionPriority(&p)
		s, sFaults := SubPriority(&p)
		if e != 0 || s != 0 || len(eFaults) != 1 || len(sFaults) != 1 {
			t.Errorf("%q: %d %d %v %v", bad, e, s, eFaults, sFaults)
		}
	}
}

// TestEvictionOrderOfPodsWithoutWords checks the eviction order of pods that
// have no class label, no priority or no sub-priority. It also checks which
// pods count as pods of a DaemonSet.
func TestEvictionOrderOfPodsWithoutWords(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "u", Controller: new(true)}}
	}
	be := label(LabelQOSClass, "BE")
	for name, tc := range map[string]struct {
		pod                corev1.Pod
		unlabelled, daemon bool
		priority, def, sub int
	}{
		"no label":                       {pod("p"), true, false, 0, 5500, 0},
		"ACK's annotation":               {pod("p", annotation(AnnotationACKQOSClass, "BE")), false, false, 0, 5500, 0},
		"the label, no priority":         {pod("p", be), false, false, 0, 5500, 0},
		"the label and priority 0":       {pod("p", be, priority(0)), false, false, 0, 5500, 0},
		"the label of a priority class":  {pod("p", be, label(LabelPriorityClass, "koord-free")), false, false, 3500, 0, 3500},
		"a priority outside all classes": {pod("p", be, priority(120)), false, false, 120, 0, 120},
		"a priority and a sub-priority":  {pod("p", be, priority(120), label(LabelSubPriority, "100")), false, false, 120, 0, 100},
		"an exporter of a DaemonSet":     {pod("p", daemon), true, true, 0, 5500, 0},
		"BE of a DaemonSet":              {pod("p", be, daemon), false, true, 0, 5500, 0},
	} {
		w := onePod(t, tc.pod)
		if w.Unlabelled != tc.unlabelled || w.Daemon != tc.daemon || w.Priority != tc.priority || w.DefaultPriority != tc.def || w.SubPriority != tc.sub {
			t.Errorf("%s: unlabelled %v, daemon %v, priority %d, default %d, sub-priority %d; want %+v", name, w.Unlabelled, w.Daemon, w.Priority, w.DefaultPriority, w.SubPriority, tc)
		}
	}
}

func TestResourceSpecAndStatusAreRead(t *testing.T) {
	p := pod("p", annotation(AnnotationResourceSpec, `{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`),
		annotation(AnnotationResourceStatus, `{"cpuset":"0-3,8","numaNodeResources":[{"node":1,"resources":{"cpu":"4","memory":"8Gi"}}]}`))
	spec, faults := ResourceSpecOf(&p)
	if spec.RequiredCPUBindPolicy != "FullPCPUs" || spec.PreferredCPUExclusivePolicy != "PCPULevel" || len(faults) > 0 {
		t.Errorf("%+v, %v", spec, faults)
	}
	status, faults := ResourceStatusOf(&p)
	if status.CPUs.String() != "0-3,8" || len(status.NUMANodes) != 1 || status.NUMANodes[0].Node != 1 || status.NUMANodes[0].Resources.Memory().Value() != 8<<30 || len(faults) > 0 {
		t.Errorf("%+v, %v", status, faults)
	}
	p = pod("p", annotation(AnnotationResourceSpec, `{"preferredCPUBindPolicy":"Packed"}`), annotation(AnnotationResourceStatus, `{"cpuset":"3-1"}`))
	if spec, faults := ResourceSpecOf(&p); spec != (ResourceSpec{}) || len(faults) != 1 ||
		faults[0].String() != AnnotationResourceSpec+`: preferredCPUBindPolicy: "Packed": want one of Default, FullPCPUs, SpreadByPCPUs, ConstrainedBurst` {
		t.Errorf("%+v, %v", spec, faults)
	}
	if status, faults := ResourceStatusOf(&p); !status.CPUs.Empty() || len(faults) != 1 || faults[0].Field != "cpuset" {
		t.Errorf("%+v, %v", status, faults)
	}
}

// An annotation with a fault has no effect, except eviction-policy. Tenon must
// report all its faults, and use the other annotations of the pod.
func TestAllFaultsOfAnAnnotationAreNamed(t *testing.T) {
	got, faults := overrides(node.LS,
		AnnotationCPUBurst, `{"policy":"sometimes","cpuBurstPercent":0,"cfsQuotaBurstPercent":99,"cfsQuotaBurstPeriodSeconds":-2}`,
		AnnotationMemoryQOS, `{"throttlingPercent":80}`,
		AnnotationEvictionPolicy, `none`)
	want := []string{
		`koordinator.sh/cpuBurst: cfsQuotaBurstPercent: 99: want a whole number of at least 100`,
		`koordinator.sh/cpuBurst: cfsQuotaBurstPeriodSeconds: -2: want a whole number of at least -1`,
		`koordinator.sh/cpuBurst: cpuBurstPercent: 0: want a whole number from 1 to 10000`,
		`koordinator.sh/cpuBurst: policy: "sometimes": want one of none, cpuBurstOnly, cfsQuotaBurstOnly, auto`,
		`koordinator.sh/eviction-policy: "none": want a JSON list of names, such as ["BECPUEvict","BEMemoryEvict"]`,
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Burst != (node.BurstOverride{}) || got.Memory.ThrottlingPercent != percent(80) {
		t.Errorf("%+v", got)
	}
}

func TestTextThatIsNoJSONIsAFault(t *testing.T) {
	for _, key := range []string{AnnotationCPUBurst, AnnotationMemoryQOS, AnnotationCPUQOS, AnnotationBlkIOQOS, AnnotationResctrl, AnnotationEvictionPolicy, AnnotationExtended, AnnotationResourceSpec, AnnotationResourceStatus} {
		for _, text := range []string{"", "policy: auto", "{", `{"a":1} {}`, "[1]", "7", "\xff"} {
			got, faults := overrides(node.LS, key, text)
			if len(faults) == 0 || !strings.HasPrefix(faults[0], key+": ") || strings.Contains(strings.Join(faults, ""), "\n") {
				t.Errorf("%s %q: %q", key, text, faults)
			}
			if want := (node.Overrides{EvictionExemptFrom: got.EvictionExemptFrom}); !got.Equal(want) || want.EvictionExemptFrom != nil && key != AnnotationEvictionPolicy {
				t.Errorf("%s %q counts: %+v", key, text, got)
			}
		}
	}
}

func TestNamespacesGoAfterAnnotationsAndBeforeTheCluster(t *testing.T) {
	n, faults := ParseNamespaces(map[string]string{
		"cpu-burst":  `{"enabledNamespaces":["shop"],"disabledNamespaces":["batch"]}`,
		"memory-qos": `{"disabledNamespaces":["shop"],"enabledNamespaces":["batch"]}`,
	})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	all := []node.Workload{{ID: "shop/web"}, {ID: "shop/db", Overrides: node.Overrides{Burst: node.BurstOverride{Policy: "none"}, Memory: node.MemoryOverride{MinPercent: percent(1)}}}, {ID: "batch/x"}, {ID: "other/y"}}
	n.Apply(all)
	want := []node.Overrides{
		{Burst: node.BurstOverride{Policy: "auto"}, Memory: node.MemoryOverride{OwnOnly: true}},
		{Burst: node.BurstOverride{Policy: "none"}, Memory: node.MemoryOverride{MinPercent: percent(1)}},
		{Burst: node.BurstOverride{Policy: "none"}, Memory: node.MemoryOverride{Enabled: true}}, {},
	}
	for i, w := range all {
		if !w.Overrides.Equal(want[i]) {
			t.Errorf("%s: %+v, want %+v", w.ID, w.Overrides, want[i])
		}
	}
	for text, problem := range map[string]string{
		`{"enabledNamespaces":["a"],"disabledNamespaces":["a"]}`: `cpu-burst: disabledNamespaces: "a" is also in enabledNamespaces: want it in one`,
		`{"enabledNamespaces":"a"}`:                              `cpu-burst: enabledNamespaces: "a": want a list`,
	} {
		if n, faults := ParseNamespaces(map[string]string{"cpu-burst": text}); len(faults) != 1 || faults[0].String() != problem || n.CPUBurst.Enabled != nil {
			t.Errorf("%s: %+v %q", text, n, faults)
		}
	}
}

// FuzzAnnotations writes any text into an annotation. Each value that Tenon
// uses must be within its range. Each fault must be one line that contains its
// key.
func FuzzAnnotations(f *testing.F) {
	f.Add(`{"policy":"auto","cpuBurstPercent":200}`, `{"policy":"none"}`, `{"enable":true,"groupIdentity":1}`, `{"blocks":[{"name":"vda","ioCfg":{"readBPS":1}}]}`, `{"llc":{"schemata":{"range":[0,30]}}}`, `["BECPUEvict"]`, "LS")
	f.Add(`null`, `[]`, `{"enable":null}`, `{"blocks":{}}`, `{"llc":{"schemata":{"range":[null,1e3]}}}`, `[null]`, "BE")
	f.Add(`{"cfsQuotaBurstPercent":9223372036854775807}`, `{"wmarkMinAdj":-26}`, `"x"`, `{"blocks":[null]}`, `{"mb":{"schemata":{"percent":-1}}}`, `{}`, "x")
	f.Add(`{"containers":{"a":{"limits":{"cpu":"1e-2147483647"}}}}`, `null`, `{}`, `{}`, `{"numaNodeResources":[{"node":0,"resources":{"cpu":1e-2147483647}}]}`, `[]`, "LSR")
	f.Fuzz(func(t *testing.T, burst, memory, cpu, io, cache, evict, class string) {
		p := pod("p", label(LabelQOSClass, class), annotation(AnnotationCPUBurst, burst), annotation(AnnotationMemoryQOS, memory), annotation(AnnotationCPUQOS, cpu),
			annotation(AnnotationBlkIOQOS, io), annotation(AnnotationResctrl, cache), annotation(AnnotationEvictionPolicy, evict),
			annotation(AnnotationExtended, burst), annotation(AnnotationResourceSpec, cpu), annotation(AnnotationResourceStatus, cache), annotation(AnnotationEvictionPriority, evict))
		a, faults := OverridesOf(&p)
		for _, f := range append(faults, Faults(&p)...) {
			if s := f.String(); strings.Contains(s, "\n") || !strings.HasPrefix(s, f.Key+": ") || f.Problem == "" {
				t.Errorf("fault %q", s)
			}
		}
		within := func(name string, m node.Maybe[unit.Percent], low, high unit.Percent) {
			if v, known := m.Value(); known && (v < low || v > high) {
				t.Errorf("%s is %v", name, v)
			}
		}
		within("cpuBurstPercent", a.Burst.CPUPercent, 1, 10000)
		within("cfsQuotaBurstPercent", a.Burst.QuotaPercent, 100, 1<<63-1)
		within("min", a.Memory.MinPercent, 0, 100)
		within("throttling", a.Memory.ThrottlingPercent, 0, 100)
		within("start", a.Cache.Start, 0, 99)
		within("end", a.Cache.End, a.Cache.Start.Or(0)+1, 100)
		within("bandwidth", a.Cache.Bandwidth, 1, 100)
		if v := a.Identity.Or(0); v < node.IdentityNone || v > node.IdentityExpels {
			t.Errorf("identity %v", v)
		}
		for _, b := range a.IO {
			if b.Name == "" || min(b.ReadBPS, b.WriteBPS, b.ReadIOPS, b.WriteIOPS, int64(b.WeightPercent), int64(b.Latency)) < 0 {
				t.Errorf("block %+v", b)
			}
		}
		if !a.Equal(a) {
			t.Error("not equal to itself")
		}
	})
}

// FuzzPods sets random amounts in pods. The amounts of the workloads must be at
// least 0. If all containers have a limit, none of these limits may exceed that
// of the pod.
func FuzzPods(f *testing.F) {
	f.Add(int64(1000), int64(1<<30), int64(500), int64(1<<20), true)
	f.Add(int64(-5), int64(0), int64(1<<62), int64(1<<62), false)
	f.Fuzz(func(t *testing.T, cpu, memory, cpu2, memory2 int64, sidecar bool) {
		p := pod("p", be, container("a", "", ""), container("b", "", ""), initContainer("i", "", "", sidecar))
		quantities := func(cpu, memory int64) corev1.ResourceList {
			return corev1.ResourceList{BatchCPU: quantity.OfBatchCPU(unit.MilliCPU(cpu)), BatchMemory: quantity.OfMemory(unit.Bytes(memory)), corev1.ResourceCPU: quantity.OfBatchCPU(unit.MilliCPU(cpu2))}
		}
		p.Spec.Containers[0].Resources.Limits = quantities(cpu, memory)
		p.Spec.Containers[1].Resources.Limits = quantities(cpu2, memory2)
		p.Spec.InitContainers[0].Resources.Limits = quantities(cpu2, memory)
		all, _ := Workloads([]corev1.Pod{p}, Layout{}, everywhere)
		for _, w := range all {
			if w.CPULimit.Or(0) < 0 || w.MemoryLimit.Or(0) < 0 || w.CPURequest.Or(0) < 0 || w.MemoryRequest.Or(0) < 0 {
				t.Errorf("%+v", w)
			}
			for _, part := range w.Containers {
				if w.CPULimit.Known() && part.CPULimit.Or(0) > w.CPULimit.Or(0) || w.MemoryLimit.Known() && part.MemoryLimit.Or(0) > w.MemoryLimit.Or(0) {
					t.Errorf("%+v is more than %+v", part, w)
				}
			}
		}
		sum, _ := Requested(&p)
		for _, c := range p.Spec.Containers {
			if q := c.Resources.Limits[BatchCPU]; sum < 0 || int64(sum) < min(q.Value(), quantity.Max) {
				t.Errorf("a pod requests %v, a container of it %v", sum, q.Value())
			}
		}
	})
}
