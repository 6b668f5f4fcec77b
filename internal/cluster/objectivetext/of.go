// Package objectivetext says in words whether the pods of a cluster keep their
// objectives, from the codes and numbers in the reports of their nodes.
package objectivetext

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Objective says whether a pod keeps its objective.
type Objective struct {
	RunQueueDelay string `json:"runQueueDelay,omitempty"`
	Requests      string `json:"requests,omitempty"` // p99 within 5ms (source: metrics)
	From          string `json:"from"`               // annotation or ConfigMap
	State         string `json:"state,omitempty"`    // Kept, Missed or Undecided; empty: the node has not reported it
	Since         string `json:"since,omitempty"`
	Cause         string `json:"cause,omitempty"`
	Text          string `json:"text"`

	wants node.Objective
}

// Of returns the objective of a pod at a time, or nil if it has none. n is the
// node of the pod, or nil. An objective of the ConfigMap is known only from the
// report of the node.
func Of(p *corev1.Pod, n *nodepages.Node, now time.Time) *Objective {
	if kube.HasEnded(p) {
		return nil
	}
	o, said, _ := kube.ObjectiveOf(p, kube.ClassWithDefault(p))
	if said && o == (node.Objective{}) {
		return nil
	}
	page := &Objective{From: "ConfigMap"}
	if said {
		page.From = "annotation"
		page.state(o)
	}
	if n == nil || n.Report == nil || n.Report.Status.Objectives == nil {
		return page.unreported(said)
	}
	all := n.Report.Status.Objectives
	for _, s := range all.Services {
		stated := wantedBy(s)
		if s.Namespace != p.Namespace || s.Pod != p.Name || said && !page.isAbout(stated) {
			continue
		}
		page.State, page.Cause = s.State, s.Cause
		page.state(stated)
		if s.Since != nil {
			page.Since = s.Since.Time.UTC().Format(time.RFC3339)
		}
		text := reportedPage(s, all).Text(n.Name, n.Report.Status.Reported.Time, nodepages.Duration)
		page.Text = fmt.Sprintf("%s The node said so %s.", text, n.Age(now))
		return page
	}
	if said && all.More > 0 {
		page.Text = fmt.Sprintf("The report of %s has no room for it: it leaves out %d services.", n.Name, all.More)
		return page
	}
	return page.unreported(said)
}

// state sets what the objective is.
func (o *Objective) state(wants node.Objective) {
	o.wants, o.RunQueueDelay, o.Requests = wants, "", verdict.Targets(wants.Requests)
	if want, asks := wants.RunQueueDelay.Value(); asks {
		o.RunQueueDelay = want.String()
	}
}

// isAbout reports whether the report of a service is about this objective, and not
// about an earlier one.
func (o *Objective) isAbout(reported node.Objective) bool {
	return reported.RunQueueDelay == o.wants.RunQueueDelay && verdict.Targets(reported.Requests) == o.Requests
}

// Wants says in words what the objective is.
func (o *Objective) Wants() string { return verdict.Wants(o.wants) }

// unreported returns the objective of a pod about which its node says nothing.
func (o *Objective) unreported(said bool) *Objective {
	if !said {
		return nil
	}
	o.Text = "Its node has not reported yet whether it is kept."
	return o
}

// wantedBy returns the objective of a service in a report: its times and its source.
func wantedBy(s v1alpha1.ServiceObjective) (o node.Objective) {
	if s.RunQueueDelay != nil {
		o.RunQueueDelay = node.Some(s.RunQueueDelay.Duration)
	}
	if s.Requests == nil {
		return o
	}
	o.Requests.Source = node.RequestSource(s.Requests.Source)
	for _, t := range s.Requests.Targets {
		if i := percentileNamed(t.Percentile); i >= 0 {
			o.Requests.Within[i] = t.Within.Duration
		}
	}
	return o
}

// percentileNamed returns the index of a percentile, or -1 for one that this version
// does not know.
func percentileNamed(name string) int {
	return slices.IndexFunc(node.Percentiles[:], func(p node.Percentile) bool { return p.Name == name })
}

// reportedPage returns what a report says of a service. Its histogram is left out.
func reportedPage(s v1alpha1.ServiceObjective, all *v1alpha1.Objectives) verdict.Page {
	wants := wantedBy(s)
	j := slo.Judgement{
		Verdict: verdictOf(s.State), Cause: slo.Cause(s.Cause), Objective: wants.RunQueueDelay.Or(0), Estimated: s.Estimated,
		Periods: s.Periods, ThrottledPeriods: s.ThrottledPeriods,
	}
	if s.Since != nil {
		j.Since = s.Since.Time
	}
	if s.Measured != nil {
		j.Tail = s.Measured.Duration
	}
	if s.Quiet != nil {
		j.Quiet.Tail = s.Quiet.Duration
	}
	if s.Waited != nil {
		j.Waited = s.Waited.Duration
	}
	for _, r := range s.Runners {
		j.Runners = append(j.Runners, slo.Runner{ID: idOf(r.Namespace, r.Pod), Cause: slo.Cause(r.Kind), Time: r.Time.Duration})
	}
	if r := s.Requests; r != nil {
		j.Requests = slo.RequestJudgement{
			Verdict: verdictOf(r.State), Cause: slo.Cause(r.Cause), Trouble: node.SourceTrouble(r.Trouble), Want: wants.Requests, Target: percentileNamed(r.Percentile),
			Total: r.Total, Unknown: r.Unknown,
		}
		j.Requests.Since = j.Since // a node of an earlier version does not report it
		if r.Since != nil {
			j.Requests.Since = r.Since.Time
		}
		if r.Total == 0 { // a node of an earlier version reports the histogram alone
			for _, b := range r.Buckets {
				j.Requests.Total += b.Count
			}
		}
		if r.Measured != nil {
			j.Requests.Tail = node.Some(r.Measured.Duration)
		}
		j.Requests.Spent = spentOf(s)
		if j.Requests.Quiet.Missed = r.TooShort; r.Quiet != nil {
			j.Requests.Quiet.Tail = r.Quiet.Duration
		}
	}
	page := verdict.Page{Judgement: j, Lasted: lastedOf(s.Lasted), Unmeasured: s.Why, All: verdict.ClassBound{Files: all.By, Reason: all.Why}}
	if all.BECPU != nil {
		page.All.May = quantity.CPU(*all.BECPU, unit.Down)
	}
	for _, b := range all.Bounded {
		if b.ServiceNamespace == s.Namespace && b.Service == s.Pod {
			page.Alone = append(page.Alone, verdict.Alone{Workload: idOf(b.Namespace, b.Pod), May: quantity.CPU(b.CPU, unit.Down)})
		}
	}
	return page
}

// lastedOf returns for how long each verdict was in force by a report.
func lastedOf(t *v1alpha1.StateTimes) slo.Lasted {
	if t == nil {
		return slo.Lasted{}
	}
	return slo.Lasted{Begun: t.Since.Time, Kept: t.Kept.Duration, Missed: t.Missed.Duration, Undecided: t.Undecided.Duration}
}

// spentOf returns how a service spent the time of slow requests, and who took memory
// meanwhile. How much of it is not in the report.
func spentOf(s v1alpha1.ServiceObjective) (spent slo.Spent) {
	if slo.Cause(s.Cause) == slo.BEMemory && s.Culprit != "" {
		spent.Took.By = idOf(s.CulpritNamespace, s.Culprit)
	}
	r := s.Requests.Spent
	if r == nil {
		return spent
	}
	spent.Window = r.Window.Duration
	spent.Memory, spent.IO, spent.Work, spent.UsualWork = measured(r.MemoryStall), measured(r.IOStall), measured(r.CPUPerRequest), measured(r.UsualCPUPerRequest)
	return spent
}

// measured returns a time of a report, which is absent if it was not measured.
func measured(d *metav1.Duration) node.Maybe[time.Duration] {
	if d == nil {
		return node.Maybe[time.Duration]{}
	}
	return node.Some(d.Duration)
}

// verdictOf returns the verdict with this name in a report.
func verdictOf(state string) slo.Verdict {
	switch state {
	case v1alpha1.ObjectiveKept:
		return slo.Kept
	case v1alpha1.ObjectiveMissed:
		return slo.Missed
	}
	return slo.Undecided
}

// idOf returns the name of a pod as a workload. Other work has no namespace.
func idOf(namespace, pod string) node.WorkloadID { return node.WorkloadID(podName(namespace, pod)) }

func podName(namespace, pod string) string {
	if namespace == "" {
		return pod
	}
	return namespace + "/" + pod
}
