package objectivetext

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/table"
)

// A Service is all pods of a namespace with one name and one objective, on all
// nodes.
type Service struct {
	Namespace     string `json:"namespace,omitempty"`
	Service       string `json:"service"`
	RunQueueDelay string `json:"runQueueDelay,omitempty"`
	Requests      string `json:"requests,omitempty"` // p99 within 5ms (source: metrics)
	// Pods is the number of pods, of which so many miss their objective, or have no
	// verdict.
	Pods      int `json:"pods"`
	Missed    int `json:"missed"`
	Undecided int `json:"undecided"`
	// Total is the number of requests of all pods in their last windows. The
	// percentiles that have a target are measured over all of them: histograms are
	// added up, and percentiles are not averaged.
	Total       int64      `json:"total,omitempty"`
	Percentiles []Measured `json:"percentiles,omitempty"`
	// MissedFor is the longest time for which one of the pods misses it, up to the last
	// report of its node, such as 40s.
	MissedFor string `json:"missedFor,omitempty"`
	// Lasted says for how long each state was in force, added up over the pods, since the
	// earliest of their times.
	Lasted *v1alpha1.StateTimes `json:"lasted,omitempty"`
	// Causes are the causes of misses and of missing verdicts. Behind no-source stands
	// the reason, as in no-source: connect. Culprits are the workloads that are most to
	// blame, and Bounded those of them, or others, that alone have less CPU for this
	// service. Work that is no pod has no namespace.
	Causes   []string `json:"causes,omitempty"`
	Culprits []string `json:"culprits,omitempty"`
	Bounded  []string `json:"bounded,omitempty"`

	missedFor time.Duration
}

// Measured is a time within which a part of the requests of a service was answered.
// Within is empty if the longest bucket of the histograms has no end.
type Measured struct {
	Percentile string `json:"percentile"`
	Within     string `json:"within,omitempty"`
}

// Services returns the services with an objective on the nodes. ownerOf returns the
// name of the service of a pod.
func Services(nodes []nodepages.Node, ownerOf func(namespace, pod string) string) []Service {
	all := map[string]*Service{}
	sums := map[string]histogram{}
	for _, n := range nodes {
		if n.Report == nil || n.Report.Status.Objectives == nil {
			continue
		}
		objectives := n.Report.Status.Objectives
		for _, s := range objectives.Services {
			one := Service{Namespace: s.Namespace, Service: ownerOf(s.Namespace, s.Pod), Requests: verdict.Targets(wantedBy(s).Requests)}
			if s.RunQueueDelay != nil {
				one.RunQueueDelay = s.RunQueueDelay.Duration.String()
			}
			key := strings.Join([]string{one.Namespace, one.Service, one.RunQueueDelay, one.Requests}, "\n")
			if all[key] == nil {
				all[key], sums[key] = &one, histogram{}
				if s.Requests != nil {
					for _, t := range s.Requests.Targets {
						one.Percentiles = append(one.Percentiles, Measured{Percentile: t.Percentile})
					}
				}
			}
			all[key].add(s, n.Report.Status.Reported.Time)
			all[key].addBounded(s, objectives.Bounded)
			sums[key].add(s.Requests)
		}
	}
	list := []Service{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		s := *all[key]
		s.Total = sums[key].measure(s.Percentiles)
		s.Causes, s.Culprits, s.Bounded = distinct(s.Causes), distinct(s.Culprits), distinct(s.Bounded)
		if s.missedFor > 0 {
			s.MissedFor = nodepages.Duration(s.missedFor)
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b Service) int { return cmp.Compare(min(b.Missed, 1), min(a.Missed, 1)) })
	return list
}

// distinct returns the texts of a list in order, each once.
func distinct(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// add adds a pod, as its node reported it at a time.
func (s *Service) add(of v1alpha1.ServiceObjective, reported time.Time) {
	s.Pods++
	switch of.State {
	case v1alpha1.ObjectiveMissed:
		s.Missed++
		if of.Since != nil {
			s.missedFor = max(s.missedFor, reported.Sub(of.Since.Time))
		}
	case v1alpha1.ObjectiveUndecided:
		s.Undecided++
	}
	s.addLasted(of.Lasted)
	if cause := of.Cause; cause != "" {
		if r := of.Requests; r != nil && slo.Cause(cause) == slo.NoSource && r.Trouble != "" {
			cause += ": " + r.Trouble
		}
		s.Causes = append(s.Causes, cause)
	}
	if of.Culprit != "" {
		s.Culprits = append(s.Culprits, podName(of.CulpritNamespace, of.Culprit))
	}
}

// addLasted adds for how long a pod had each state.
func (s *Service) addLasted(one *v1alpha1.StateTimes) {
	switch {
	case one == nil:
	case s.Lasted == nil:
		s.Lasted = one.DeepCopy()
	default:
		sum := s.Lasted
		if one.Since.Before(&sum.Since) {
			sum.Since = one.Since
		}
		sum.Kept.Duration += one.Kept.Duration
		sum.Missed.Duration += one.Missed.Duration
		sum.Undecided.Duration += one.Undecided.Duration
	}
}

// addBounded adds the workloads of a node that are bounded for a pod.
func (s *Service) addBounded(of v1alpha1.ServiceObjective, all []v1alpha1.BoundedWork) {
	for _, b := range all {
		if b.ServiceNamespace == of.Namespace && b.Service == of.Pod {
			s.Bounded = append(s.Bounded, podName(b.Namespace, b.Pod))
		}
	}
}

// A histogram has the number of requests of several pods by the end of their
// bucket; 0: the bucket has no end. Where buckets of two pods have other ends, a
// request counts at the end of its own bucket, so a percentile is never too short.
type histogram map[time.Duration]int64

func (h histogram) add(r *v1alpha1.ServiceRequests) {
	if r == nil {
		return
	}
	for _, b := range r.Buckets {
		end := time.Duration(0)
		if b.UpTo != nil {
			end = b.UpTo.Duration
		}
		h[end] += b.Count
	}
}

// measure returns the number of requests, and measures percentiles over them.
func (h histogram) measure(all []Measured) (total int64) {
	for _, n := range h {
		total += n
	}
	for i := range all {
		at := percentileNamed(all[i].Percentile)
		if at < 0 || total == 0 {
			continue
		}
		seen := int64(0)
		for _, end := range slices.Sorted(maps.Keys(h)) {
			if end == 0 {
				continue
			}
			if seen += h[end]; 1000*seen >= node.Percentiles[at].Permille*total {
				all[i].Within = verdict.Short(end)
				break
			}
		}
	}
	return total
}

// columns are the columns of the table of services.
var columns = []table.Column[Service]{
	{Name: "SERVICE", Text: func(s Service) string { return podName(s.Namespace, s.Service) }},
	{Name: "OBJECTIVE", Text: func(s Service) string {
		delay := s.RunQueueDelay
		if delay != "" {
			delay = "waits within " + delay
		}
		return strings.Join(slices.DeleteFunc([]string{delay, s.Requests}, func(t string) bool { return t == "" }), ", ")
	}},
	{Name: "PODS", Text: func(s Service) string { return fmt.Sprint(s.Pods) }},
	{Name: "MISSED", Text: func(s Service) string { return fmt.Sprint(s.Missed) }},
	{Name: "UNDECIDED", Text: func(s Service) string { return fmt.Sprint(s.Undecided) }},
	{Name: "REQUESTS", Text: func(s Service) string {
		if s.Total == 0 {
			return "-"
		}
		return fmt.Sprint(s.Total)
	}},
	{Name: "MEASURED", Text: measuredText},
	{Name: "FOR", Text: func(s Service) string { return table.OrDash(s.MissedFor) }},
	{Name: "OVERALL", Text: func(s Service) string { return table.OrDash(verdict.Parts(lastedOf(s.Lasted))) }},
	{Name: "CAUSE", Text: func(s Service) string { return table.OrDash(strings.Join(s.Causes, ", ")) }},
	{Name: "CULPRIT", Text: culpritText},
}

// culpritText names the workloads to blame. One that is bounded alone has a mark.
func culpritText(s Service) string {
	var all []string
	for _, name := range distinct(slices.Concat(s.Culprits, s.Bounded)) {
		if slices.Contains(s.Bounded, name) {
			name += " (bounded)"
		}
		all = append(all, name)
	}
	return table.OrDash(strings.Join(all, ", "))
}

func measuredText(s Service) string {
	var parts []string
	for _, m := range s.Percentiles {
		if s.Total > 0 {
			parts = append(parts, m.Percentile+" "+cmp.Or(m.Within, "above all buckets"))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// Table prints services, a line each.
func Table(all []Service) string {
	if len(all) == 0 {
		return "No service has an objective that its node has reported.\n"
	}
	return table.Text(columns, all)
}
