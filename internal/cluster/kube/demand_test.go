package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestWhatAPodDemandsOfTheCPUs(t *testing.T) {
	ack, burst := annotation(AnnotationCPUSetScheduler, "true"), annotation(AnnotationCPUPolicy, StaticBurst)
	full := annotation(AnnotationResourceSpec, `{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`)
	single := annotation(AnnotationNUMASpec, `{"numaTopologyPolicy":"SingleNUMANode"}`)
	lse, lsr := label(LabelQOSClass, "LSE"), label(LabelQOSClass, "LSR")
	for name, c := range map[string]struct {
		made   []podChange
		want   string // policy, CPUs, request, bind, level; empty: no demand
		faults int
	}{
		"a service":                               {[]podChange{container("c", "cpu=4", "cpu=4")}, "", 0},
		"ACK, requests are limits":                {[]podChange{ack, container("c", "cpu=4", "cpu=4")}, "exclusive 4 0m 0 node", 0},
		"ACK, requests are left out":              {[]podChange{ack, container("c", "", "cpu=4")}, "exclusive 4 0m 0 node", 0},
		"ACK, the seed's go-demo":                 {[]podChange{ack, container("c", "cpu=1", "cpu=4")}, "shared 4 1000m 0 node", 0},
		"ACK, two containers":                     {[]podChange{ack, container("c", "cpu=4", "cpu=4"), container("d", "cpu=2", "cpu=2")}, "exclusive 6 0m 0 node", 0},
		"ACK, a container without a limit":        {[]podChange{ack, container("c", "cpu=4", "cpu=4"), container("d", "", "")}, "exclusive 4 0m 0 node", 0},
		"ACK, a sidecar with a request":           {[]podChange{ack, container("c", "cpu=4", "cpu=4"), initContainer("s", "cpu=100m", "", true)}, "shared 4 4100m 0 node", 1},
		"ACK, one CPU and an overhead":            {[]podChange{ack, container("c", "cpu=1", "cpu=1"), overhead("cpu=250m")}, "shared 1 1250m 0 node", 1},
		"ACK, a request for the whole pod":        {[]podChange{ack, container("c", "cpu=4", "cpu=4"), func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu=6")} }}, "shared 4 6000m 0 node", 1},
		"ACK, seats and a sidecar":                {[]podChange{ack, container("c", "cpu=1", "cpu=4"), initContainer("s", "cpu=100m", "", true)}, "shared 4 1100m 0 node", 0},
		"ACK, no limit":                           {[]podChange{ack, container("c", "cpu=4", "")}, "", 1},
		"ACK, a fraction":                         {[]podChange{ack, container("c", "cpu=1500m", "cpu=1500m")}, "", 1},
		"ACK, static-burst":                       {[]podChange{ack, burst, container("c", "cpu=4", "cpu=4")}, "pool 0 4000m 0 node", 0},
		"ACK, static-burst with a fraction":       {[]podChange{ack, burst, container("c", "cpu=1500m", "cpu=4")}, "pool 0 1500m 0 node", 0},
		"static-burst alone":                      {[]podChange{burst, container("c", "cpu=4", "cpu=4")}, "", 1},
		"another word":                            {[]podChange{annotation(AnnotationCPUSetScheduler, "yes"), container("c", "cpu=4", "cpu=4")}, "", 1},
		"switched off":                            {[]podChange{annotation(AnnotationCPUSetScheduler, "false"), container("c", "cpu=4", "cpu=4")}, "", 0},
		"BE":                                      {[]podChange{ack, label(LabelQOSClass, "BE"), container("c", "cpu=4", "cpu=4")}, "", 1},
		"LSE":                                     {[]podChange{lse, container("c", "cpu=4", "cpu=4")}, "exclusive 4 0m 0 node", 0},
		"LSR with whole cores":                    {[]podChange{lsr, full, container("c", "cpu=4", "cpu=4")}, "exclusive 4 0m 2 node", 0},
		"LSR of a fraction":                       {[]podChange{lsr, container("c", "cpu=1500m", "cpu=4")}, "", 0},
		"LSE on one NUMA node":                    {[]podChange{lse, single, container("c", "cpu=4", "cpu=4")}, "exclusive 4 0m 0 NUMA node", 0},
		"a service on one NUMA node":              {[]podChange{single, container("c", "cpu=1500m", "")}, "pool 0 1500m 0 NUMA node", 0},
		"the NUMA policy under ACK's name":        {[]podChange{lse, annotation(AnnotationACKNUMASpec, `{"numaTopologyPolicy":"SingleNUMANode"}`), container("c", "cpu=2", "cpu=2")}, "exclusive 2 0m 0 NUMA node", 0},
		"a NUMA policy that there is not":         {[]podChange{lse, annotation(AnnotationNUMASpec, `{"numaTopologyPolicy":"One"}`), container("c", "cpu=2", "cpu=2")}, "exclusive 2 0m 0 node", 1},
		"ConstrainedBurst, a pool for a fraction": {[]podChange{annotation(AnnotationResourceSpec, `{"preferredCPUBindPolicy":"ConstrainedBurst"}`), container("c", "cpu=1500m", "cpu=4")}, "pool 0 1500m 0 node", 0},
	} {
		p := pod("p", c.made...)
		d, any, faults := DemandOf(&p)
		got := ""
		if any {
			got = fmt.Sprint(d.Policy, " ", d.CPUs, " ", d.CPU, " ", d.Bind, " ", d.Within)
		}
		policy := cpus.Policy(0)
		if any {
			policy = d.Policy
		}
		if o := cpusOf(&p); o.Policy != policy || o.Grows != (policy == cpus.Pool && p.Annotations[AnnotationCPUPolicy] == StaticBurst) {
			t.Errorf("%s: the agent gets %+v", name, o)
		}
		if got != c.want || len(faults) != c.faults {
			t.Errorf("%s: got %q with the faults %v; want %q with %d", name, got, faults, c.want, c.faults)
		}
	}
}

// TestADemandIsThatOfTheStaticPod reads a static pod from the kubelet, and its
// mirror from the API server while the kubelet does not answer. The report of
// the node must name the same pod.
func TestADemandIsThatOfTheStaticPod(t *testing.T) {
	lsr, hash := label(LabelQOSClass, "LSR"), annotation(annotationHash, "8f3e")
	file := pod("etcd", lsr, hash, annotation(annotationSource, "file"), container("c", "cpu=2", "cpu=2"))
	file.UID = "8f3e"
	mirror := pod("etcd", lsr, annotation(annotationMirror, "8f3e"), annotation(annotationSource, "file"), container("c", "cpu=2", "cpu=2"))
	own := pod("web", lsr, annotation(annotationSource, "api"), container("c", "cpu=2", "cpu=2"))
	for _, c := range []struct {
		pod  corev1.Pod
		want string
	}{{file, "8f3e"}, {mirror, "8f3e"}, {own, "uid-web"}} {
		if o := cpusOf(&c.pod); o.Pod != c.want || o.CPUs != 2 {
			t.Errorf("%s: %+v, want the pod %s", c.pod.UID, o, c.want)
		}
	}
}

// TestAFaultNamesTheOnlyWord checks the message about a word of a list with one
// word.
func TestAFaultNamesTheOnlyWord(t *testing.T) {
	p := pod("p", annotation(AnnotationCPUSetScheduler, "true"), annotation(AnnotationCPUPolicy, "static_burst"), container("c", "cpu=1", "cpu=1"))
	_, _, faults := DemandOf(&p)
	if len(faults) != 1 || faults[0].String() != `cpu-policy: "static_burst": want static-burst` {
		t.Errorf("%v", faults)
	}
}

// twoCaches returns a node that has two L3 caches with two cores each.
func twoCaches() *pick.Map {
	var t node.Topology
	for c := range 8 {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 4)})
	}
	return pick.Compile(t)
}

// TestTheChoiceIsInTheAnnotationsOfThePod writes a contract to annotations and
// reads it back. It must be the same.
func TestTheChoiceIsInTheAnnotationsOfThePod(t *testing.T) {
	p := pod("p", annotation(AnnotationCPUSetScheduler, "true"), container("nginx", "cpu=2 memory=2Gi", "cpu=2 memory=2Gi"), container("side", "cpu=1", "cpu=1"))
	d, _, _ := DemandOf(&p)
	m := twoCaches()
	o, why := m.Fit(m.Seats(unit.CPUSet{}, 1, nil), d.Request)
	if why != cpus.Fits {
		t.Fatal(why)
	}
	c := place.ContractOf(m, d, o)
	notes := ContractAnnotations(&p, m, c)
	maps.Copy(p.Annotations, notes)
	got, there, faults := ChoiceOf(&p)
	if !there || len(faults) > 0 || got.CPUs != c.CPUs || got.Topology != m.Hash() || !got.Matches(d.Request) || !maps.Equal(got.Containers, c.Containers) {
		t.Errorf("%s was read as %+v, %v", notes[AnnotationCPUs], got, faults)
	}
	var ack map[string]map[string]struct {
		Elems map[string]struct{} `json:"elems"`
	}
	if err := json.Unmarshal([]byte(notes[AnnotationCPUSet]), &ack); err != nil || len(ack["nginx"]["0"].Elems) != 2 || len(ack["side"]["0"].Elems) != 1 {
		t.Errorf("ACK's annotation is %s (%v)", notes[AnnotationCPUSet], err)
	}
	status, faults := ResourceStatusOf(&p)
	if status.CPUs != c.CPUs || len(faults) > 0 || len(status.NUMANodes) != 1 || status.NUMANodes[0].Resources.Cpu().Value() != 3 {
		t.Errorf("Koordinator's annotation is %s (%v)", notes[AnnotationResourceStatus], faults)
	}
	delete(p.Annotations, AnnotationCPUs)
	if got, there, _ = ChoiceOf(&p); !there || got.CPUs != c.CPUs || got.Topology != 0 {
		t.Errorf("by Koordinator's annotation alone: %+v", got)
	}
}

// TestAForgedChoiceIsNoChoice checks annotations that no scheduler writes.
func TestAForgedChoiceIsNoChoice(t *testing.T) {
	for text, faults := range map[string]int{
		`{"v":2,"topology":"00000000000000ff","policy":"exclusive","cpus":"0-3"}`: 0,
		`{"v":3,"topology":"00000000000000ff","policy":"exclusive","cpus":"0-3"}`: 1,
		`{"v":1,"topology":"00000000000000ff","policy":"own","cpus":"0-3"}`:       1, // of the release before
		`{"v":2,"topology":"xyz","policy":"exclusive","cpus":"0-3"}`:              1,
		`{"v":2,"topology":"00000000000000ff","policy":"mine","cpus":"0-3"}`:      1,
		`{"v":2,"topology":"00000000000000ff","policy":"exclusive","cpus":"3-0"}`: 1,
		`0-3`: 1,
	} {
		p := pod("p", label(LabelQOSClass, "LSE"), container("c", "cpu=2", "cpu=2"), annotation(AnnotationCPUs, text))
		c, there, found := ChoiceOf(&p)
		if there != (faults == 0) || len(found) != faults || len(Faults(&p)) != faults {
			t.Errorf("%s: %+v, %v", text, c, found)
		}
		if d, _, _ := DemandOf(&p); there && c.Matches(d.Request) {
			t.Errorf("4 CPUs match the demand for 2: %+v", c)
		}
	}
}

func FuzzContract(f *testing.F) {
	f.Add(`{"v":2,"topology":"00000000000000ff","policy":"shared","cpus":"0-3","domain":"0-7","containers":{"a":"0"}}`, `{"cpuset":"0-3"}`)
	m := twoCaches()
	f.Fuzz(func(t *testing.T, contract, status string) {
		p := pod("p", label(LabelQOSClass, "LSE"), container("c", "cpu=2", "cpu=2"), annotation(AnnotationCPUs, contract), annotation(AnnotationResourceStatus, status))
		d, _, _ := DemandOf(&p)
		c, there, _ := ChoiceOf(&p)
		if there {
			m.Seats(unit.CPUSet{}, 1, []cpus.Allocation{c.Allocation(d.Request)})
		}
	})
}
