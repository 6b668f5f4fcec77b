package manager

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/share"
)

// A user has the rights of the role edit in one namespace of a scene.
type user struct {
	*scene
	client client.Client
	space  string
}

// editor returns a client of a user who has the rights of the role edit in two
// namespaces, as himself and as a service account of the first one. No controller adds up
// the role edit here, so the user gets its parts.
func (s *scene) editor(admin *rest.Config, first, second string) (as, account client.Client) {
	s.t.Helper()
	for _, space := range []string{first, second} {
		for _, role := range []string{"system:aggregate-to-edit", "system:aggregate-to-view"} {
			s.must(s.client.Create(s.ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: strings.ReplaceAll(role, ":", "-")}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: s.name}, {Kind: "ServiceAccount", Namespace: first, Name: "tenon-manager"}},
			}))
		}
	}
	with := func(name string, groups ...string) client.Client {
		rc := rest.CopyConfig(admin)
		rc.QPS, rc.Burst = -1, 0
		rc.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")}
		c, err := client.New(rc, client.Options{Scheme: s.client.Scheme()})
		s.must(err)
		return c
	}
	return with(s.name), with("system:serviceaccount:"+first+":tenon-manager", "system:serviceaccounts", "system:serviceaccounts:"+first)
}

// A try is one thing that a user of a namespace tries to gain CPU, memory or room that the
// administrator has not given, or to harm others.
type try struct {
	// object is what the user creates; SPACE and NODE are replaced. If it is empty, the user
	// does act.
	object string
	act    func() error
	// refused is a part of the refusal. If it is empty, the API server admits the try, and
	// harmless checks what it made of the object.
	refused  string
	harmless func(o *unstructured.Unstructured) error
}

// tried is a pod of a try, in the flow style of YAML.
func tried(meta, spec, resources string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {generateName: try-, namespace: SPACE` + meta + `}, spec: {` + spec + `containers: [{name: main, image: none, resources: {` + resources + `}}]}}`
}

// TestAUserOfANamespaceGainsNothing has a user with the role edit try what a namespace
// should not allow, against the webhooks, roles and admission policies of the chart. The
// administrator has applied docs/tenants.md: the namespace has few rights, and 2 CPUs of
// batch work. test/cluster has more tries, which need a kubelet.
func TestAUserOfANamespaceGainsNothing(t *testing.T) {
	s := newScene(t)
	admin := s.rc
	s.installed()
	s.awaitTrust()
	s.gate(true) // and no batch pods of other tests
	s.awaitGate()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	s.ready("n1")
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-shop"}}
	s.must(s.client.Create(s.ctx, shop))
	space := s.applied("tenants")
	as, account := s.editor(admin, space, shop.Name)
	u := user{s, as, space}
	waiting := u.waits()

	tries := u.tries(waiting, shop.Name, account)
	if s.minor() < 34 { // then the API server drops these resources
		delete(tries, "cpu of the pod in place of its batch CPU")
		delete(tries, "own CPUs at pod level")
	}
	if len(tries) < 50 {
		t.Fatalf("%d tries", len(tries))
	}
	for _, name := range slices.Sorted(maps.Keys(tries)) {
		u.check(name, tries[name])
	}

	// What was admitted changed nothing for others: the gate holds, the cap holds, and the
	// manager leads on.
	other, err := s.batch(shop.Name, "1k", "1Gi")
	s.must(err)
	s.waitUntil("a pod of another namespace gets room", soon, func() bool { return s.isOpen(other) })
	var pods corev1.PodList
	s.must(s.client.List(s.ctx, &pods, client.InNamespace(space)))
	var open int64
	for i := range pods.Items {
		if p := &pods.Items[i]; !kube.HasBatchGate(p) {
			open += int64(kube.RequestedBatch(p).CPU)
		}
	}
	if open > 2000 {
		t.Errorf("the pods of a namespace for 2000m have %dm", open)
	}
	if s.isOpen(waiting) {
		t.Error("the gate of the pod that waits is open")
	}
}

// applied applies the manifests of a page of docs, and returns the namespace that they make.
// The quotas get their status, as the controller of quotas does it.
func (s *scene) applied(page string) (namespace string) {
	s.t.Helper()
	text, err := os.ReadFile("../../../docs/" + page + ".md")
	s.must(err)
	own := strings.ReplaceAll(string(text), "team-a", s.name+"-team") // a namespace of this scene
	for i, block := range strings.Split(own, "```yaml\n") {
		manifest, _, _ := strings.Cut(block, "```")
		if i == 0 {
			continue
		}
		var o unstructured.Unstructured
		s.must(yaml.UnmarshalStrict([]byte(manifest), &o.Object))
		switch o.GetKind() {
		case "ConfigMap": // the scene has one of this name
			var m corev1.ConfigMap
			s.must(yaml.UnmarshalStrict([]byte(manifest), &m), s.client.Update(s.ctx, &m))
			continue
		case "Namespace":
			namespace = o.GetName()
		}
		s.must(s.client.Create(s.ctx, &o))
		if o.GetKind() != "ResourceQuota" {
			continue
		}
		var q corev1.ResourceQuota
		s.must(s.client.Get(s.ctx, client.ObjectKeyFromObject(&o), &q))
		q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{}}
		for name := range q.Spec.Hard {
			q.Status.Used[name] = resource.MustParse("0")
		}
		s.must(s.client.Status().Update(s.ctx, &q))
	}
	if namespace == "" {
		s.t.Fatalf("docs/%s.md makes no namespace", page)
	}
	return namespace
}

// waits creates a batch pod of the user that waits for room.
func (u user) waits() *corev1.Pod {
	u.t.Helper()
	p := u.pod("BE", listOf("kubernetes.io/batch-cpu", "2k", "kubernetes.io/batch-memory", "1Gi"))
	p.Namespace, p.Spec.NodeSelector = u.space, map[string]string{"disk": "none"}
	u.waitUntil("the user may create pods", soon, func() bool { return u.client.Create(u.ctx, p) == nil })
	if !kube.HasBatchGate(p) {
		u.t.Fatal("the pod has no gate")
	}
	return p
}

func (u user) check(name string, x try) {
	u.t.Helper()
	var o unstructured.Unstructured
	var err error
	if x.object == "" {
		err = x.act()
	} else {
		u.must(yaml.UnmarshalStrict([]byte(strings.NewReplacer("SPACE", u.space, "NODE", "n1").Replace(x.object)), &o.Object))
		err = u.client.Create(u.ctx, &o)
	}
	switch {
	case x.refused != "" && (err == nil || !strings.Contains(err.Error(), x.refused)):
		u.t.Errorf("%s: %v\nwant a refusal with %s", name, err, x.refused)
	case x.refused != "" && len(err.Error()) > 4000:
		u.t.Errorf("%s: the refusal has %d bytes", name, len(err.Error()))
	case x.refused == "" && err != nil:
		u.t.Errorf("%s: %v\nwant it to be admitted", name, err)
	case x.refused == "" && x.harmless != nil:
		if err := x.harmless(&o); err != nil {
			u.t.Errorf("%s: %v", name, err)
		}
	}
}

// podFrom returns an unstructured pod as a Pod.
func podFrom(o *unstructured.Unstructured) (*corev1.Pod, error) {
	text, err := o.MarshalJSON()
	var p corev1.Pod
	return &p, errors.Join(err, yaml.Unmarshal(text, &p))
}

// isGated fails for a pod without the gate of batch pods.
func isGated(o *unstructured.Unstructured) error {
	p, err := podFrom(o)
	if err == nil && !kube.HasBatchGate(p) {
		err = errors.New("the pod goes to its scheduler at once")
	}
	return err
}

const (
	triedBE  = `, labels: {koordinator.sh/qosClass: BE}`
	triedCPU = `requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}`
	mostRoom = "the namespace may have batch-cpu 2000m"
	unnamed  = "may not have "
)

// triedBatch returns batch resources, with requests equal to limits.
func triedBatch(cpu string) string {
	list := `{kubernetes.io/batch-cpu: ` + cpu + `, kubernetes.io/batch-memory: 64Mi}`
	return `requests: ` + list + `, limits: ` + list
}

// tries returns what the user tries: at the gate and shares, at the class and CPUs, with
// objectives, and with objects of his own that look like those of Tenon.
func (u user) tries(waiting *corev1.Pod, shop string, account client.Client) map[string]try {
	all := u.gateTries(waiting, account)
	maps.Copy(all, u.capTries())
	maps.Copy(all, u.classTries())
	maps.Copy(all, objectiveTries(shop))
	maps.Copy(all, u.forgeryTries(waiting, shop))
	return all
}

func (u user) patched(c client.Client, o client.Object, kind types.PatchType, text string) func() error {
	return func() error {
		return c.Patch(u.ctx, o.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(text)))
	}
}

func (u user) gateTries(waiting *corev1.Pod, account client.Client) map[string]try {
	const (
		rest   = "others need the right to change the namespace"
		remove = `{"spec":{"schedulingGates":[{"$patch":"delete","name":"tenon.sh/batch-room"}]}}`
	)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: u.space}}
	return map[string]try{
		"the gate, removed by a patch": {act: u.patched(u.client, waiting, types.StrategicMergePatchType, remove), refused: rest},
		"the gate, removed by an update": {act: func() error {
			var p corev1.Pod
			u.must(u.client.Get(u.ctx, client.ObjectKeyFromObject(waiting), &p))
			p.Spec.SchedulingGates = nil
			return u.client.Update(u.ctx, &p)
		}, refused: rest},
		"the gate, replaced by another one": {
			act:     u.patched(u.client, waiting, types.JSONPatchType, `[{"op":"replace","path":"/spec/schedulingGates/0/name","value":"example.com/quota"}]`),
			refused: "only deletion is allowed",
		},
		"the gate, removed by an account with the name of the manager": {act: u.patched(account, waiting, types.StrategicMergePatchType, remove), refused: rest},
		"a node in place of the gate": {act: func() error {
			return u.client.SubResource("binding").Create(u.ctx, waiting.DeepCopy(), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}})
		}, refused: "forbidden"},
		"a pod that has ended only by its status": {act: func() error {
			return u.client.Status().Patch(u.ctx, waiting.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`)))
		}, refused: "forbidden"},
		"a pod of a DaemonSet that did not make it": {
			object:   tried(triedBE+`, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: x, uid: x, controller: true}]`, `nodeSelector: {disk: none}, `, triedBatch("100")),
			harmless: isGated,
		},
		"a gate of another program beside it": {
			object: tried(triedBE, `schedulingGates: [{name: example.com/quota}], `, triedBatch("100")), harmless: isGated,
		},
		"a larger cap of its own namespace":    {act: u.patched(u.client, namespace, types.MergePatchType, `{"metadata":{"annotations":{"tenon.sh/batch":"{\"weight\":1000}"}}}`), refused: "forbidden"},
		"a namespace that Tenon leaves alone":  {act: u.patched(u.client, namespace, types.MergePatchType, `{"metadata":{"labels":{"tenon.sh/ignore":"true"}}}`), refused: "forbidden"},
		"a weight in the annotation of a pod":  {object: tried(triedBE+`, annotations: {tenon.sh/batch: '{"weight": 1000}'}`, `nodeSelector: {disk: none}, `, triedBatch("100")), harmless: isGated},
		"a place before others by its creator": {object: tried(triedBE+`, creationTimestamp: "2001-01-01T00:00:00Z"`, `nodeSelector: {disk: none}, `, triedBatch("100")), harmless: isYoung},
	}
}

// isYoung fails for a pod whose creation lies in the past.
func isYoung(o *unstructured.Unstructured) error {
	if age := time.Since(o.GetCreationTimestamp().Time); age > time.Hour {
		return fmt.Errorf("the pod is %v old, so its turn is before that of others", age)
	}
	return isGated(o)
}

func (u user) capTries() map[string]try {
	mirror := triedBE + `, annotations: {kubernetes.io/config.mirror: a, kubernetes.io/config.hash: a, kubernetes.io/config.source: file}, ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: u, controller: true}]`
	return map[string]try{
		"more than the cap in one pod": {object: tried(triedBE, "", triedBatch("3k")), refused: mostRoom},
		"more than the cap in an init container": {
			object:  tried(triedBE, `initContainers: [{name: init, image: none, resources: {`+triedBatch("3k")+`}}], `, triedBatch("100")),
			refused: mostRoom,
		},
		"more than the cap in a sidecar": {
			object:  tried(triedBE, `initContainers: [{name: side, image: none, restartPolicy: Always, resources: {`+triedBatch("1500")+`}}], `, triedBatch("600")),
			refused: mostRoom,
		},
		"more than the cap by the former name":     {object: tried(triedBE, "", strings.ReplaceAll(triedBatch("3k"), "kubernetes.io/", "koordinator.sh/")), refused: mostRoom},
		"more than the cap by cpu":                 {object: tried(triedBE, "", `requests: {cpu: 3, memory: 64Mi}, limits: {cpu: 3, memory: 64Mi}`), refused: mostRoom},
		"more than the cap as a static pod":        {object: tried(mirror, `nodeName: NODE, `, triedBatch("100k")), refused: "only a kubelet creates the mirror of a static pod"},
		"cpu of the pod in place of its batch CPU": {object: tried(triedBE, `resources: {requests: {cpu: 8}, limits: {cpu: 8}}, `, triedBatch("100")), refused: "cannot have cpu or memory at pod level"},
		"batch work that keeps its cpu": {
			object: tried(triedBE+`, annotations: {config.koordinator.sh/skip-update-resources: "true"}`, "", triedCPU),
			harmless: func(o *unstructured.Unstructured) error { // a quota on requests.cpu counts it
				p, err := podFrom(o)
				if cpu := p.Spec.Containers[0].Resources.Requests.Cpu(); cpu.Value() != 1 || kube.RequestedBatch(p) != (share.Amount{}) {
					return errors.Join(err, fmt.Errorf("the scheduler counts %v and %v", cpu, kube.RequestedBatch(p)))
				}
				return err
			},
		},
		"memory without CPU to count":             {object: tried(triedBE, "", `requests: {kubernetes.io/batch-memory: 64Mi}, limits: {kubernetes.io/batch-memory: 64Mi}`), refused: unnamed + "batch work above its requests"},
		"an init container that requests nothing": {object: tried(triedBE, `initContainers: [{name: init, image: none}], `, triedBatch("100")), refused: unnamed + "batch work above its requests"},
		"less than nothing":                       {object: tried(triedBE, "", `requests: {kubernetes.io/batch-cpu: "-4k"}, limits: {kubernetes.io/batch-cpu: "4k"}`), refused: "must be greater than or equal to 0"},
	}
}

func (u user) classTries() map[string]try {
	service := u.pod("LS", listOf("cpu", "1", "memory", "1Gi"))
	service.Namespace = u.space
	u.must(u.client.Create(u.ctx, service))
	return map[string]try{
		"a DaemonSet, which is evicted last": {
			object:  `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, namespace: SPACE}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b, koordinator.sh/qosClass: BE}}, spec: {containers: [{name: main, image: none}]}}}}`,
			refused: "exceeded quota: objects",
		},
		"a service before those of the cluster": {object: tried("", `priorityClassName: system-node-critical, `, triedCPU), refused: "exceeded quota: no-critical-pods"},
		"own CPUs of a pod that runs": {
			act:     u.patched(u.client, service, types.MergePatchType, `{"metadata":{"annotations":{"cpuset-scheduler":"true"}}}`),
			refused: unnamed + "own CPUs (1)",
		},
		"own CPUs by class LSE":                     {object: tried(`, labels: {koordinator.sh/qosClass: LSE}`, "", triedCPU), refused: unnamed + "own CPUs (1)"},
		"own CPUs of an init container":             {object: tried(`, labels: {koordinator.sh/qosClass: LSR}`, `initContainers: [{name: init, image: none, resources: {requests: {cpu: 4}}}], `, triedCPU), refused: unnamed + "own CPUs (4)"},
		"own CPUs at pod level":                     {object: tried(`, labels: {koordinator.sh/qosClass: LSR}`, `resources: {requests: {cpu: 2}, limits: {cpu: 2}}, `, triedCPU), refused: unnamed + "own CPUs (2)"},
		"a batch pod before those of others":        {object: tried(triedBE, `priorityClassName: system-cluster-critical, `, triedBatch("100")), refused: unnamed + "a priority above that of batch work"},
		"a batch pod that is left alone":            {act: u.patched(u.client, service, types.MergePatchType, `{"metadata":{"labels":{"tenon.sh/ignore":"true"}}}`), refused: unnamed + "pods that Tenon leaves alone"},
		"a class that is none":                      {object: tried(`, labels: {koordinator.sh/qosClass: be}`, "", triedCPU), refused: "want one of"},
		"profiles that were applied to another pod": {object: tried(triedBE+`, annotations: {tenon.sh/colocation-profiles: none, tenon.sh/colocation-profiles-seal: "1.a"}`, `nodeSelector: {disk: none}, `, triedBatch("100")), harmless: isGated},
		"a runtime's limit in place of the webhook's": {
			object: tried(triedBE+`, annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"64k"}}}}'}`, `nodeSelector: {disk: none}, `, triedBatch("100")),
			harmless: func(o *unstructured.Unstructured) error {
				if text := o.GetAnnotations()[kube.AnnotationExtended]; strings.Contains(text, "64k") || !strings.Contains(text, `"kubernetes.io/batch-cpu":"100"`) {
					return fmt.Errorf("the runtime gets %s", text)
				}
				return nil
			},
		},
	}
}

// objectiveTries are objectives that should make an agent or the manager read what is not
// the owner's, work for ever, or bound batch work without end.
func objectiveTries(shop string) map[string]try {
	states := func(text string) string {
		return tried(`, labels: {koordinator.sh/qosClass: LS}, annotations: {tenon.sh/objective: '`+text+`'}`, "", triedCPU)
	}
	const at = "metadata.annotations[tenon.sh/objective]"
	short := `{"runQueueDelay": "999us", "p99": "1ms", "source": "socket", "port": 80}`
	all := map[string]try{
		"an objective":                          {object: states(`{"runQueueDelay": "2ms"}`), refused: unnamed + "objectives"},
		"an objective below the least":          {object: strings.ReplaceAll(states(short), "SPACE", shop), refused: "want 1ms or more"},
		"requests below the least":              {object: strings.ReplaceAll(states(short), "SPACE", shop), refused: "want 2ms or more"},
		"an objective with a query as a label":  {object: states(`{"p99": "5ms", "source": "query", "labels": {"a=\"\"} or vector(1) #": "b"}}`), refused: "the name of a label"},
		"an objective with a query as a family": {object: states(`{"p99": "5ms", "source": "query", "family": "up} or vector(1) #"}`), refused: at + ".family"},
		"an objective of another namespace":     {object: states(`{"p99": "5ms", "source": "query", "labels": {"namespace": "kube-system"}}`), refused: "Tenon sets namespace and pod"},
		"an objective of a nonsensical key":     {object: states(`{"runQueueDelay": "1ms", "namespace": "kube-system"}`), refused: at + ".namespace"},
		"an objective of 100,000 bytes":         {object: states(`{"runQueueDelay": "` + strings.Repeat("9", 100_000) + `s"}`), refused: at + ".runQueueDelay"},
		"an objective of 10,000 labels":         {object: states(`{"p99": "5ms", "source": "query", "labels": {` + manyLabels(10_000) + `}}`), refused: at + ".labels"},
	}
	for _, text := range []string{"-1ms", "0", "1ns", "9999999h", "1e300s", "NaN", "2"} {
		all["an objective within "+text] = try{object: states(`{"runQueueDelay": "` + text + `"}`), refused: at + ".runQueueDelay"}
		all["requests within "+text] = try{object: states(`{"p99": "` + text + `", "source": "socket", "port": 80}`), refused: at + ".p99"}
	}
	for _, path := range []string{"//169.254.169.254/latest", "http://169.254.169.254/", "@169.254.169.254/", "/a b", "/\\u000d\\u000aHost: x"} {
		all["metrics at "+path] = try{object: states(`{"p99": "5ms", "source": "metrics", "port": 80, "path": "` + path + `"}`), refused: at + ".path"}
	}
	for _, port := range []string{"0", "-1", "65536", "1e9"} {
		all["metrics at port "+port] = try{object: states(`{"p99": "5ms", "source": "metrics", "port": ` + port + `}`), refused: at + ".port"}
	}
	return all
}

func manyLabels(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"l%d": "x"`, i)
	}
	return strings.Join(all, ", ")
}

func (u user) forgeryTries(waiting *corev1.Pod, shop string) map[string]try {
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	named := func(name, data string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `, namespace: SPACE}, data: {` + data + `}}`
	}
	stillGated := func(*unstructured.Unstructured) error {
		time.Sleep(300 * time.Millisecond) // the manager reads its settings within 100 ms
		p, err := u.batch(shop, "100k", "1Gi")
		if err == nil && u.isOpen(p) {
			err = errors.New("the gate is switched off")
		}
		return err
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: u.space, Name: "tenon-manager"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("evil"), LeaseDurationSeconds: new(int32(86400)), RenewTime: &now,
	}}
	return map[string]try{
		"settings in a ConfigMap of its own": {object: named("slo-controller-config", `batch-config: '{"gate":false}', colocation-config: '{"enable":false}'`), harmless: stillGated},
		"settings of all namespaces":         {object: named("ack-slo-pod-config", `memory-qos: '{"enabledNamespaces":["SPACE"]}'`), harmless: stillGated},
		"a report about a node":              {act: u.patched(u.client, report, types.MergePatchType, `{"status":{"batch":{}}}`), refused: "forbidden"},
		"a Lease with the name of the manager's": {act: func() error {
			return u.client.Create(u.ctx, lease)
		}, harmless: stillGated},
		"an event of an agent": {
			object: `{apiVersion: v1, kind: Event, metadata: {generateName: e-, namespace: SPACE}, involvedObject: {apiVersion: v1, kind: Pod, namespace: SPACE, name: x}, reason: CPUBoundRemoved, message: "the bound is gone", source: {component: tenond, host: n1}}`,
		},
		"a terminal's escape sequence as an owner's name": {
			object:   tried(triedBE+`, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: "x\e[2Jy", uid: u, controller: true}]`, `nodeSelector: {disk: none}, schedulerName: "x\e[2Jy", `, triedBatch("100")),
			harmless: isGated, // TestNoTextOfAPodLeavesItsLine has what kubectl tenon prints
		},
		"a culprit of another namespace": {
			object:   tried(triedBE+`, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: "/`+shop+`/train", uid: u, controller: true}]`, `nodeSelector: {disk: none}, `, triedBatch("100")),
			harmless: isGated, // TestAnOwnerIsOfTheNamespaceOfItsPod has what an agent remembers
		},
		"other resources for a batch pod that waits": {
			act: func() error {
				return u.client.SubResource("resize").Patch(u.ctx, waiting.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"8"},"limits":{"cpu":"8"}}}]}}`)))
			},
			refused: "forbidden",
		},
	}
}
