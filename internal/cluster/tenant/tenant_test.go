package tenant

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// pod reads a pod from labels, annotations and the rest of its first container.
func pod(t *testing.T, labels, annotations, resources string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	text := "metadata: {name: p, namespace: team, labels: {" + labels + "}, annotations: {" + annotations + "}}\nspec: {containers: [{name: c, resources: {" + resources + "}}]}"
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return &p
}

const (
	system = "koordinator.sh/qosClass: SYSTEM"
	lsr    = "koordinator.sh/qosClass: LSR"
	be     = "koordinator.sh/qosClass: BE"
	two    = "requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"
	batch  = "requests: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}, limits: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}"
)

// TestOnlySystemIsForbiddenByDefault checks a namespace without labels: its pods
// may ask for everything but class SYSTEM and to be left alone.
func TestOnlySystemIsForbiddenByDefault(t *testing.T) {
	for _, r := range All() {
		for name, want := range map[string]bool{"team": r != System && r != Ignore, "kube-system": true, "tenon-system": true} {
			if got := (Namespace{Name: name, Home: "tenon-system"}).Allows(r); got != want {
				t.Errorf("%s in %s: %v, want %v", r, name, got, want)
			}
		}
		for value, want := range map[string]bool{"true": true, "false": false, "": false, "True": false, "yes": false} {
			for _, name := range []string{"team", "kube-system"} {
				n := Namespace{Name: name, Labels: map[string]string{LabelPrefix + string(r): value}}
				if got := n.Allows(r); got != want {
					t.Errorf("%s in %s with the label %q: %v, want %v", r, name, value, got, want)
				}
			}
		}
	}
}

// TestWhatAPodAsksForIsRefusedByOneRight takes one right from a namespace and
// checks which pods it refuses. Each of these pods is admitted with the right.
func TestWhatAPodAsksForIsRefusedByOneRight(t *testing.T) {
	priority := func(p *corev1.Pod, n int32) *corev1.Pod { p.Spec.Priority = &n; return p }
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		right Right
		want  string // the beginning of the message; empty: admitted
	}{
		"SYSTEM by the label":          {pod(t, system, "", two), System, `metadata.labels[koordinator.sh/qosClass]: namespace "team" may not have class SYSTEM`},
		"SYSTEM by ACK's annotation":   {pod(t, "", "alibabacloud.com/qosClass: SYSTEM", two), System, "metadata.annotations[alibabacloud.com/qosClass]: "},
		"the label hides the other":    {pod(t, "koordinator.sh/qosClass: LS", "alibabacloud.com/qosClass: SYSTEM", two), System, ""},
		"a critical priority":          {priority(pod(t, "", "", ""), 2000001000), System, ""},
		"left alone":                   {pod(t, be+", tenon.sh/ignore: 'true'", "", ""), Ignore, `metadata.labels[tenon.sh/ignore]: namespace "team" may not have pods that Tenon leaves alone`},
		"left alone, and LSR":          {pod(t, lsr+", tenon.sh/ignore: 'true'", "", two), OwnCPUs, ""},
		"LSE":                          {pod(t, "koordinator.sh/qosClass: LSE", "", two), "LSE", "metadata.labels[koordinator.sh/qosClass]: "},
		"LSE where LSR is taken":       {pod(t, "koordinator.sh/qosClass: LSE", "", two), "LSR", ""},
		"LS without a label":           {pod(t, "", "", two), "LS", "metadata.labels[koordinator.sh/qosClass]: namespace \"team\" may not have class LS, which this pod gets because it names no class"},
		"BE without a label":           {pod(t, "", "", ""), "BE", "metadata.labels[koordinator.sh/qosClass]: "},
		"a priority by its label":      {pod(t, "koordinator.sh/priority-class: koord-prod", "", two), "koord-prod", "metadata.labels[koordinator.sh/priority-class]: "},
		"a priority by its number":     {priority(pod(t, "", "", two), 9500), "koord-prod", "spec.priorityClassName: "},
		"a number above its label":     {priority(pod(t, "koordinator.sh/priority-class: koord-mid", "", two), 9500), "koord-prod", "spec.priorityClassName: namespace \"team\" may not have the priority koord-prod"},
		"a label above its number":     {priority(pod(t, "koordinator.sh/priority-class: koord-prod", "", two), 7500), "koord-prod", "metadata.labels[koordinator.sh/priority-class]: "},
		"a number below its label":     {priority(pod(t, "koordinator.sh/priority-class: koord-prod", "", two), 3999), "koord-free", "spec.priorityClassName: "},
		"an unknown label":             {priority(pod(t, "koordinator.sh/priority-class: mid", "", two), 9999), "koord-prod", "spec.priorityClassName: "},
		"a number of no class":         {priority(pod(t, "koordinator.sh/priority-class: koord-mid", "", two), 10000), "koord-prod", ""},
		"another priority":             {priority(pod(t, "", "", two), 5500), "koord-prod", ""},
		"a batch pod above others":     {priority(pod(t, be, "", batch), 2000000000), Overrides, "spec.priorityClassName: namespace \"team\" may not have a priority above that of batch work (2000000000)"},
		"batch between the classes":    {priority(pod(t, be, "", batch), 6000), Overrides, "spec.priorityClassName: "},
		"batch of a batch priority":    {priority(pod(t, be, "", batch), 5999), Overrides, ""},
		"batch of no priority":         {priority(pod(t, be, "", batch), 0), Overrides, ""},
		"a service above others":       {priority(pod(t, "", "", two), 2000000000), Overrides, ""},
		"own CPUs by class":            {pod(t, lsr, "", two), OwnCPUs, "metadata.labels[koordinator.sh/qosClass]: namespace \"team\" may not have own CPUs (2)"},
		"own CPUs by ACK's word":       {pod(t, "", `cpuset-scheduler: "true"`, two), OwnCPUs, "metadata.annotations[cpuset-scheduler]: "},
		"own CPUs that are required":   {pod(t, "", "cpuset-scheduler: required", two), OwnCPUs, "metadata.annotations[cpuset-scheduler]: "},
		"seats are not own CPUs":       {pod(t, "", `cpuset-scheduler: "true"`, "requests: {cpu: 1}, limits: {cpu: 2}"), OwnCPUs, ""},
		"a pool of class LSR":          {pod(t, lsr, `cpuset-scheduler: "true", cpu-policy: static-burst`, two), OwnCPUs, ""},
		"an objective":                 {pod(t, "", `tenon.sh/objective: '{"runQueueDelay": "2ms"}'`, two), Objectives, "metadata.annotations[tenon.sh/objective]: "},
		"a rank among services":        {pod(t, "", `koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": 2}'`, two), Overrides, "metadata.annotations[koordinator.sh/cpuQOS]: "},
		"no evictions":                 {pod(t, be, `koordinator.sh/eviction-policy: '[]'`, batch), Overrides, "metadata.annotations[koordinator.sh/eviction-policy]: "},
		"the last to be evicted":       {pod(t, be+`, koordinator.sh/priority: "2147483647"`, "", batch), Overrides, "metadata.labels[koordinator.sh/priority]: "},
		"batch requests of 0":          {pod(t, be, "", "requests: {kubernetes.io/batch-cpu: 0, kubernetes.io/batch-memory: 0}, limits: {kubernetes.io/batch-cpu: 100k, kubernetes.io/batch-memory: 100Gi}"), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"a batch request of 1":         {pod(t, be, "", "requests: {kubernetes.io/batch-cpu: 1, kubernetes.io/batch-memory: 1Gi}, limits: {kubernetes.io/batch-cpu: 100k, kubernetes.io/batch-memory: 1Gi}"), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"batch work without amounts":   {pod(t, be, "", ""), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"batch requests of its limits": {pod(t, be, "", batch), BatchAboveRequests, ""},
		"batch work that keeps cpu":    {pod(t, be, "", two), BatchAboveRequests, ""},
		"BE by default":                {pod(t, "", "", ""), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: namespace \"team\" may not have batch work above its requests, which a pod without a class and without requests is: request cpu or memory, or write the label koordinator.sh/qosClass: BE and requests equal to limits for kubernetes.io/batch-cpu, or ask an administrator"},
		"BE by a request of 0":         {pod(t, "", "", "requests: {cpu: 0, memory: 0}"), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"BE by an empty label":         {pod(t, "koordinator.sh/qosClass: ''", "", ""), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"BE by a low priority":         {priority(pod(t, "", "", ""), 5500), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"LS by default":                {pod(t, "", "", "requests: {cpu: 1m}"), BatchAboveRequests, ""},
		"LS without requests":          {pod(t, "koordinator.sh/qosClass: LS", "", ""), BatchAboveRequests, ""},
		"batch work with a low cpu":    {pod(t, be, "", "requests: {cpu: 1m, memory: 1Gi}, limits: {cpu: 64, memory: 1Gi}"), BatchAboveRequests, "spec.containers[c].resources.limits[cpu]: "},
		"batch work of little memory":  {pod(t, be, "", "requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 1, memory: 1Ti}"), BatchAboveRequests, "spec.containers[c].resources.limits[memory]: "},
		"batch work with limits only":  {pod(t, be, "", "limits: {cpu: 64, memory: 1Gi}"), BatchAboveRequests, ""},
		"batch above, beside a range":  {pod(t, be, "", "requests: {cpu: 1, kubernetes.io/batch-cpu: 1, kubernetes.io/batch-memory: 1Gi}, limits: {cpu: 1, kubernetes.io/batch-cpu: 64k, kubernetes.io/batch-memory: 1Gi}"), BatchAboveRequests, "spec.containers[c].resources.limits[kubernetes.io/batch-cpu]: "},
		"batch bounded, in a range":    {pod(t, be, "", "requests: {cpu: 1m, kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}, limits: {cpu: 1, kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}"), BatchAboveRequests, ""},
	} {
		with := Namespace{Name: "team", Labels: map[string]string{LabelPrefix + string(System): "true", LabelPrefix + string(Ignore): "true"}}
		without := Namespace{Name: "team", Labels: maps.Clone(with.Labels)}
		without.Labels[LabelPrefix+string(c.right)] = "false"
		if faults := with.Refuse(nil, c.pod); len(faults) > 0 {
			t.Errorf("%s: refused with all rights: %v", name, faults)
		}
		faults := without.Refuse(nil, c.pod)
		if c.want == "" && len(faults) > 0 || c.want != "" && (len(faults) == 0 || !strings.HasPrefix(faults[0].String(), c.want)) {
			t.Errorf("%s: %v, want %q", name, faults, c.want)
		}
		for _, f := range faults {
			if !strings.Contains(f.Problem, LabelPrefix+string(c.right)) {
				t.Errorf("%s: %q does not name the label", name, f.Problem)
			}
		}
	}
}

// TestAnUpdateIsRefusedOnlyForWhatItAdds changes a running pod in a namespace
// that may have nothing. The pod is older than the labels of the namespace.
func TestAnUpdateIsRefusedOnlyForWhatItAdds(t *testing.T) {
	n := Namespace{Name: "team", Labels: map[string]string{}}
	for _, r := range All() {
		n.Labels[LabelPrefix+string(r)] = "false"
	}
	ack := `cpuset-scheduler: "true"`
	of := func(cpus string) string { return "requests: {cpu: " + cpus + "}, limits: {cpu: " + cpus + "}" }
	for name, c := range map[string]struct {
		old, now *corev1.Pod
		want     Right // empty: admitted
	}{
		"BE by default, another label":    {pod(t, "", "", ""), pod(t, "app: web", "", ""), ""},
		"a lower cpu limit of batch work": {pod(t, be, "", "requests: {cpu: 1m, memory: 1Gi}, limits: {cpu: 64, memory: 1Gi}"), pod(t, be, "", "requests: {cpu: 1m, memory: 1Gi}, limits: {cpu: 32, memory: 1Gi}"), ""},
		"a cpu limit above its request":   {pod(t, be, "", two), pod(t, be, "", "requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2001m, memory: 1Gi}"), BatchAboveRequests},
		"a limit of half a CPU more":      {pod(t, be, "", "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1500m, memory: 1Gi}"), pod(t, be, "", "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"), BatchAboveRequests},
		"nothing":                         {pod(t, lsr, "", of("2")), pod(t, lsr, "", of("2")), ""},
		"another label":                   {pod(t, lsr, "", of("2")), pod(t, lsr+", app: web", "", of("2")), ""},
		"more own CPUs":                   {pod(t, lsr, "", of("2")), pod(t, lsr, "", of("3")), OwnCPUs},
		"fewer own CPUs":                  {pod(t, lsr, "", of("2")), pod(t, lsr, "", of("1")), ""},
		"own CPUs where it had none":      {pod(t, "", "", of("2")), pod(t, "", ack, of("2")), OwnCPUs},
		"seats become own CPUs":           {pod(t, "", ack, "requests: {cpu: 1}, limits: {cpu: 2}"), pod(t, "", ack, of("2")), OwnCPUs},
		"own CPUs are given up":           {pod(t, "", ack, of("2")), pod(t, "", "", of("2")), ""},
		"class SYSTEM is added":           {pod(t, "", "", of("2")), pod(t, system, "", of("2")), System},
		"class SYSTEM by ACK's word":      {pod(t, "", "", of("2")), pod(t, "", "alibabacloud.com/qosClass: SYSTEM", of("2")), System},
		"an objective":                    {pod(t, "", "", of("2")), pod(t, "", "tenon.sh/objective: '{}'", of("2")), Objectives},
		"another objective":               {pod(t, "", "tenon.sh/objective: '{}'", of("2")), pod(t, "", `tenon.sh/objective: '{"runQueueDelay": "1ms"}'`, of("2")), Objectives},
		"the objective goes":              {pod(t, "", "tenon.sh/objective: '{}'", of("2")), pod(t, "", "", of("2")), ""},
		"a rank":                          {pod(t, "", "", of("2")), pod(t, "", `koordinator.sh/cpuQOS: '{"enable": true}'`, of("2")), Overrides},
		"an order that moves to the back": {pod(t, be, `koordinator.sh/eviction-priority: "1"`, ""), pod(t, be, `koordinator.sh/eviction-priority: "2"`, ""), Overrides},
	} {
		var got []string
		for _, f := range n.Refuse(c.old, c.now) {
			got = append(got, f.String())
		}
		if text := strings.Join(got, "\n"); c.want == "" && text != "" || !strings.Contains(text, string(c.want)) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// TestALabelThatNamesNoRightIsRefused checks the labels of namespaces. A
// misspelt label would silently leave the right as it is.
func TestALabelThatNamesNoRightIsRefused(t *testing.T) {
	for label, want := range map[string]string{
		"allow.tenon.sh/SYSTEM: true":          "",
		"allow.tenon.sh/own-cpus: false":       "",
		"allow.tenon.sh/own-cpu: false":        "metadata.labels[allow.tenon.sh/own-cpu]: unknown right: did you mean allow.tenon.sh/own-cpus?",
		"allow.tenon.sh/owncpus: false":        "metadata.labels[allow.tenon.sh/owncpus]: unknown right: did you mean allow.tenon.sh/own-cpus?",
		"allow.tenon.sh/gpu: false":            "metadata.labels[allow.tenon.sh/gpu]: unknown right: want one of LSE, LSR, LS, SYSTEM, BE, koord-prod, koord-mid, koord-batch, koord-free, own-cpus, objectives, overrides, batch-above-requests, ignore",
		"allow.tenon.sh/LSR: no":               `metadata.labels[allow.tenon.sh/LSR]: "no": want "true" or "false"`,
		"allow.tenon.sh/LSR:":                  `metadata.labels[allow.tenon.sh/LSR]: "": want "true" or "false"`,
		"tenon.sh/require-admission: whatever": "",
	} {
		key, value, _ := strings.Cut(label, ":")
		labels := map[string]string{key: strings.TrimSpace(value)}
		got := ""
		if faults := CheckLabels(nil, labels); len(faults) > 0 {
			got = faults[0].String()
		}
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", label, got, want)
		}
		if faults := CheckLabels(labels, labels); len(faults) > 0 {
			t.Errorf("%s is checked again: %v", label, faults)
		}
	}
}

// TestAQuotaNamesWhatNeverCounts lists resources of quotas.
func TestAQuotaNamesWhatNeverCounts(t *testing.T) {
	for names, want := range map[string]string{
		"requests.kubernetes.io/batch-cpu requests.kubernetes.io/batch-memory pods": "requests.kubernetes.io/batch-cpu requests.kubernetes.io/batch-memory",
		"kubernetes.io/batch-cpu limits.kubernetes.io/batch-cpu":                    "kubernetes.io/batch-cpu limits.kubernetes.io/batch-cpu",
		"requests.kubernetes.io/mid-cpu":                                            "requests.kubernetes.io/mid-cpu",
		"requests.koordinator.sh/batch-cpu requests.alibabacloud.com/reclaimed":     "requests.alibabacloud.com/reclaimed requests.koordinator.sh/batch-cpu",
		"cpu requests.cpu limits.memory pods count/jobs.batch":                      "",
		"requests.nvidia.com/gpu requests.koordinator.sh/gpu-core":                  "",
	} {
		q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
		for _, n := range strings.Fields(names) {
			q.Spec.Hard[corev1.ResourceName(n)] = *q.Spec.Hard.Pods()
		}
		var wanted []corev1.ResourceName
		for _, n := range strings.Fields(want) {
			wanted = append(wanted, corev1.ResourceName(n))
		}
		if got := Uncounted(&q); !slices.Equal(got, wanted) {
			t.Errorf("%s: %v, want %v", names, got, wanted)
		}
	}
}
