package objectivetext

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
)

// TestTheNodeAndTheClusterSayTheSame gives one tick to tenon explain, which asks the
// agent, and to kubectl tenon explain, which reads the report of the node. Both must
// say the same of each verdict and cause.
func TestTheNodeAndTheClusterSayTheSame(t *testing.T) {
	const ms = time.Millisecond
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := time.Unix(5000, 0) // of the clock of snapshots
	waits := slo.Waits{Waited: time.Second, ByBE: 700 * ms, Runners: []slo.Runner{
		{ID: "batch/train", Cause: slo.ForBE, Time: 640 * ms}, {ID: "shop/db", Cause: slo.OtherService, Time: 200 * ms}, {ID: node.RestOf(node.BE), Cause: slo.ForBE, Time: 60 * ms},
	}}
	requests := slo.RequestJudgement{
		Want: node.RequestObjective{Within: [len(node.Percentiles)]time.Duration{0: ms, 4: 5 * ms}, Source: node.SourceMetrics}, Target: 4,
		Total: 750, Unknown: 7, Tail: node.Some(20 * ms), Quiet: slo.Quiet{Tail: 20 * ms, At: at, Missed: true},
		Bounds: []time.Duration{ms, 5 * ms, 20 * ms}, Counts: []int64{500, 200, 50, 0},
	}
	for _, cause := range append(slo.Causes, "") {
		for _, v := range []slo.Verdict{slo.Kept, slo.Missed, slo.Undecided} {
			for _, kind := range []string{"waits", "requests", "both"} {
				j := slo.Judgement{Verdict: v, Cause: cause, Since: at.Add(-40 * time.Second), Waits: waits, Periods: 10, ThrottledPeriods: 9}
				if kind != "requests" {
					j.Objective, j.Tail, j.Quiet = 2*ms, 8*ms, slo.Quiet{Tail: 4 * ms, At: at}
				}
				if kind != "waits" {
					j.Requests = requests
					j.Requests.Verdict, j.Requests.Cause, j.Requests.Trouble = v, cause, node.TroubleRedirect
					j.Requests.Since = at.Add(-25 * time.Second)
					j.Requests.Spent = slo.Spent{
						Window: 15 * time.Second, Memory: node.Some(5 * time.Second), IO: node.Some(40 * time.Second), Work: node.Some(1300 * time.Microsecond),
						UsualWork: node.Some(ms), Took: slo.Taken{By: "batch/train", Percent: 80},
					}
				}
				turn := tick.Tick{Begun: noon, BackOff: 500, Objectives: map[node.WorkloadID]slo.Judgement{"shop/web": j}}
				turn.Snapshot = node.Snapshot{At: at, Workloads: []node.Workload{
					{ID: "shop/web", Pod: true, Class: node.LS}, {ID: "shop/db", Pod: true, Class: node.LS}, {ID: "batch/train", Pod: true, Class: node.BE},
				}}
				turn.Lasted = map[node.WorkloadID]slo.Lasted{"shop/web": {Begun: at.Add(-time.Hour), Kept: 50 * time.Minute, Missed: time.Minute, Undecided: 9 * time.Minute}}
				turn.Wants = []plan.Want{{Intent: plan.Set, Owner: plan.OwnerSuppress, BE: true, Knob: node.Knob{Cgroup: "kubepods/besteffort", File: node.FileCPUMax}, Value: node.Limit(750)}}
				turn.Single = map[node.WorkloadID]culprit.Bound{"batch/train": {Victim: "shop/web", May: 500}}
				page, has := verdict.Of(turn, "shop/web")
				if !has {
					t.Fatal("the service has no objective")
				}
				r := v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: nodereport.Status(nodereport.View{Tick: turn}, nil)}
				r.Status.Reported = metav1.NewMicroTime(noon)
				n := nodepages.Nodes([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}, []v1alpha1.NodeReport{r})[0]
				web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{kube.LabelQOSClass: "LS"}}}
				o := Of(web, &n, noon)
				if o == nil {
					t.Fatal("the pod has no objective")
				}
				here, there := page.Text("node-1", at, nodepages.Duration), strings.TrimSuffix(o.Text, " The node said so 0s ago.")
				if here != there || !strings.HasSuffix(here, " In the last 1h0m: kept 83.3 %, missed 1.6 %, undecided 15.0 %.") {
					t.Errorf("%s, %s, %s:\n%s\n%s", v, cause, kind, here, there)
				}
				if wants := verdict.Wants(page.Objective()); wants != o.Wants() {
					t.Errorf("%s: it wants\n%s\n%s", kind, wants, o.Wants())
				}
			}
		}
	}
}
