package nodereport

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// missing returns the view of a node on which shop/web misses its objective
// because of batch/train. A quota bounds BE.
func missing() View {
	t := tick.Tick{Begun: noon, BackOff: 500, Snapshot: node.Snapshot{At: time.Unix(5000, 0), Workloads: []node.Workload{
		{ID: "shop/web", Pod: true, Class: node.LS, Usage: node.Usage{Throttled: node.Some(time.Millisecond), Delay: node.RunQueueDelay{Sum: node.Some(3 * time.Second), Counts: []uint64{100, 20}}}},
		{ID: "batch/train", Pod: true, Class: node.BE}, {ID: "system.slice/db", Class: node.LS},
	}}}
	t.Objectives = map[node.WorkloadID]slo.Judgement{
		"shop/web": {
			Verdict: slo.Missed, Cause: slo.ForBE, Since: time.Unix(4960, 0), Objective: 2 * time.Millisecond, Tail: 8 * time.Millisecond,
			Waits: slo.Waits{Waited: time.Second, ByBE: 900 * time.Millisecond, ByServices: 100 * time.Millisecond, Runners: []slo.Runner{
				{ID: "batch/train", Cause: slo.ForBE, Time: 700 * time.Millisecond}, {ID: node.RestOf(node.BE), Cause: slo.ForBE, Time: 200 * time.Millisecond},
			}},
		},
		"system.slice/db": {Verdict: slo.Kept, Since: time.Unix(4000, 0), Objective: time.Millisecond, Tail: 100 * time.Microsecond, Requests: slo.RequestJudgement{
			Verdict: slo.Kept, Since: time.Unix(4990, 0), Want: node.RequestObjective{Within: [len(node.Percentiles)]time.Duration{4: 5 * time.Millisecond}, Source: node.SourceMetrics},
			Target: 4, Total: 750, Tail: node.Some(5 * time.Millisecond), Bounds: []time.Duration{time.Millisecond, 5 * time.Millisecond, time.Second}, Counts: []int64{0, 745, 0, 5},
		}},
	}
	t.Lasted = map[node.WorkloadID]slo.Lasted{"shop/web": {Begun: time.Unix(4000, 0), Kept: 950 * time.Second, Missed: 40 * time.Second, Undecided: 10*time.Second + 1}}
	t.Wants = []plan.Want{{Intent: plan.Set, Owner: plan.OwnerSuppress, BE: true, Knob: node.Knob{Cgroup: "kubepods/besteffort", File: node.FileCPUMax}, Value: node.Limit(750)}}
	return View{Tick: t}
}

// TestTheReportNamesWhoMissesItsObjective checks the report of a node with a
// missed objective.
func TestTheReportNamesWhoMissesItsObjective(t *testing.T) {
	o := Status(missing(), nil).Objectives
	if o == nil || len(o.Services) != 2 {
		t.Fatalf("%+v", o)
	}
	web, db := o.Services[0], o.Services[1]
	if web.Namespace != "shop" || web.Pod != "web" || web.State != v1alpha1.ObjectiveMissed || web.Cause != "best-effort" || web.Measured.Duration != 8*time.Millisecond {
		t.Errorf("%+v", web)
	}
	if since := noon.Add(-40 * time.Second); !web.Since.Time.Equal(since) {
		t.Errorf("missed since %v, want %v on the wall clock", web.Since, since)
	}
	if l := web.Lasted; l == nil || !l.Since.Time.Equal(noon.Add(-1000*time.Second)) || l.Kept.Duration != 950*time.Second || l.Missed.Duration != 40*time.Second || l.Undecided.Duration != 10*time.Second {
		t.Errorf("each state has lasted for %+v", l)
	}
	if c := web.Counted; c == nil || c.Waits != 120 || c.Waited.Duration != 3*time.Second || c.Throttled.Duration != time.Millisecond {
		t.Errorf("since its counters began it waited %+v", c)
	}
	if db.Counted != nil {
		t.Errorf("the waits of db are not counted, and reported as %+v", db.Counted)
	}
	if db.Lasted != nil {
		t.Errorf("how long the states of db lasted is not known, and reported as %+v", db.Lasted)
	}
	if len(web.Runners) != 2 || web.Runners[0] != (v1alpha1.ObjectiveRunner{Namespace: "batch", Pod: "train", Kind: "best-effort", Time: duration(700 * time.Millisecond)}) || web.Runners[1].Namespace != "" {
		t.Errorf("runners %+v", web.Runners)
	}
	if web.CulpritNamespace != "batch" || web.Culprit != "train" || !slices.Equal(web.Shares, []v1alpha1.ObjectiveShare{{Kind: "best-effort", Percent: 90}, {Kind: "other-service", Percent: 10}}) {
		t.Errorf("to blame is %s/%s, with the shares %+v", web.CulpritNamespace, web.Culprit, web.Shares)
	}
	if db.Namespace != "" || db.Pod != "system.slice/db" || db.State != v1alpha1.ObjectiveKept || db.Cause != "" {
		t.Errorf("%+v", db)
	}
	r := db.Requests
	if web.Requests != nil || r.State != v1alpha1.ObjectiveKept || r.Source != "metrics" || r.Percentile != "p99" || r.Measured.Duration != 5*time.Millisecond ||
		!slices.Equal(r.Targets, []v1alpha1.RequestTarget{{Percentile: "p99", Within: duration(5 * time.Millisecond)}}) {
		t.Errorf("%+v", r)
	}
	if since := noon.Add(-10 * time.Second); !r.Since.Time.Equal(since) {
		t.Errorf("requests are kept since %v, want %v on the wall clock", r.Since, since)
	}
	if b := r.Buckets; len(b) != 2 || b[0].Above.Duration != time.Millisecond || b[0].UpTo.Duration != 5*time.Millisecond || b[0].Count != 745 || b[1].UpTo != nil || b[1].Above.Duration != time.Second || b[1].Count != 5 {
		t.Errorf("buckets %+v", b)
	}
	if o.BackOff != 500 || o.By != "cpu.max" || o.Why != "" || o.BECPU.MilliValue() != 750 {
		t.Errorf("bound %+v", o)
	}
}

// TestTheReportAsksForASeries checks that the report has the histogram that the
// manager is to read, for the source query only, and that another one is news.
func TestTheReportAsksForASeries(t *testing.T) {
	v := missing()
	db := v.Tick.Objectives["system.slice/db"]
	report := func() *v1alpha1.Objectives {
		v.Tick.Objectives["system.slice/db"] = db
		return Status(v, nil).Objectives
	}
	if r := report().Services[1].Requests; r.Series != nil {
		t.Errorf("the source metrics asks for %+v", r.Series)
	}
	db.Requests.Want.Source, db.Requests.Want.Series = node.SourceQuery, node.Series{Family: "rtt_seconds"}
	all := report()
	if r := all.Services[1].Requests; r.Source != "query" || r.Series.Family != "rtt_seconds" || r.Series.Labels != nil {
		t.Errorf("without labels: %+v", r)
	}
	db.Requests.Want.Series.Labels[0] = node.Label{Name: "code", Value: "200"}
	other := report()
	if r := other.Services[1].Requests; len(r.Series.Labels) != 1 || r.Series.Labels["code"] != "200" {
		t.Errorf("with a label: %+v", r)
	}
	if sameObjectives(all, other) || !sameObjectives(other, report()) {
		t.Error("only another series is news")
	}
}

// TestTheReportNamesWhatIsBoundedAlone checks the report of a node on which one pod
// alone is bounded. Only a change of the pods is news, and not each step of a bound.
func TestTheReportNamesWhatIsBoundedAlone(t *testing.T) {
	v := missing()
	v.Tick.BackOff = 0
	without := Status(v, nil).Objectives
	v.Tick.Single = map[node.WorkloadID]culprit.Bound{"batch/train": {May: 750, Victim: "shop/web", Share: 90, Since: time.Unix(4990, 0)}}
	o := Status(v, nil).Objectives
	if len(o.Bounded) != 1 || o.By != "" {
		t.Fatalf("%+v", o)
	}
	b := o.Bounded[0]
	if b.Namespace != "batch" || b.Pod != "train" || b.ServiceNamespace != "shop" || b.Service != "web" || b.CPU.MilliValue() != 750 || b.Share != 90 || !b.Since.Time.Equal(noon.Add(-10*time.Second)) {
		t.Errorf("%+v", b)
	}
	v.Tick.Single = map[node.WorkloadID]culprit.Bound{"batch/train": {May: 375, Victim: "shop/web", Share: 80, Since: time.Unix(4990, 0)}}
	if next := Status(v, nil).Objectives; !sameObjectives(o, next) || sameObjectives(without, o) {
		t.Errorf("a step of a bound is news %v, and the bound is news %v", !sameObjectives(o, next), !sameObjectives(without, o))
	}
}

// TestTheReportSaysWhatCannotBeDone checks the report where the kubelet binds
// CPUs, where nothing bounds BE, and where waits cannot be measured.
func TestTheReportSaysWhatCannotBeDone(t *testing.T) {
	v := missing()
	v.Policy.NodeCPUs.CPUSetsManagedExternally = true
	if o := Status(v, nil).Objectives; o.By != "cpu.max" || !strings.Contains(o.Why, "cpuManagerPolicy: static") {
		t.Errorf("with the static policy: %+v", o)
	}
	v.CPUManager, v.Tick.BackOff = "dra", 0
	if o := Status(v, nil).Objectives; o.By != "" || !strings.Contains(o.Why, "DRA driver") {
		t.Errorf("with a driver, before the bound: %+v", o)
	}
	v = missing()
	v.Tick.Wants[0].Intent, v.Tick.Wants[0].Reason = plan.Abstain, "no rate yet"
	if o := Status(v, nil).Objectives; o.By != "" || o.Why != "no rate yet" || o.BECPU != nil {
		t.Errorf("without a bound: %+v", o)
	}
	v = missing()
	v.Tick.Objectives = map[node.WorkloadID]slo.Judgement{"shop/web": {Verdict: slo.Undecided, Cause: slo.Unmeasured, Objective: time.Millisecond}}
	v.Tick.Snapshot.Capabilities = node.Capabilities{node.FeatureBPF: {Verdict: node.No, Why: "no BTF"}, node.FeatureSchedStat: {Verdict: node.No, Why: "counts nothing"}}
	web := Status(v, nil).Objectives.Services[0]
	if web.State != v1alpha1.ObjectiveUndecided || web.Since != nil || web.Measured != nil || web.Why != "bpf.tracing: no BTF; schedstat: counts nothing" {
		t.Errorf("unmeasured: %+v", web)
	}
	if o := Status(View{Tick: tick.Tick{Begun: noon}}, nil).Objectives; o != nil {
		t.Errorf("without an objective: %+v", o)
	}
}

// TestTheReportHasRoomForFewServices checks that the list is bounded, and that
// missed objectives come first.
func TestTheReportHasRoomForFewServices(t *testing.T) {
	v := missing()
	for i := range 200 {
		v.Tick.Objectives[node.WorkloadID(fmt.Sprintf("a/kept-%d", i))] = slo.Judgement{Verdict: slo.Kept, Objective: time.Millisecond}
	}
	v.Tick.Objectives["z/old"] = slo.Judgement{Verdict: slo.Missed, Cause: slo.System, Since: time.Unix(10, 0), Objective: time.Millisecond}
	o := Status(v, nil).Objectives
	if len(o.Services) != maxServices || o.More != int32(len(v.Tick.Objectives)-maxServices) || o.Services[0].Pod != "z/old" || o.Services[1].Pod != "web" {
		t.Errorf("%d services, %d more, first %+v", len(o.Services), o.More, o.Services[0])
	}
}

// TestANamespaceLeavesRoomInTheReport checks a namespace with more missed objectives than
// a report has room for, beside one service of another namespace that keeps its own.
func TestANamespaceLeavesRoomInTheReport(t *testing.T) {
	v := missing()
	add := func(id node.WorkloadID, j slo.Judgement) {
		v.Tick.Snapshot.Workloads = append(v.Tick.Snapshot.Workloads, node.Workload{ID: id, Pod: true, Class: node.LS})
		v.Tick.Objectives[id] = j
	}
	for i := range 2 * maxServices {
		add(node.WorkloadID(fmt.Sprintf("crowd/web-%03d", i)), slo.Judgement{Verdict: slo.Missed, Cause: slo.System, Since: time.Unix(10, 0), Objective: time.Millisecond})
	}
	add("bank/vault", slo.Judgement{Verdict: slo.Kept, Objective: time.Millisecond})
	o := Status(v, nil).Objectives
	by := map[string]int{}
	for _, s := range o.Services {
		by[s.Namespace]++
	}
	if by["bank"] != 1 || by["shop"] != 1 || len(o.Services) != maxServices {
		t.Errorf("%d services: %v", len(o.Services), by)
	}
	if first := o.Services[0]; first.Namespace != "crowd" { // missed objectives still come first
		t.Errorf("the first one is %s/%s, %s", first.Namespace, first.Pod, first.State)
	}
}

// TestAVerdictIsNews checks that a report is sent for another verdict or cause,
// but not for another number.
func TestAVerdictIsNews(t *testing.T) {
	base := Status(missing(), nil)
	for name, c := range map[string]struct {
		change func(*v1alpha1.Objectives)
		news   bool
	}{
		"nothing":         {func(*v1alpha1.Objectives) {}, false},
		"another wait":    {func(o *v1alpha1.Objectives) { d := duration(time.Second); o.Services[0].Measured = &d }, false},
		"another bound":   {func(o *v1alpha1.Objectives) { o.BackOff = 750 }, false},
		"no bound":        {func(o *v1alpha1.Objectives) { o.BackOff, o.By = 0, "" }, true},
		"another verdict": {func(o *v1alpha1.Objectives) { o.Services[0].State = v1alpha1.ObjectiveKept }, true},
		"another cause":   {func(o *v1alpha1.Objectives) { o.Services[0].Cause = "own-limit" }, true},
		"other requests":  {func(o *v1alpha1.Objectives) { o.Services[1].Requests.Buckets[0].Count = 7 }, false},
		"a source failed": {func(o *v1alpha1.Objectives) { o.Services[1].Requests.Trouble = "connect" }, true},
		"no requests":     {func(o *v1alpha1.Objectives) { o.Services[1].Requests = nil }, true},
		"a shorter target": {func(o *v1alpha1.Objectives) {
			d := duration(time.Microsecond)
			o.Services[1].RunQueueDelay = &d
		}, true},
		"another service": {func(o *v1alpha1.Objectives) { o.Services = o.Services[:1] }, true},
	} {
		next := base
		next.Objectives = base.Objectives.DeepCopy()
		c.change(next.Objectives)
		var p Pace
		p.Sent(noon, base)
		if due := p.Due(noon.Add(changeGap), next); due != c.news {
			t.Errorf("%s: due %v", name, due)
		}
	}
}
