package nodereport

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
)

// maxServices is the maximum number of services with an objective in a report.
const maxServices = 50

// states maps a verdict to the state in the report.
var states = map[slo.Verdict]string{slo.Kept: v1alpha1.ObjectiveKept, slo.Missed: v1alpha1.ObjectiveMissed, slo.Undecided: v1alpha1.ObjectiveUndecided}

// objectivesOf returns the verdict about each objective, and the bound of BE. It
// returns nil if no service has an objective and no BE work has a bound.
func objectivesOf(v View) *v1alpha1.Objectives {
	t := v.Tick
	if len(t.Objectives) == 0 && t.BackOff == 0 && len(t.Single) == 0 {
		return nil
	}
	o := &v1alpha1.Objectives{BackOff: int32(t.BackOff)}
	if t.BackOff > 0 {
		by, why := suppressedBy(v)
		o.By, o.Why = by, clip(why)
		if cpu := verdict.BoundOfClass(t).May; cpu > 0 {
			q := quantity.OfCPU(cpu)
			o.BECPU = &q
		}
	} else if mayBound(t.Objectives) {
		o.Why = externalCPUs(v)
	}
	ids := make([]node.WorkloadID, 0, len(t.Objectives))
	for id := range t.Objectives {
		ids = append(ids, id)
	}
	order := map[slo.Verdict]int{slo.Missed: 0, slo.Undecided: 1, slo.Kept: 2}
	slices.SortFunc(ids, func(a, b node.WorkloadID) int {
		x, y := t.Objectives[a], t.Objectives[b]
		missed := 0
		if x.Verdict == slo.Missed && y.Verdict == slo.Missed {
			missed = x.Since.Compare(y.Since)
		}
		return cmp.Or(cmp.Compare(order[x.Verdict], order[y.Verdict]), missed, strings.Compare(string(a), string(b)))
	})
	pods := podsAmong(t.Snapshot)
	if n := len(ids) - maxServices; n > 0 {
		// A namespace with many services must not keep those of others out of the report:
		// the manager asks Prometheus only about these.
		in := share.Turns(ids, func(id node.WorkloadID) string {
			namespace, _ := nameOf(pods, id)
			return namespace
		})[:maxServices]
		slices.Sort(in)
		for i, at := range in {
			ids[i] = ids[at]
		}
		o.More, ids = int32(n), ids[:maxServices]
	}
	counts := switchback.CountsOf(t.Snapshot)
	o.Bounded = boundedOf(v, pods)
	for _, id := range ids {
		s := serviceOf(v, pods, id, t.Objectives[id])
		s.Lasted = lastedOf(v, t.Lasted[id])
		if c, counted := counts[string(id)]; counted {
			s.Counted = &v1alpha1.CountedWaits{Waits: c.Waits, Waited: duration(c.Waited), Throttled: durationOf(throttled(c))}
		}
		o.Services = append(o.Services, s)
	}
	return o
}

// mayBound reports whether an objective is missed for which BE gives way.
func mayBound(all map[node.WorkloadID]slo.Judgement) bool {
	for _, j := range all {
		if j.Cause == slo.ForBE || j.Cause == slo.UnknownRunner {
			return true
		}
	}
	return false
}

func podsAmong(s node.Snapshot) map[node.WorkloadID]bool {
	pods := make(map[node.WorkloadID]bool, len(s.Workloads))
	for i := range s.Workloads {
		pods[s.Workloads[i].ID] = s.Workloads[i].Pod
	}
	return pods
}

// nameOf returns the name of a pod, or the name of other work as a pod of no
// namespace.
func nameOf(pods map[node.WorkloadID]bool, id node.WorkloadID) (namespace, pod string) {
	if pods[id] {
		return id.PodName()
	}
	return "", clip(strings.ToValidUTF8(string(id), "?"))
}

// wallTime returns a time of a snapshot by the wall clock. Snapshots are on a clock
// that stops while the machine sleeps, and readers compare with theirs.
func wallTime(v View, at time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(v.Tick.Begun.Add(at.Sub(v.Tick.Snapshot.At)).Truncate(time.Millisecond))
}

// sinceOf is wallTime for a time that may be missing.
func sinceOf(v View, at time.Time) *metav1.MicroTime {
	if at.IsZero() {
		return nil
	}
	wall := wallTime(v, at)
	return &wall
}

// lastedOf returns for how long each state was in force, or nil if that is not known.
func lastedOf(v View, l slo.Lasted) *v1alpha1.StateTimes {
	if l.Begun.IsZero() {
		return nil
	}
	rounded := func(d time.Duration) metav1.Duration { return duration(d.Truncate(time.Millisecond)) }
	return &v1alpha1.StateTimes{Since: wallTime(v, l.Begun), Kept: rounded(l.Kept), Missed: rounded(l.Missed), Undecided: rounded(l.Undecided)}
}

// boundedOf lists the BE workloads that are bounded alone.
func boundedOf(v View, pods map[node.WorkloadID]bool) (all []v1alpha1.BoundedWork) {
	single := v.Tick.Single
	for _, id := range slices.Sorted(maps.Keys(single)) {
		b := single[id]
		one := v1alpha1.BoundedWork{CPU: quantity.OfCPU(b.May), Share: int32(b.Share), Since: wallTime(v, b.Since)}
		one.Namespace, one.Pod = nameOf(pods, id)
		one.ServiceNamespace, one.Service = nameOf(pods, b.Victim)
		if all = append(all, one); len(all) == maxServices {
			break
		}
	}
	return all
}

func serviceOf(v View, pods map[node.WorkloadID]bool, id node.WorkloadID, j slo.Judgement) v1alpha1.ServiceObjective {
	s := v1alpha1.ServiceObjective{
		Requests: requestsOf(v, j.Requests), State: states[j.Verdict], Cause: string(j.Cause), Estimated: j.Estimated,
		Periods: j.Periods, ThrottledPeriods: j.ThrottledPeriods,
	}
	if j.Objective > 0 {
		want := duration(j.Objective)
		s.RunQueueDelay = &want
	}
	s.Namespace, s.Pod = nameOf(pods, id)
	s.Since = sinceOf(v, j.Since)
	if j.Tail > 0 || j.Verdict != slo.Undecided && j.Requests.Verdict == "" {
		measured := duration(j.Tail)
		s.Measured = &measured
	}
	if j.Quiet.Tail > 0 {
		quiet := duration(j.Quiet.Tail)
		s.Quiet = &quiet
	}
	if j.Cause == slo.Unmeasured {
		s.Why = clip(verdict.Unmeasured(v.Tick.Snapshot))
	}
	if j.Waited > 0 {
		waited := duration(j.Waited)
		s.Waited = &waited
	}
	if culprit, _ := j.Culprit(); culprit != "" {
		s.CulpritNamespace, s.Culprit = nameOf(pods, culprit)
	}
	for _, share := range j.Shares() {
		s.Shares = append(s.Shares, v1alpha1.ObjectiveShare{Kind: string(share.Cause), Percent: int32(share.Percent)})
	}
	for _, r := range j.Runners {
		one := v1alpha1.ObjectiveRunner{Kind: string(r.Cause), Time: duration(r.Time)}
		one.Namespace, one.Pod = nameOf(pods, r.ID)
		s.Runners = append(s.Runners, one)
	}
	return s
}

// stated returns an objective for requests without a verdict.
func stated(o node.RequestObjective) *v1alpha1.ServiceRequests {
	r := &v1alpha1.ServiceRequests{Source: string(o.Source)}
	if o.Source == node.SourceQuery {
		r.Series = &v1alpha1.RequestSeries{Family: o.Series.Family}
		for _, l := range o.Series.Labels {
			if l.Name == "" {
				continue
			}
			if r.Series.Labels == nil {
				r.Series.Labels = map[string]string{}
			}
			r.Series.Labels[l.Name] = l.Value
		}
	}
	for i, p := range node.Percentiles {
		if within := o.Within[i]; within > 0 {
			r.Targets = append(r.Targets, v1alpha1.RequestTarget{Percentile: p.Name, Within: duration(within)})
		}
	}
	return r
}

// requestsOf returns the verdict about the requests of a service, or nil if it has no
// objective for them.
func requestsOf(v View, j slo.RequestJudgement) *v1alpha1.ServiceRequests {
	if j.Verdict == "" {
		return nil
	}
	r := stated(j.Want)
	r.State, r.Cause, r.Trouble = states[j.Verdict], string(j.Cause), string(j.Trouble)
	r.Since, r.Total, r.Unknown = sinceOf(v, j.Since), j.Total, j.Unknown
	if len(j.Counts) == 0 { // there was no verdict
		return r
	}
	r.Percentile = node.Percentiles[j.Target].Name
	if tail, known := j.Tail.Value(); known {
		measured := duration(tail)
		r.Measured = &measured
	}
	if j.Quiet.Tail > 0 {
		quiet := duration(j.Quiet.Tail)
		r.Quiet, r.TooShort = &quiet, j.TooShort()
	}
	for i, n := range j.Counts {
		if n == 0 {
			continue
		}
		b := v1alpha1.RequestBucket{Count: n}
		if i > 0 {
			b.Above = duration(j.Bounds[i-1])
		}
		if i < len(j.Bounds) {
			end := duration(j.Bounds[i])
			b.UpTo = &end
		}
		r.Buckets = append(r.Buckets, b)
	}
	if len(r.Buckets) > maxBuckets {
		r.Buckets = nil
	}
	if s := j.Spent; s.Window > 0 {
		r.Spent = &v1alpha1.RequestTime{
			Window: duration(s.Window), MemoryStall: durationOf(s.Memory), IOStall: durationOf(s.IO),
			CPUPerRequest: durationOf(s.Work), UsualCPUPerRequest: durationOf(s.UsualWork),
		}
	}
	return r
}

// throttled returns a time that is absent if it is 0.
func throttled(c switchback.Count) node.Maybe[time.Duration] {
	if c.Throttled == 0 {
		return node.Maybe[time.Duration]{}
	}
	return node.Some(c.Throttled)
}

// durationOf returns a time, or nil if it was not measured.
func durationOf(t node.Maybe[time.Duration]) *metav1.Duration {
	value, has := t.Value()
	if !has {
		return nil
	}
	d := duration(value)
	return &d
}

// maxBuckets is the number of buckets of a histogram in a report. A larger one is
// left out as a whole, because the histograms of 50 services must have room.
const maxBuckets = 40

// sameObjectives reports whether two reports say the same about objectives. It
// ignores what changes in every window.
func sameObjectives(a, b *v1alpha1.Objectives) bool {
	if a == nil || b == nil {
		return a == b
	}
	return (a.BackOff == 0) == (b.BackOff == 0) && a.By == b.By && a.More == b.More &&
		slices.EqualFunc(a.Bounded, b.Bounded, func(a, b v1alpha1.BoundedWork) bool {
			return a.Namespace == b.Namespace && a.Pod == b.Pod && a.ServiceNamespace == b.ServiceNamespace && a.Service == b.Service
		}) &&
		slices.EqualFunc(a.Services, b.Services, func(a, b v1alpha1.ServiceObjective) bool {
			return a.Namespace == b.Namespace && a.Pod == b.Pod && sameTime(a.RunQueueDelay, b.RunQueueDelay) && a.State == b.State && a.Cause == b.Cause &&
				a.CulpritNamespace == b.CulpritNamespace && a.Culprit == b.Culprit &&
				sameRequests(a.Requests, b.Requests)
		})
}

func sameRequests(a, b *v1alpha1.ServiceRequests) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Targets, b.Targets) && a.Source == b.Source && reflect.DeepEqual(a.Series, b.Series) && a.State == b.State && a.Cause == b.Cause && a.Trouble == b.Trouble
}

func sameTime(a, b *metav1.Duration) bool { return a == b || a != nil && b != nil && *a == *b }
