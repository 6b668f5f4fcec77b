package objectivetext

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
)

// TestServicesAreAddedUpOverNodes adds up the pods of three services. The P99 of
// both pods of a service is that of their added histograms: neither pod has it, nor
// is it their mean.
func TestServicesAreAddedUpOverNodes(t *testing.T) {
	of := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	const ms = time.Millisecond
	requests := func(counts ...int64) *v1alpha1.ServiceRequests {
		r := &v1alpha1.ServiceRequests{Source: "metrics", State: "Kept", Targets: []v1alpha1.RequestTarget{{Percentile: "p50", Within: *of(ms)}, {Percentile: "p99", Within: *of(5 * ms)}}}
		ends := []*metav1.Duration{of(ms), of(5 * ms), of(20 * ms), nil}
		for i, n := range counts {
			r.Buckets = append(r.Buckets, v1alpha1.RequestBucket{UpTo: ends[i], Count: n})
		}
		return r
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	since := func(d time.Duration) *metav1.MicroTime { at := metav1.NewMicroTime(noon.Add(-d)); return &at }
	nodeOf := func(name string, all ...v1alpha1.ServiceObjective) nodepages.Node {
		bounded := []v1alpha1.BoundedWork{{Namespace: "batch", Pod: "train", ServiceNamespace: "shop", Service: "web-2"}, {Namespace: "batch", Pod: "index", ServiceNamespace: "other", Service: "web-2"}}
		status := v1alpha1.NodeReportStatus{Reported: metav1.NewMicroTime(noon), Objectives: &v1alpha1.Objectives{Services: all, Bounded: bounded}}
		return nodepages.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, Report: &v1alpha1.NodeReport{Status: status}}
	}
	lasted := func(ago, kept, missed, undecided time.Duration) *v1alpha1.StateTimes {
		return &v1alpha1.StateTimes{Since: *since(ago), Kept: *of(kept), Missed: *of(missed), Undecided: *of(undecided)}
	}
	unread := requests()
	unread.Trouble = "no-prometheus"
	nodes := []nodepages.Node{
		nodeOf("a",
			v1alpha1.ServiceObjective{Namespace: "shop", Pod: "web-1", State: "Kept", Requests: requests(980, 20, 0, 0), Lasted: lasted(time.Hour, time.Hour, 0, 0)},
			v1alpha1.ServiceObjective{Namespace: "shop", Pod: "db-1", State: "Kept", RunQueueDelay: of(2 * ms)}),
		nodeOf("b",
			v1alpha1.ServiceObjective{Namespace: "shop", Pod: "web-2", State: "Missed", Since: since(40 * time.Second), Cause: "best-effort", CulpritNamespace: "batch", Culprit: "encode", Requests: requests(500, 100, 400, 0), Lasted: lasted(3*time.Hour, 2*time.Hour, 6*time.Minute, 54*time.Minute)},
			v1alpha1.ServiceObjective{Namespace: "shop", Pod: "web-4", State: "Missed", Since: since(10 * time.Second), Cause: "other-service", Culprit: "system.slice/db", Requests: requests()},
			v1alpha1.ServiceObjective{Namespace: "shop", Pod: "web-3", State: "Undecided", Cause: "no-source", Requests: unread},
			v1alpha1.ServiceObjective{Namespace: "lab", Pod: "web-9", State: "Undecided", Cause: "too-few", Requests: requests(0, 0, 0, 7)}),
		{},
	}
	all := Services(nodes, func(_, pod string) string { name, _, _ := strings.Cut(pod, "-"); return name })
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	web := all[0]
	if web.Service != "web" || web.Namespace != "shop" || web.Pods != 4 || web.Missed != 2 || web.Undecided != 1 || web.Total != 2000 ||
		!slices.Equal(web.Percentiles, []Measured{{"p50", "1ms"}, {"p99", "20ms"}}) || !slices.Equal(web.Causes, []string{"best-effort", "no-source: no-prometheus", "other-service"}) ||
		web.MissedFor != "40s" || *web.Lasted != *lasted(3*time.Hour, 3*time.Hour, 6*time.Minute, 54*time.Minute) || !slices.Equal(web.Culprits, []string{"batch/encode", "system.slice/db"}) || !slices.Equal(web.Bounded, []string{"batch/train"}) {
		t.Errorf("%+v", web)
	}
	lab, db := all[1], all[2]
	if lab.Total != 7 || !slices.Equal(lab.Percentiles, []Measured{{"p50", ""}, {"p99", ""}}) || db.Total != 0 || db.RunQueueDelay != "2ms" || db.Percentiles != nil {
		t.Errorf("%+v, %+v", lab, db)
	}
	const want = `SERVICE   OBJECTIVE                                        PODS  MISSED  UNDECIDED  REQUESTS  MEASURED                                       FOR  OVERALL                                     CAUSE                                 CULPRIT
shop/web  p50 within 1ms, p99 within 5ms (source: metrics)  4     2       1          2000      p50 1ms, p99 20ms                              40s  kept 75.0 %, missed 2.5 %, undecided 22.5 %  best-effort, no-source: no-prometheus, other-service  batch/encode, batch/train (bounded), system.slice/db
lab/web   p50 within 1ms, p99 within 5ms (source: metrics)  1     0       1          7         p50 above all buckets, p99 above all buckets  -    -  too-few                                -
shop/db   waits within 2ms                                  1     0       0          -         -                                              -    -  -                                      -
`
	if got := Table(all); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("the table is\n%s", got)
	}
	if got := Table(Services(nil, nil)); got != "No service has an objective that its node has reported.\n" {
		t.Error(got)
	}
}

// TestThePageAboutObjectivesShowsTheTable compares docs/objectives.md with the table of
// two services.
func TestThePageAboutObjectivesShowsTheTable(t *testing.T) {
	document, err := os.ReadFile("../../../docs/objectives.md")
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	of := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	reported := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	begun := metav1.NewMicroTime(reported.Add(-40 * time.Second))
	lasted := func(kept, missed, undecided time.Duration) *v1alpha1.StateTimes {
		return &v1alpha1.StateTimes{Since: begun, Kept: *of(kept), Missed: *of(missed), Undecided: *of(undecided)}
	}
	cart := &v1alpha1.ServiceRequests{
		Source: "metrics", State: v1alpha1.ObjectiveKept, Targets: []v1alpha1.RequestTarget{{Percentile: "p99", Within: *of(5 * ms)}},
		Buckets: []v1alpha1.RequestBucket{{UpTo: of(ms), Count: 700}, {Above: *of(ms), UpTo: of(2 * ms), Count: 50}},
	}
	node := func(services []v1alpha1.ServiceObjective, bounded ...v1alpha1.BoundedWork) nodepages.Node {
		return nodepages.Node{Report: &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Reported: reported, Objectives: &v1alpha1.Objectives{Services: services, Bounded: bounded}}}}
	}
	nodes := []nodepages.Node{
		node([]v1alpha1.ServiceObjective{
			{Namespace: "shop", Pod: "web-0", RunQueueDelay: of(2 * ms), State: v1alpha1.ObjectiveMissed, Since: &begun, Cause: "best-effort", CulpritNamespace: "batch", Culprit: "train-4", Lasted: lasted(119*time.Minute, 40*time.Second, 20*time.Second)},
			{Namespace: "shop", Pod: "cart-0", State: v1alpha1.ObjectiveKept, Requests: cart, Lasted: lasted(106*time.Minute, 0, 14*time.Minute)},
		}, v1alpha1.BoundedWork{Namespace: "batch", Pod: "train-4", ServiceNamespace: "shop", Service: "web-0"}),
		node([]v1alpha1.ServiceObjective{
			{Namespace: "shop", Pod: "web-1", RunQueueDelay: of(2 * ms), State: v1alpha1.ObjectiveKept, Lasted: lasted(2*time.Hour, 0, 0)},
			{Namespace: "shop", Pod: "cart-1", State: v1alpha1.ObjectiveKept, Requests: cart, Lasted: lasted(2*time.Hour, 0, 0)},
		}),
	}
	text := Table(Services(nodes, func(_, pod string) string { name, _, _ := strings.Cut(pod, "-"); return name }))
	if !strings.Contains(string(document), "$ kubectl tenon objectives\n"+text+"```\n") {
		t.Errorf("docs/objectives.md does not show\n%s", text)
	}
}
