package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/apiserver/apitest"
	"tenon.sh/tenon/internal/cluster/containerstart"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// deafKubelet answers every request with an error.
type deafKubelet struct{}

func (deafKubelet) Pods(context.Context) ([]corev1.Pod, bool, error) {
	return nil, false, errors.New("connection refused")
}
func (deafKubelet) Facts(context.Context) (kubelet.Facts, error) {
	return kubelet.Facts{}, errors.New("connection refused")
}
func (deafKubelet) Files() (kubelet.Files, error) { return kubelet.Files{}, nil }

// openTestCluster makes and runs a Follower of an API server.
func openTestCluster(t *testing.T, s *apitest.Server, dir string) *Follower {
	t.Helper()
	return openHeardCluster(t, s, dir, func(tick.Event) {})
}

// openHeardCluster makes and runs a Follower that calls news for each event.
func openHeardCluster(t *testing.T, s *apitest.Server, dir string, news func(tick.Event)) *Follower {
	t.Helper()
	api, err := apiserver.Open(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	c := Follow(Kubernetes{Node: "node-1", API: api, Kubelet: deafKubelet{}, Poll: time.Second, Namespace: "koordinator-system", ConfigMap: "slo-controller-config"},
		Node{Version: "v0", StateDir: dir, Changed: func() {}, News: news}, proc.Default(), slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); c.self.Run(ctx) }()
	go c.configs.Run(ctx)
	for _, w := range c.byspace {
		go w.Run(ctx)
	}
	t.Cleanup(func() { stop(); <-over })
	return c
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "koordinator-system", Name: "slo-controller-config"}, Data: data}
}

func suppressAt(percent string) map[string]string {
	return map[string]string{"resource-threshold-config": `{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":0,"cpuSuppressThresholdPercent":` + percent + `},
"nodeStrategies":[{"nodeSelector":{"matchLabels":{"pool":"small"}},"enable":true,"cpuSuppressThresholdPercent":40}]}`}
}

// threshold calls FollowConfig until the threshold of CPU suppress has the
// wanted value.
func threshold(t *testing.T, c *Follower, want unit.Percent) {
	t.Helper()
	soon(t, "the threshold", func() bool {
		c.FollowConfig()
		return c.MergeOver(config.Config{}).Policy.Suppress.ThresholdPercent == want
	})
}

func TestTheConfigMapAndTheLabelsOfTheNodeMakeItsConfiguration(t *testing.T) {
	s := apitest.New(t)
	self := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u"}}
	s.Put(self)
	s.Put(configMap(suppressAt("70")))
	c := openTestCluster(t, s, t.TempDir())
	threshold(t, c, 70)
	s.Put(configMap(suppressAt("55")))
	threshold(t, c, 55)
	self.Labels = map[string]string{"pool": "small"}
	s.Put(self)
	threshold(t, c, 40)
	self.Labels = nil
	s.Put(self)
	threshold(t, c, 55)

	s.Put(configMap(suppressAt("550")))
	soon(t, "the fault", func() bool { c.FollowConfig(); return len(c.cfg.status.Faults) > 0 })
	if got := c.MergeOver(config.Config{}).Policy.Suppress.ThresholdPercent; got != 55 {
		t.Errorf("a faulty value replaced 55: %v", got)
	}
	if !strings.Contains(c.cfg.status.Faults[0], "550") {
		t.Errorf("the fault names no value: %v", c.cfg.status.Faults)
	}
	s.Put(configMap(suppressAt("55")))
	self.Annotations = map[string]string{"node.koordinator.sh/reservation": `{"reservedCPUs": "a"}`}
	s.Put(self)
	soon(t, "the fault of the annotation", func() bool { c.FollowConfig(); return len(c.cfg.status.Ignored) > 0 && len(c.cfg.status.Faults) == 0 })
	if got := c.cfg.status.Ignored; len(got) != 1 || !strings.HasPrefix(got[0], `the node's annotation node.koordinator.sh/reservation.reservedCPUs: "a": want CPUs`) {
		t.Errorf("the fault of the annotation: %q", got)
	}
}

// TestADeletedConfigMapHoldsForAWhile deletes the ConfigMap and creates it
// again. This happens with kubectl replace --force, and when a chart moves its
// ConfigMap.
func TestADeletedConfigMapHoldsForAWhile(t *testing.T) {
	s := apitest.New(t)
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u"}})
	byspace := configMap(map[string]string{"cpu-burst": `{"disabledNamespaces": ["test"]}`})
	byspace.Name = kube.PodConfigMap
	s.Put(configMap(suppressAt("70")))
	s.Put(byspace)
	dir := t.TempDir()
	c := openTestCluster(t, s, dir)
	threshold(t, c, 70)
	soon(t, "what namespaces ask for", func() bool { c.FollowConfig(); return c.last.ByNamespace != nil })
	missing := func() (n int) {
		for _, notice := range c.cfg.status.Notices {
			if strings.Contains(notice, "its last content holds until") {
				n++
			}
		}
		if !c.cfg.status.Missing.Until.IsZero() {
			n++
		}
		return n
	}
	begun := time.Now()
	s.Remove(configMap(nil))
	s.Remove(byspace)
	soon(t, "both are missed", func() bool { c.FollowConfig(); return missing() == 2 })
	now := func() unit.Percent { return c.MergeOver(config.Config{}).Policy.Suppress.ThresholdPercent }
	if now() != 70 || !c.last.HasConfig || c.last.ByNamespace == nil {
		t.Errorf("at once after the deletion, %+v holds", c.last)
	}
	s.Put(configMap(suppressAt("55")))
	threshold(t, c, 55)
	if missing() != 1 {
		t.Errorf("one is there again: %q", c.cfg.status.Notices)
	}
	s.Remove(configMap(nil))
	soon(t, "it is missed again", func() bool { c.FollowConfig(); return missing() == 2 })
	if c.followConfigAt(begun.Add(config.GoneAfter - time.Second)) {
		t.Error("too early")
	}
	if !c.followConfigAt(time.Now().Add(config.GoneAfter)) || now() != 0 || c.last.HasConfig || c.last.ByNamespace != nil || missing() != 0 {
		t.Errorf("long after the deletion: %+v, %q", c.last, c.cfg.status.Notices)
	}
	lost := nodereport.Missing{Is: true, Lost: true}
	if c.cfg.status.Missing != lost || c.ConfigMissing() == "" {
		t.Errorf("long after the deletion, the status is %+v", c.cfg.status.Missing)
	}
	again := openTestCluster(t, s, dir)
	soon(t, "the next tenond knows of the deletion", func() bool { again.FollowConfig(); return again.cfg.status.Missing == lost })
	s.Put(configMap(suppressAt("60")))
	threshold(t, c, 60)
	if c.cfg.status.Missing.Is || c.ConfigMissing() != "" {
		t.Errorf("after the next creation: %+v", c.cfg.status.Missing)
	}
}

// TestSettingsByNamespaceAreReadWhereACKsManualsPutThem checks from which
// namespaces the keys of ack-slo-pod-config are read: first the namespace of
// Tenon's ConfigMap, then the two namespaces in ACK's manuals.
func TestSettingsByNamespaceAreReadWhereACKsManualsPutThem(t *testing.T) {
	s := apitest.New(t)
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u"}})
	s.Put(configMap(suppressAt("70")))
	put := func(namespace string, data map[string]string) {
		m := configMap(data)
		m.Name, m.Namespace = kube.PodConfigMap, namespace
		s.Put(m)
	}
	put("kube-system", map[string]string{"memory-qos": `{"enabledNamespaces":["far"]}`, "cpu-burst": `{"enabledNamespaces":["far"]}`})
	put("elsewhere", map[string]string{"memory-qos": `{"disabledNamespaces":["far"]}`})
	c := openTestCluster(t, s, t.TempDir())
	soon(t, "kube-system counts", func() bool { c.FollowConfig(); return len(c.cfg.spaces.CPUBurst.Enabled) == 1 })
	put("koordinator-system", map[string]string{"cpu-burst": `{"enabledNamespaces":["near"]}`})
	soon(t, "the own namespace goes first", func() bool {
		c.FollowConfig()
		return slices.Equal(c.cfg.spaces.CPUBurst.Enabled, []string{"near"})
	})
	if m := c.cfg.spaces.MemoryQOS; !slices.Equal(m.Enabled, []string{"far"}) || len(m.Disabled) > 0 {
		t.Errorf("memory-qos is %+v", m)
	}
}

func TestWithoutConfigMapTheFileHolds(t *testing.T) {
	c := &Follower{}
	file := config.Config{Period: time.Second}
	file.Policy.Suppress.ThresholdPercent = 33
	file.Policy.NodeCPUs.CPUs = unit.CPUSetOf(1)
	if got := c.MergeOver(file); got.Policy.Suppress.ThresholdPercent != 33 {
		t.Errorf("%+v", got.Policy.Suppress)
	}
	c.last.HasConfig = true
	c.cfg.node.Policy.Suppress.ThresholdPercent = 70
	if got := c.MergeOver(file).Policy; got.Suppress.ThresholdPercent != 70 || got.NodeCPUs.CPUs != file.Policy.NodeCPUs.CPUs {
		t.Errorf("%+v", got)
	}
}

func TestARestartWithoutAPIServerGoesOnWithWhatWasKnown(t *testing.T) {
	s := apitest.New(t)
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u", Labels: map[string]string{"pool": "small"}}})
	s.Put(configMap(suppressAt("70")))
	dir := t.TempDir()
	first := openTestCluster(t, s, dir)
	if !first.IsUnknown() {
		t.Error("the pods or the configuration are known before the first answer")
	}
	threshold(t, first, 40)
	s.Put(configMap(suppressAt("550")))
	soon(t, "the fault", func() bool { first.FollowConfig(); return len(first.cfg.status.Faults) > 0 })
	first.take(kubelet.Known{At: time.Now(), Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, Facts: kubelet.Facts{CgroupDriver: "systemd", CgroupRoot: "/x"}})
	first.keep()

	s.RefuseAll(true)
	second := openTestCluster(t, s, dir)
	second.FollowConfig()
	if got := second.MergeOver(config.Config{}).Policy.Suppress.ThresholdPercent; got != 40 {
		t.Errorf("the threshold is %v and was 40", got)
	}
	if second.IsUnknown() || len(second.last.Pods) != 1 || second.layout() != (kube.Layout{Systemd: true, Root: "/x"}) {
		t.Errorf("%+v", second.last)
	}
	soon(t, "the trouble is reported", func() bool { return second.configTrouble() != "" })
}

func TestPodsOfAnotherBootAreNone(t *testing.T) {
	dir := t.TempDir()
	text := `{"boot_id":"another","config_known":true,"labels":{"a":"b"},"pods_known":true,"pods":[{}]}`
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := loadState(dir, proc.Default())
	if err != nil || k.PodsKnown || len(k.Pods) > 0 || !k.ConfigKnown || k.Labels["a"] != "b" {
		t.Errorf("%+v, %v", k, err)
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(`{"boot`), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err = loadState(dir, proc.Default()); err == nil || k.PodsKnown || k.Boot == "" {
		t.Errorf("a torn file: %+v, %v", k, err)
	}
}

func TestRulesLeavePodsAlone(t *testing.T) {
	pods := []node.Workload{{ID: "a/web", Cgroup: "kubepods/burstable/podx"}}
	left, remarks := dropPodCgroups([]node.Workload{
		{ID: "1", Rule: "r", Cgroup: "kubepods/burstable/podx/c"}, {ID: "2", Rule: "r", Cgroup: "kubepods"}, {ID: "3", Rule: "r", Cgroup: "system.slice/cron.service"},
	}, pods)
	if len(left) != 1 || left[0].ID != "3" || len(remarks) != 2 {
		t.Errorf("%v, %q", left, remarks)
	}
}

func TestAReleaseGivesWhatTheKubeletWouldHaveWritten(t *testing.T) {
	const group = node.CgroupPath("kubepods/burstable/podx")
	of := func(request, limit unit.MilliCPU, memory unit.Bytes) map[node.CgroupPath]kube.Amounts {
		a := kube.Amounts{CPURequest: node.Some(request)}
		if limit > 0 {
			a.CPULimit = node.Some(limit)
		}
		if memory > 0 {
			a.MemoryLimit = node.Some(memory)
		}
		return map[node.CgroupPath]kube.Amounts{group: a}
	}
	quota := func(m int64) node.CPUMax {
		return node.CPUMax{Quota: time.Duration(m) * 100 * time.Microsecond, Period: 100 * time.Millisecond}
	}
	for name, c := range map[string]struct {
		was, is      map[node.CgroupPath]kube.Amounts
		before, want node.Value // want nil means unchanged
	}{
		"a smaller limit":                  {of(100, 500, 0), of(100, 250, 0), quota(500), quota(250)},
		"no limit any more":                {of(100, 500, 0), of(100, 0, 0), quota(500), node.CPUMax{Quota: node.NoQuota, Period: 100 * time.Millisecond}},
		"a first limit":                    {of(100, 0, 0), of(100, 500, 0), node.CPUMax{Quota: node.NoQuota, Period: 100 * time.Millisecond}, quota(500)},
		"quotas are off in the kubelet":    {of(100, 500, 0), of(100, 250, 0), node.CPUMax{Quota: node.NoQuota, Period: 100 * time.Millisecond}, nil},
		"the same limit":                   {of(100, 500, 0), of(200, 500, 0), quota(500), nil},
		"another request":                  {of(100, 0, 0), of(1000, 0, 0), node.CPUWeight{Weight: unit.WeightOfShares(102)}, node.CPUWeight{Weight: unit.WeightOfShares(1024)}},
		"more memory":                      {of(100, 0, 1<<28), of(100, 0, 1<<29), node.Memory{High: unit.MaxBytes, Max: 1 << 28}, node.Memory{High: unit.MaxBytes, Max: 1 << 29}},
		"a pod of which nothing was known": {nil, of(100, 500, 0), quota(700), nil},
	} {
		if got := rebase(c.was, c.is, nil, false)(node.Knob{Cgroup: group}, c.before); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	none := node.CPUMax{Quota: node.NoQuota, Period: 100 * time.Millisecond}
	if got := rebase(of(100, 0, 0), of(100, 500, 0), nil, true)(node.Knob{Cgroup: group}, none); got != nil {
		t.Errorf("a first limit under a kubelet without quotas: %v", got)
	}
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")}}}}}}
	pod.UID, pod.Status.QOSClass = "x", corev1.PodQOSBurstable
	pod.Spec.Containers[0].Name = "main"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://abc"}}
	was := natives([]corev1.Pod{pod}, kube.Layout{})
	resized := *pod.DeepCopy()
	resized.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("250m")
	in := node.Knob{Cgroup: group.Join("abc")}
	if got := rebase(was, natives([]corev1.Pod{resized}, kube.Layout{}), nil, false)(in, quota(500)); got != quota(250) {
		t.Errorf("a container that was resized from 500m to 250m: %v", got)
	}
	if got := facts.QuotaOf(kube.Native(&pod).CPULimit, 100*time.Millisecond); got != 50*time.Millisecond {
		t.Errorf("500m make %v", got)
	}
}

// TestAKnobTouchedInTheMidstOfAResizeIsGivenBackResized writes a knob during a
// resize, when the kubelet lists the new size but has not written the cgroup
// yet. A release must restore the new size.
func TestAKnobTouchedInTheMidstOfAResizeIsGivenBackResized(t *testing.T) {
	const group = node.CgroupPath("kubepods/burstable/podx")
	knob := node.Knob{Cgroup: group}
	of := func(cpu unit.MilliCPU, memory unit.Bytes) map[node.CgroupPath]kube.Amounts {
		return map[node.CgroupPath]kube.Amounts{group: {CPULimit: node.Some(cpu), MemoryLimit: node.Some(memory)}}
	}
	quota := func(ms time.Duration) node.CPUMax {
		return node.CPUMax{Quota: ms * time.Millisecond, Period: 100 * time.Millisecond}
	}
	at := time.Now()
	old, now := of(1000, 1<<30), of(500, 1<<29)
	recent := addResized(nil, old, now, at)
	// The next comparison finds no difference.
	recent = addResized(recent, now, now, at.Add(time.Second))
	for name, c := range map[string]struct{ before, want node.Value }{
		"touched before the kubelet wrote it": {quota(100), quota(50)},
		"touched after that":                  {quota(50), nil},
		"set by another component":            {quota(70), nil},
		"not enforced":                        {node.CPUMax{Quota: node.NoQuota, Period: 100 * time.Millisecond}, nil},
		"memory before":                       {node.Memory{High: unit.MaxBytes, Max: 1 << 30}, node.Memory{High: unit.MaxBytes, Max: 1 << 29}},
		"memory after":                        {node.Memory{High: unit.MaxBytes, Max: 1 << 29}, nil},
	} {
		if got := rebase(now, now, recent, false)(knob, c.before); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if late := addResized(recent, now, now, at.Add(resizeDelay)); len(late) > 0 {
		t.Errorf("an old resize is still listed: %v", late)
	}
}

func TestProgramsOutsideOfKubernetesHaveTheClassOfTheConfigMap(t *testing.T) {
	c, faults := config.ParseConfigMap(map[string]string{"host-application-config": `{"applications":[
{"name":"nginx","qos":"LS","priority":"koord-prod","cgroupPath":{"base":"CgroupRoot","parentDir":"host","relativePath":"nginx*"}},
{"name":"hadoop","qos":"BE","priority":"koord-batch","cgroupPath":{"base":"KubepodsBesteffort","relativePath":"yarn"}},
{"name":"idler","qos":"LS","cgroupPath":{"base":"Kubepods"}},
{"name":"climber","qos":"LS","cgroupPath":{"base":"Kubepods","relativePath":"../../x"}}]}`})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	n, _ := c.Node(nil, nil)
	rules := rulesOf(n.Applications, kube.Layout{Root: "/r"})
	if len(rules) != 2 || rules[0].Cgroups[0] != "host/nginx[*]" || rules[0].Class != node.LS || rules[0].Priority != 9500 ||
		rules[1].Cgroups[0] != "r/kubepods/besteffort/yarn" || rules[1].Class != node.BE {
		t.Errorf("%+v", rules)
	}
}

// TestProgramsWithoutACgroupPathAreWhereKoordinatorPutsThem checks the default
// cgroup of a program, which depends on the class of the program. It also
// checks the notices about programs that Tenon does not manage.
func TestProgramsWithoutACgroupPathAreWhereKoordinatorPutsThem(t *testing.T) {
	c, faults := config.ParseConfigMap(map[string]string{"host-application-config": `{"applications":[
{"name":"ls-app","qos":"LS"},{"name":"lse-app","qos":"LSE"},{"name":"be-app","qos":"BE"},
{"name":"daemon","qos":"SYSTEM"},{"name":"nameless"},{"name":"..","qos":"BE"}]}`})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	n, _ := c.Node(nil, nil)
	var got []string
	for _, r := range rulesOf(n.Applications, kube.Layout{}) {
		got = append(got, string(r.Class)+" "+r.Cgroups[0])
	}
	want := []string{"LS host-latency-sensitive/ls-app", "LSE host-latency-sensitive/lse-app", "BE host-best-effort/be-app"}
	if !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	for i, notice := range []string{"so it is in host-latency-sensitive/ls-app", "so it is in host-latency-sensitive/lse-app", "so it is in host-best-effort/be-app",
		"names no cgroup of its own", "has no qos, so Tenon leaves it alone", "names no cgroup of its own"} {
		if at := fmt.Sprintf("host-application-config.applications[%d] ", i); !slices.ContainsFunc(n.Notices, func(s string) bool { return strings.HasPrefix(s, at) && strings.Contains(s, notice) }) {
			t.Errorf("no notice %s… %s in %q", at, notice, n.Notices)
		}
	}
}

func TestCPUsAreBoundByOneOnly(t *testing.T) {
	pods := func() []node.Workload {
		return []node.Workload{{ID: "a/db", Class: node.LSR}, {ID: "a/rt", Class: node.LSE}, {ID: "a/web", Class: node.LS}, {ID: "a/job", Class: node.BE}}
	}
	all := pods()
	if remarks := unbind(all, kubelet.Facts{CPUManagerPolicy: "static"}); len(remarks) != 2 || all[0].Class != node.LS || all[1].Class != node.LS || all[3].Class != node.BE {
		t.Errorf("%v, %q", all, remarks)
	}
	all = pods()
	if remarks := unbind(all, kubelet.Facts{CPUManagerPolicy: "none"}); len(remarks) != 0 || all[0].Class != node.LSR {
		t.Errorf("%v, %q", all, remarks)
	}
}

// TestAKubeletThatBindsCPUsHasThemToItself checks that Tenon does not write
// cpusets if the kubelet has the static CPU manager policy. A quota must then
// limit best-effort work.
func TestAKubeletThatBindsCPUsHasThemToItself(t *testing.T) {
	c := &Follower{}
	c.last.HasConfig = true
	of := func(reserved string, f kubelet.Facts) (policy.Config, []string) {
		var p policy.Config
		p.NodeCPUs.ReservedCPUs, _ = unit.ParseCPUSet(reserved)
		notices := shareCPUs(&p, f)
		return p, notices
	}
	for _, x := range []struct {
		reserved string
		facts    kubelet.Facts
		kept     bool
		cpus     string
		notice   string
	}{
		{"0", kubelet.Facts{}, false, "0", ""},
		{"0", kubelet.Facts{CPUManagerPolicy: "none", ReservedCPUs: "1"}, false, "0", ""},
		{"", kubelet.Facts{CPUManagerPolicy: "static"}, true, "", ""},
		{"0-1", kubelet.Facts{CPUManagerPolicy: "static"}, true, "0-1", "CPUs 0-1 are reserved, and best-effort work may run there"},
		{"0-1", kubelet.Facts{CPUManagerPolicy: "static", ReservedCPUs: "0,4"}, true, "0-1,4", "CPUs 1 are reserved"},
		{"", kubelet.Facts{CPUManagerPolicy: "static", ReservedCPUs: "0"}, true, "0", ""},
	} {
		p, notices := of(x.reserved, x.facts)
		if p.NodeCPUs.CPUSetsManagedExternally != x.kept || p.CPUQOS.CPUSetsManagedExternally != x.kept || p.NodeCPUs.ReservedCPUs.String() != x.cpus {
			t.Errorf("%q on %+v: %+v; want CPUs %q", x.reserved, x.facts, p.NodeCPUs, x.cpus)
		}
		if text := strings.Join(notices, "; "); x.notice == "" && text != "" || !strings.HasPrefix(text, x.notice) {
			t.Errorf("%q on %+v: notices %q; want %q", x.reserved, x.facts, text, x.notice)
		}
	}
	// If there is no ConfigMap, the strategies of the file must not write
	// cpusets either.
	c.last.HasConfig, c.cfg.facts = false, kubelet.Facts{CPUManagerPolicy: "static", ReservedCPUs: "0"}
	if s := c.MergeOver(config.Config{}).Policy.NodeCPUs; !s.CPUSetsManagedExternally || s.ReservedCPUs != unit.CPUSetOf(0) {
		t.Errorf("without a ConfigMap: %+v", s)
	}
}

// TestAKubeletThatProtectsMemoryHasItToItself checks with and without a ConfigMap that
// Tenon leaves the protection of memory to a kubelet that does it, and says so where the
// configuration asks for it.
func TestAKubeletThatProtectsMemoryHasItToItself(t *testing.T) {
	asked := policy.Config{Memory: memory.Config{Classes: map[node.Class]memory.Shares{node.LS: {MinPercent: 50}, node.LSR: {ThrottlingPercent: 90}, node.BE: {LowPercent: 20}}}}
	for name, x := range map[string]struct {
		facts   kubelet.Facts
		config  policy.Config
		left    bool
		notices int
	}{
		"a kubelet of today": {kubelet.Facts{}, asked, false, 0},
		"none":               {kubelet.Facts{MemoryReservationPolicy: "None"}, asked, false, 0},
		"tiered":             {kubelet.Facts{MemoryReservationPolicy: "TieredReservation"}, asked, true, 1},
		"tiered, not asked":  {kubelet.Facts{MemoryReservationPolicy: "TieredReservation"}, policy.Config{}, true, 0},
	} {
		p := x.config
		notices := leaveProtection(&p, x.facts)
		if p.Memory.ProtectedExternally != x.left || len(notices) != x.notices || x.notices > 0 && !strings.Contains(notices[0], "pods of class LS: ") {
			t.Errorf("%s: %+v, %q", name, p.Memory, notices)
		}
		c := &Follower{}
		c.cfg.facts = x.facts
		if got := c.MergeOver(config.Config{Policy: x.config}).Policy.Memory.ProtectedExternally; got != x.left {
			t.Errorf("%s, without a ConfigMap: %v", name, got)
		}
	}
}

// TestTheKubeletsReserveCountsInCPUSuppress checks that CPU suppress leaves the
// system at least the amount that the kubelet withholds from pods. This amount
// comes from the status of the node, and must survive a restart while the API
// server is away.
func TestTheKubeletsReserveCountsInCPUSuppress(t *testing.T) {
	s := apitest.New(t)
	self := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u"}}
	self.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20")}
	self.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")}
	s.Put(self)
	s.Put(configMap(suppressAt("70")))
	dir := t.TempDir()
	c := openTestCluster(t, s, dir)
	reserves := func(c *Follower, want unit.MilliCPU) {
		t.Helper()
		soon(t, "the reserve", func() bool { c.FollowConfig(); return c.MergeOver(config.Config{}).Policy.NodeCPUs.Reserved == want })
	}
	reserves(c, 4000)
	for annotation, want := range map[string]unit.MilliCPU{
		`{"resources":{"cpu":"1"}}`: 4000,
		`{"resources":{"cpu":"6"}}`: 6000,
		`{"reservedCPUs":"0-2"}`:    1000, // three of the four do not belong to the capacity any more
	} {
		self.Annotations = map[string]string{"node.koordinator.sh/reservation": annotation}
		s.Put(self)
		reserves(c, want)
	}
	self.Annotations, self.Status.Allocatable = nil, self.Status.Capacity
	s.Put(self)
	reserves(c, 0)
	self.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("18500m")}
	s.Put(self)
	reserves(c, 1500)
	s.RefuseAll(true)
	reserves(openTestCluster(t, s, dir), 1500)
}

// TestTheAnnotationAndTheKubeletTogetherReserveCPUs checks that the CPUs of the
// annotation and those of the kubelet are reserved, as soon as the kubelet
// reports them.
func TestTheAnnotationAndTheKubeletTogetherReserveCPUs(t *testing.T) {
	s := apitest.New(t)
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u", Annotations: map[string]string{"node.koordinator.sh/reservation": `{"reservedCPUs":"0"}`}}})
	s.Put(configMap(suppressAt("70")))
	c := openTestCluster(t, s, t.TempDir())
	threshold(t, c, 70)
	soon(t, "the annotation", func() bool {
		c.FollowConfig()
		return c.MergeOver(config.Config{}).Policy.NodeCPUs.ReservedCPUs == unit.CPUSetOf(0)
	})
	if c.MergeOver(config.Config{}).Policy.NodeCPUs.CPUSetsManagedExternally {
		t.Error("cpusets are left to the kubelet before it has reported its CPU manager")
	}
	c.last.Facts = kubelet.Facts{CPUManagerPolicy: "static", ReservedCPUs: "3"}
	if !c.FollowConfig() {
		t.Fatal("the kubelet's facts do not change the configuration")
	}
	if got := c.MergeOver(config.Config{}).Policy.NodeCPUs; !got.CPUSetsManagedExternally || got.ReservedCPUs != unit.CPUSetOf(0, 3) {
		t.Errorf("%+v", got)
	}
	if len(c.cfg.status.Notices) != 1 || !strings.Contains(c.cfg.status.Notices[0], "CPUs 0 are reserved") {
		t.Errorf("notices %q", c.cfg.status.Notices)
	}
	soon(t, "nothing has changed any more", func() bool { return !c.FollowConfig() })
}

// TestAKnownPodIsManagedWhileNoListHasIt restarts the kubelet while the API
// server is away, so that the kubelet lists no pods. Tenon must continue to
// manage the pods that it knows.
func TestAKnownPodIsManagedWhileNoListHasIt(t *testing.T) {
	lives := map[node.CgroupPath]bool{}
	c := &Follower{starting: containerstart.New(func() {}), lives: func(p node.CgroupPath) bool { return lives[p] }}
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	}
	tell := func(pods ...corev1.Pod) (names string) {
		c.take(kubelet.Known{At: time.Now(), From: "kubelet", Pods: pods})
		for _, p := range c.last.Pods {
			names += p.Name + " "
		}
		return names
	}
	a, b, ended := pod("a"), pod("b"), pod("ended")
	ended.Status.Phase = corev1.PodSucceeded
	for _, p := range []corev1.Pod{a, b, ended} {
		lives[c.layout().Pod(&p)] = true
	}
	if got := tell(a, b, ended); got != "a b ended " || len(c.unsent) > 0 {
		t.Errorf("%s, %q", got, c.unsent)
	}
	if got := tell(); got != "a b " || len(c.unsent) != 2 || !strings.Contains(c.unsent[0], "shop/a") {
		t.Errorf("after the kubelet's restart: %s, %q", got, c.unsent)
	}
	if got := tell(b); got != "b a " || len(c.unsent) != 1 {
		t.Errorf("b has a remark again: %s, %q", got, c.unsent)
	}
	delete(lives, c.layout().Pod(&a))
	if got := tell(b); got != "b " || len(c.unsent) > 0 {
		t.Errorf("a is gone: %s, %q", got, c.unsent)
	}
}

func TestAResizeIsNotForgottenBeforeItIsJournaled(t *testing.T) {
	of := func(limit unit.MilliCPU) map[node.CgroupPath]kube.Amounts {
		return map[node.CgroupPath]kube.Amounts{"kubepods/podx": {CPULimit: node.Some(limit)}}
	}
	c := &Follower{log: slog.New(slog.DiscardHandler), dir: t.TempDir()}
	c.view.lastCorrect, c.view.native = of(500), of(2000)
	c.noteRebase(errors.New("the journal is full"))
	if _, err := os.Stat(filepath.Join(c.dir, stateFile)); err == nil {
		t.Error("the pods were saved although the rebase failed")
	}
	quota := func(ms time.Duration) node.CPUMax {
		return node.CPUMax{Quota: ms * time.Millisecond, Period: 100 * time.Millisecond}
	}
	if got := rebase(c.view.native, of(2000), nil, false)(node.Knob{Cgroup: "kubepods/podx"}, quota(50)); got != quota(200) {
		t.Errorf("the next time a release gives %v", got)
	}
	c.noteRebase(nil)
	if _, err := os.Stat(filepath.Join(c.dir, stateFile)); err != nil {
		t.Error(err)
	}
}
