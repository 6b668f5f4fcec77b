package podpages

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
)

// promising returns a node with 10 CPUs and 8 GiB of batch resources, and promises: the
// CPUs for 1 h and 6 h with 80 % and 95 %. 0 is not promised yet. Memory is 4 GiB for each.
func promising(name string, reported time.Time, cpu [4]int64) nodepages.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"),
		kube.BatchCPU: resource.MustParse("10k"), kube.BatchMemory: resource.MustParse("8Gi"),
	}}}
	r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NodeReportStatus{Reported: metav1.NewMicroTime(reported), Promises: &v1alpha1.Promises{}}}
	for i, hours := range []int32{1, 1, 6, 6} {
		a := v1alpha1.PromisedAmount{Hours: hours, Percent: []int32{80, 95}[i%2], Lacking: 3}
		memory := a
		memory.Amount = resource.NewQuantity(4<<30, resource.BinarySI)
		if cpu[i] > 0 {
			a.Amount, a.Lacking = resource.NewQuantity(cpu[i], resource.DecimalSI), 0
		}
		r.Status.Promises.CPU, r.Status.Promises.Memory = append(r.Status.Promises.CPU, a), append(r.Status.Promises.Memory, memory)
	}
	return nodepages.Node{Node: &n, Report: r}
}

// TestFitSaysWhereRoomLasts asks at 12:20 for a pod with 2 CPUs.
func TestFitSaysWhereRoomLasts(t *testing.T) {
	now := noon.Add(20 * time.Minute)
	fresh, old := now.Add(-10*time.Second), now.Add(-10*time.Minute)
	nodes := []nodepages.Node{
		promising("full", fresh, [4]int64{9, 8, 7, 6}), promising("much", fresh, [4]int64{9, 8, 7, 6}), promising("less", fresh, [4]int64{9, 8, 3, 1}),
		promising("new", fresh, [4]int64{9, 8, 0, 0}), promising("silent", old, [4]int64{9, 9, 9, 9}),
	}
	batch := func(cpu string) corev1.ResourceRequirements {
		list := corev1.ResourceList{kube.BatchCPU: resource.MustParse(cpu), kube.BatchMemory: resource.MustParse("1Gi")}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	running := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", Namespace: "ci"}, Spec: corev1.PodSpec{NodeName: "full", Containers: []corev1.Container{{Name: "c", Resources: batch("5500")}}}}
	for _, tc := range []struct {
		duration, cpu string
		want          *Lasting
		text          string
	}{
		{"30m", "2k", &Lasting{Pod: "ci/job", Seconds: 1800, Nodes: []LastingNode{{"full", 95}, {"less", 95}, {"much", 95}, {"new", 95}}},
			"ci/job says that it runs for 30m0s: room for as long is promised on full (95%), less (95%), much (95%), new (95%)"},
		// It ends at 13:20, and the promises for one hour end at 13:00.
		{"1h", "2k", &Lasting{Pod: "ci/job", Seconds: 3600, Nodes: []LastingNode{{"much", 95}, {"less", 80}}, Unknown: 1},
			"room for as long is promised on much (95%), less (80%); too little is known yet of 1 node"},
		{"5h40m", "2k", &Lasting{Pod: "ci/job", Seconds: 20400, Nodes: []LastingNode{{"much", 95}, {"less", 80}}, Unknown: 1}, ""},
		{"5h41m", "2k", &Lasting{Pod: "ci/job", Seconds: 20460, Unknown: 4}, "no node promises room for as long; too little is known yet of 4 nodes"},
		{"25h", "2k", &Lasting{Pod: "ci/job", Seconds: 90000, TooLong: true}, "room is promised for at most 24 hours"},
		// From 12:00, where the promises begin, it is 24 hours and 20 minutes.
		{"24h", "2k", &Lasting{Pod: "ci/job", Seconds: 86400, TooLong: true}, "no promise is so long"},
		{"23h40m", "2k", &Lasting{Pod: "ci/job", Seconds: 85200, Unknown: 4}, "too little is known yet of 4 nodes"},
		{"", "2k", nil, ""},
		{"nonsense", "2k", nil, "not as written: job: tenon.sh/duration"},
		{"1h", "0", nil, ""},
	} {
		text := batchJob(tc.duration, tc.cpu)
		if tc.cpu == "0" {
			text = strings.ReplaceAll(text, "kubernetes.io/batch-cpu: 0, kubernetes.io/batch-memory: 1Gi", "cpu: 1")
		}
		page := New(nodes, []corev1.Pod{running}, now).Fit(manifests(t, text).Wanted, Webhook{}, nil)
		var got *Lasting
		if len(page.Lasting) > 0 {
			got = &page.Lasting[0]
		}
		if tc.duration == "1h" && tc.want != nil {
			checkShown(t, tc.want.String())
		}
		if !reflect.DeepEqual(got, tc.want) || !strings.Contains(page.Text(), tc.text) {
			t.Errorf("%s, %s: %+v, want %+v in\n%s", tc.duration, tc.cpu, got, tc.want, page.Text())
		}
	}
}

// TestAPromiseCountsFromTheHourInWhichItWasMade asks at 12:01:40 for a pod of 30 minutes. A
// report of the first minute of an hour has the promises of the hour before: those for an
// hour end at 12:00.
func TestAPromiseCountsFromTheHourInWhichItWasMade(t *testing.T) {
	now := noon.Add(100 * time.Second)
	nodes := []nodepages.Node{promising("before", noon.Add(30*time.Second), [4]int64{9, 8, 0, 0}), promising("now", noon.Add(time.Minute), [4]int64{9, 8, 0, 0})}
	page := New(nodes, nil, now).Fit(manifests(t, batchJob("30m", "2k")).Wanted, Webhook{}, nil)
	if want := []Lasting{{Pod: "ci/job", Seconds: 1800, Nodes: []LastingNode{{"now", 95}}, Unknown: 1}}; !reflect.DeepEqual(page.Lasting, want) {
		t.Errorf("%+v, want %+v", page.Lasting, want)
	}
	// Of one of them, 24 hours are not enough; the other will have promises of 12:00, too.
	page = New(nodes, nil, now).Fit(manifests(t, batchJob("23h30m", "2k")).Wanted, Webhook{}, nil)
	if want := []Lasting{{Pod: "ci/job", Seconds: 84600, Unknown: 2}}; !reflect.DeepEqual(page.Lasting, want) {
		t.Errorf("%+v, want %+v", page.Lasting, want)
	}
}

// TestRoomBesideUnknownPodsIsNotPromised asks as a user who may list the pods of one
// namespace only.
func TestRoomBesideUnknownPodsIsNotPromised(t *testing.T) {
	now := noon.Add(20 * time.Minute)
	nodes := []nodepages.Node{promising("much", now, [4]int64{9, 8, 7, 6})}
	m := manifests(t, batchJob("1h", "2k"))
	page := NewPartly(nodes, nil, Lacks{Pods: "you may not list pods"}, now).Fit(m.Wanted, Webhook{}, nil)
	if len(page.Lasting) != 1 || !page.Lasting[0].OthersUnknown || !strings.Contains(page.Text(), "on much (95%), less what other pods request there, which is not known") {
		t.Errorf("%+v in\n%s", page.Lasting, page.Text())
	}
	if page = New(nodes, nil, now).Fit(m.Wanted, Webhook{}, nil); page.Lasting[0].OthersUnknown {
		t.Errorf("all pods are known: %s", page.Text())
	}
}

// batchJob returns a pod that says how long it runs.
func batchJob(duration, cpu string) string {
	batch := "{kubernetes.io/batch-cpu: " + cpu + ", kubernetes.io/batch-memory: 1Gi}"
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: job, namespace: ci, labels: {koordinator.sh/qosClass: BE}, annotations: {tenon.sh/duration: '" + duration +
		"'}}\nspec: {containers: [{name: c, image: c, resources: {requests: " + batch + ", limits: " + batch + "}}]}\n"
}
