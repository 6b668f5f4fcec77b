// Package query asks a Prometheus server how many requests of pods took how long. A
// question has the name of a histogram and labels, and no PromQL: the package writes
// the query itself, and binds it to one namespace.
package query

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// maxPods and maxNames are the most pods of one question, and the most bytes of
	// their names, which are in the address of the request.
	maxPods  = 20
	maxNames = 2000
	// maxServices is the number of services of a node that count, as in its report.
	maxServices = 50
)

// A Question asks for one histogram of pods of one namespace.
type Question struct {
	Namespace string
	Series    v1alpha1.RequestSeries
	Pods      []string
}

// Unanswered returns an answer for each pod that has no reading but a reason.
func (q Question) Unanswered(why node.SourceTrouble) (all []v1alpha1.QueriedService) {
	for _, pod := range q.Pods {
		all = append(all, v1alpha1.QueriedService{Namespace: q.Namespace, Pod: pod, Series: q.Series, Trouble: string(why)})
	}
	return all
}

// Questions returns the questions about all services with a Series, each pod once. So
// that one namespace cannot use up all questions of a round, each namespace has its
// first question before any has its second.
func Questions(reports []v1alpha1.NodeReport) []Question {
	type group struct{ namespace, series string }
	pods := map[group][]string{}
	series := map[string]v1alpha1.RequestSeries{}
	for i := range reports {
		for _, s := range Services(&reports[i]) {
			key := keyOf(s.Series)
			series[key] = s.Series
			of := group{s.Namespace, key}
			pods[of] = append(pods[of], s.Pod)
		}
	}
	groups := slices.SortedFunc(maps.Keys(pods), func(a, b group) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.series, b.series))
	})
	var all []Question
	for _, g := range groups {
		slices.Sort(pods[g])
		for names := slices.Compact(pods[g]); len(names) > 0; {
			n, bytes := 0, 0
			for n < len(names) && n < maxPods && (n == 0 || bytes+len(names[n]) <= maxNames) {
				bytes += len(names[n])
				n++
			}
			all = append(all, Question{g.namespace, series[g.series], names[:n]})
			names = names[n:]
		}
	}
	questions := make([]Question, len(all))
	for i, at := range share.Turns(all, func(q Question) string { return q.Namespace }) {
		questions[i] = all[at]
	}
	return questions
}

// Services returns the pods of a report for which Prometheus is asked, at most 50, each
// without an answer.
func Services(r *v1alpha1.NodeReport) (all []v1alpha1.QueriedService) {
	if r.Status.Objectives == nil {
		return nil
	}
	for _, s := range r.Status.Objectives.Services {
		if len(all) < maxServices && s.Namespace != "" && s.Requests != nil && s.Requests.Series != nil {
			all = append(all, v1alpha1.QueriedService{Namespace: s.Namespace, Pod: s.Pod, Series: *s.Requests.Series})
		}
	}
	return all
}

// keyOf returns a text that is the same for equal histograms only.
func keyOf(s v1alpha1.RequestSeries) string {
	all := strconv.Quote(s.Family)
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		all += fmt.Sprintf(",%q=%q", name, s.Labels[name])
	}
	return all
}

// every reports whether all names of labels are as they must be.
func every(labels map[string]string, is func(string) bool) bool {
	for name := range labels {
		if !is(name) {
			return false
		}
	}
	return true
}

// matchers returns the matchers of PromQL for the labels of a histogram.
func matchers(s v1alpha1.RequestSeries) string {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		fmt.Fprintf(&all, "%s=%s,", name, strconv.Quote(s.Labels[name]))
	}
	return all.String()
}

// form is the query about the series %[1]s.
const form = `sum by (le, pod) (%[1]s) or label_replace(count by (le, pod) (%[1]s), "series", "number", "", "") or min by (pod) (timestamp(%[1]s))`

// PromQL returns the query. It asks for three things about each pod, which labels tell
// apart: the counts by bucket; the numbers of series that are added up in them, which
// have the label series; and, without the label le, the time of the earliest sample,
// because a result has the time of the query, and its samples may be minutes older.
// All matchers must hold, so no label of the question can undo the namespace. PromQL
// returns false if a name in the question is none.
func (q Question) PromQL() (text string, is bool) {
	if !config.IsSeriesName(q.Series.Family) || !every(q.Series.Labels, config.IsLabelName) {
		return "", false
	}
	names := make([]string, len(q.Pods))
	for i, pod := range q.Pods {
		names[i] = regexp.QuoteMeta(pod)
	}
	series := fmt.Sprintf(`%s_bucket{%sle!="",namespace=%s,pod=~%s}`, q.Series.Family, matchers(q.Series), strconv.Quote(q.Namespace), strconv.Quote(strings.Join(names, "|")))
	return fmt.Sprintf(form, series), true
}
