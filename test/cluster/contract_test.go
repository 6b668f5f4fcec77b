package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// pinnedPod is a pod that owns one CPU. Its first command prints on which CPUs
// and NUMA nodes it may run. The pod ignores SIGTERM.
const pinnedPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, annotations: {cpuset-scheduler: "true"}}, spec: {schedulerName: none, terminationGracePeriodSeconds: 20,
containers: [{name: pi, image: "busybox:1", command: [sh, -c, "grep _allowed_list /proc/self/status; trap '' TERM; while :; do sleep 1; done"],
resources: {requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}}}]}}`

// TestAPodStartsOnTheCPUsOfItsContract binds pods as tenon-scheduler does: the
// binding contains the CPUs that were chosen for the pod. The first command of
// each pod must run on these CPUs, although the node itself would choose
// others. A pod without a contract must start on the CPUs that the node chose.
// When a pod is deleted by force, the next pod gets its CPU while the processes
// of the deleted pod still end.
func TestAPodStartsOnTheCPUsOfItsContract(t *testing.T) {
	inTurn(t)
	runParallel(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the last CPU stays shared")
	}
	c, n := startCluster(t, "contract")
	a := newAgent(t, c, n)
	a.start()
	var r place.Report
	requireSoon(t, time.Minute, "the node reports its CPUs", func() (err error) {
		cpus := a.report().Status.CPUs
		if cpus == nil {
			return fmt.Errorf("it does not")
		}
		r, err = cpureport.Read(cpus)
		return err
	})
	m := pick.Compile(r.Topology)
	own, why := m.Fit(m.Seats(unit.CPUSet{}, r.Keep, nil), cpus.Request{Policy: cpus.Exclusive, CPUs: 1})
	if why != cpus.Fits {
		t.Fatal(why)
	}
	var other unit.CPUSet // CPUs that the node itself would not choose
	for cpu := range m.All().Minus(own.CPUs).All() {
		other = unit.CPUSetOf(cpu)
		break
	}

	bindByContract(t, c, n, "pi", m, other)
	startsOn(t, c, "pi", other)
	heldBy(t, a, uid(t, c, "pi"), other, "scheduler")

	begun, first := time.Now(), uid(t, c, "pi")
	kubectl(t, c, "delete", "pod", "pi", "--force", "--grace-period=0")
	bindByContract(t, c, n, "next", m, other)
	startsOn(t, c, "next", other)
	heldBy(t, a, uid(t, c, "next"), other, "scheduler")
	t.Logf("the next pod runs on the CPU of the deleted one %v after its deletion", time.Since(begun).Round(10*time.Millisecond))
	endByForce(t, c, n, "next")
	ended(t, n, first)

	a.apply(strings.NewReplacer("NAME", "alone", "schedulerName: none", "nodeName: "+n.Name).Replace(pinnedPod))
	startsOn(t, c, "alone", own.CPUs)
	heldBy(t, a, uid(t, c, "alone"), own.CPUs, "node")
	endByForce(t, c, n, "alone")

	twoParts(t, a, m)
	seatsReserveWhatTheyRequest(t, a, m.Len())

	if runtime.NumCPU() == 2 {
		t.Run("the published programs", func(t *testing.T) { thePublishedPrograms(t, a) })
		t.Run("the published manifests", func(t *testing.T) { theCPUSeeds(t, c, n) })
	}
}

// endByForce deletes a pod by force, and waits until its processes have ended.
// While they end, they need CPUs that no pod owns.
func endByForce(t *testing.T, c *Cluster, n *Node, pod string) {
	t.Helper()
	id := uid(t, c, pod)
	kubectl(t, c, "delete", "pod", pod, "--force", "--grace-period=0")
	ended(t, n, id)
}

// ended waits until the cgroup of a pod of the class Guaranteed is gone.
func ended(t *testing.T, n *Node, uid string) {
	t.Helper()
	requireSoon(t, time.Minute, "the processes of a deleted pod have ended", func() error {
		dir := n.Cgroup("cpu", "kubepods/pod"+uid)
		_, err := os.Stat(dir)
		switch {
		case err == nil:
			return fmt.Errorf("%s exists", dir)
		case errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return err
	})
}

// partedPod has two containers with a seat each. The cgroup of the pod has the
// CPUs of both seats. Tenon must write the cgroup of a container before the
// container starts. Otherwise the container starts on both CPUs.
const partedPod = `{apiVersion: v1, kind: Pod, metadata: {name: parted, annotations: {cpuset-scheduler: "true"}}, spec: {nodeName: NODE, terminationGracePeriodSeconds: 1,
containers: [
{name: a, image: "busybox:1", command: [sh, -c, "grep _allowed_list /proc/self/status; sleep 1000"], resources: {requests: {cpu: 100m}, limits: {cpu: 1}}},
{name: b, image: "busybox:1", command: [sh, -c, "grep _allowed_list /proc/self/status; sleep 1000"], resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}]}}`

// twoParts starts a pod whose two containers have a CPU each.
func twoParts(t *testing.T, a *agent, m *pick.Map) {
	t.Helper()
	a.apply(strings.Replace(partedPod, "NODE", a.n.Name, 1))
	requireSoon(t, time.Minute, "the pod runs", func() error { return phase(t, a.c, "parted", "Running") })
	first := map[string]unit.CPUSet{}
	for _, name := range []string{"a", "b"} {
		requireSoon(t, 20*time.Second, name+" has printed its CPUs", func() error {
			said := kubectl(t, a.c, "logs", "parted", "-c", name)
			_, list, _ := strings.Cut(said, "Cpus_allowed_list:\t")
			list, _, printed := strings.Cut(list, "\n")
			set, err := unit.ParseCPUSet(list)
			if err != nil || !printed {
				return fmt.Errorf("it says %q", said)
			}
			first[name] = set
			return nil
		})
	}
	if first["a"].Len() != 1 || first["b"].Len() != 1 || first["a"] == first["b"] || !m.All().Contains(first["a"].Union(first["b"])) {
		t.Errorf("the first commands of the two containers ran on CPUs %v and %v", first["a"], first["b"])
	}
	kubectl(t, a.c, "delete", "pod", "parted", "--force", "--grace-period=0")
}

// standIn returns an example of own CPUs for two CPUs, whose program only prints
// its CPUs and waits. The webhooks of tenon-manager, which write the name of the
// scheduler, do not run here.
func standIn(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(ownCPUs + "two-cpus/" + name + ".yaml")
	must(t, err)
	var object map[string]any
	must(t, yaml.Unmarshal(text, &object))
	spec := object["spec"].(map[string]any)
	if template, is := spec["template"].(map[string]any); is {
		spec = template["spec"].(map[string]any)
	}
	spec["schedulerName"] = "tenon-scheduler"
	spec["terminationGracePeriodSeconds"] = 1 // the program ignores the signal to end
	delete(spec, "volumes")
	container := spec["containers"].([]any)[0].(map[string]any)
	delete(container, "volumeMounts")
	container["image"] = "busybox:1"
	container["command"] = []string{"sh", "-c", "grep _allowed_list /proc/self/status; while :; do sleep 1; done"}
	text, err = json.Marshal(object)
	must(t, err)
	return string(text)
}

// theCPUSeeds applies the published manifests, made smaller for a node with two
// CPUs, of which one stays shared. cal-pi owns a CPU, and go-demo has seats on
// the other one. nginx must wait, and its status must say why, until cal-pi is
// deleted.
func theCPUSeeds(t *testing.T, c *Cluster, n *Node) {
	h := &schedulerCluster{t: t, c: c, binary: schedulerBinary(t)}
	h.configureScheduler()
	h.start()
	kubectl(t, c, "label", "node", n.Name, "policy=intel7")
	apply := func(name string) {
		_, err := c.KubectlApply(t.Context(), standIn(t, name), "apply", "-f", "-")
		must(t, err)
	}
	// names lists the pods of an app that are in the given phase.
	names := func(app, phase string) []string {
		return strings.Fields(kubectl(t, c, "get", "pods", "-l", "app="+app, "--field-selector", "status.phase="+phase, "-o", "jsonpath={.items[*].metadata.name}"))
	}
	contract := func(name string) unit.CPUSet {
		var text struct {
			CPUs unit.CPUSet `json:"cpus"`
		}
		must(t, json.Unmarshal([]byte(kubectl(t, c, "get", "pod", name, "-o", `jsonpath={.metadata.annotations.tenon\.sh/cpus}`)), &text))
		return text.CPUs
	}
	apply("cal-pi")
	requireSoon(t, time.Minute, "cal-pi runs", func() error { return phase(t, c, "cal-pi", "Running") })
	pi := contract("cal-pi")
	startsOn(t, c, "cal-pi", pi)

	apply("nginx-topology-aware")
	requireSoon(t, time.Minute, "nginx says why it waits", func() error {
		said := kubectl(t, c, "get", "pods", "-l", "app=nginx", "-o", "jsonpath={.items[*].status.conditions[*].message}")
		if strings.Count(said, "1 no room for own CPUs: the last open ones stay open. preemption") != 2 {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})

	apply("go-demo")
	requireSoon(t, time.Minute, "go-demo runs", func() error {
		if running := names("go-demo", "Running"); len(running) != 4 {
			return fmt.Errorf("%q run", running)
		}
		return nil
	})
	for _, name := range names("go-demo", "Running") {
		seat := contract(name)
		if pi.Len() != 1 || seat.Len() != 1 || seat == pi {
			t.Errorf("%s has seats on CPUs %v, and cal-pi owns %v", name, seat, pi)
		}
		startsOn(t, c, name, seat)
	}

	begun := time.Now()
	kubectl(t, c, "delete", "pod", "cal-pi")
	requireSoon(t, time.Minute, "nginx starts when there is room", func() error {
		if running := names("nginx", "Running"); len(running) != 1 {
			return fmt.Errorf("%q run, and %q wait", running, names("nginx", "Pending"))
		}
		return nil
	})
	t.Logf("a waiting pod runs %v after the deletion of the other one", time.Since(begun).Round(10*time.Millisecond))
	startsOn(t, c, names("nginx", "Running")[0], pi)
}

// bindByContract creates a pod and binds it with a contract for the given CPUs.
func bindByContract(t *testing.T, c *Cluster, n *Node, name string, m *pick.Map, set unit.CPUSet) {
	t.Helper()
	_, err := c.KubectlApply(t.Context(), strings.ReplaceAll(pinnedPod, "NAME", name), "apply", "-f", "-")
	must(t, err)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationCPUSetScheduler: "true"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "pi"}}
	notes := kube.ContractAnnotations(&pod, m, place.Contract{Choice: cpus.Choice{Topology: m.Hash(), Policy: cpus.Exclusive, CPUs: set, Containers: map[string]unit.CPUSet{"pi": set}}})
	binding, err := json.Marshal(corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: notes}, Target: corev1.ObjectReference{Kind: "Node", Name: n.Name},
	})
	must(t, err)
	_, err = c.KubectlApply(t.Context(), string(binding), "create", "--raw", "/api/v1/namespaces/default/pods/"+name+"/binding", "-f", "-")
	must(t, err)
}

// startsOn waits until a pod runs. It checks that the pod's first command ran
// on the wanted CPUs.
func startsOn(t *testing.T, c *Cluster, name string, want unit.CPUSet) {
	t.Helper()
	requireSoon(t, time.Minute, name+" runs", func() error { return phase(t, c, name, "Running") })
	said := ""
	requireSoon(t, 20*time.Second, name+" has printed its CPUs", func() error {
		said = kubectl(t, c, "logs", name)
		if !strings.Contains(said, "Mems_allowed_list") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	if !strings.Contains(said, "Cpus_allowed_list:\t"+want.String()+"\n") {
		t.Errorf("the first command of %s did not run on CPUs %v: it says %q", name, want, said)
	}
}

// heldBy waits until the report of the node says that the pod holds the wanted
// CPUs, and that the given component chose them.
func heldBy(t *testing.T, a *agent, uid string, want unit.CPUSet, by string) {
	t.Helper()
	requireSoon(t, 30*time.Second, "the node reports what the pod holds", func() error {
		cpus := a.report().Status.CPUs
		if h := cpus.Pod(uid); h != nil && h.CPUs == want.String() && h.By == by {
			return nil
		}
		return fmt.Errorf("it reports %+v", cpus.Pods)
	})
}
