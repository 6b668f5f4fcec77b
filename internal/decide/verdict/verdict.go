// Package objectivetext says in words whether a pod keeps its objective, from the
// codes and numbers in the report of its node.
package objectivetext

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
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
		page.From, page.Requests = "annotation", targets(nodereport.Stated(o.Requests))
		if want, asks := o.RunQueueDelay.Value(); asks {
			page.RunQueueDelay = want.String()
		}
	}
	if n == nil || n.Report == nil || n.Report.Status.Objectives == nil {
		return page.unreported(said)
	}
	all := n.Report.Status.Objectives
	for _, s := range all.Services {
		if s.Namespace != p.Namespace || s.Pod != p.Name || said && !page.isAbout(s) {
			continue
		}
		page.RunQueueDelay, page.Requests, page.State, page.Cause = "", targets(s.Requests), s.State, s.Cause
		if s.RunQueueDelay != nil {
			page.RunQueueDelay = s.RunQueueDelay.Duration.String()
		}
		lasts := ""
		if s.Since != nil {
			page.Since = s.Since.Time.UTC().Format(time.RFC3339)
			lasts = " for " + nodepages.Duration(max(n.Report.Status.Reported.Sub(s.Since.Time), 0))
		}
		page.Text = describe(s, lasts, n.Name, all) + fmt.Sprintf(" The node said so %s.", n.Age(now))
		return page
	}
	return page.unreported(said)
}

// isAbout reports whether the report of a service is about this objective, and not
// about an earlier one.
func (o *Objective) isAbout(s v1alpha1.ServiceObjective) bool {
	delay := ""
	if s.RunQueueDelay != nil {
		delay = s.RunQueueDelay.Duration.String()
	}
	return delay == o.RunQueueDelay && targets(s.Requests) == o.Requests
}

// Wants says in words what the objective is.
func (o *Objective) Wants() string {
	var parts []string
	if o.RunQueueDelay != "" {
		parts = append(parts, "99 of 100 waits of its threads for a CPU end within "+o.RunQueueDelay)
	}
	if o.Requests != "" {
		parts = append(parts, "requests are answered with "+o.Requests)
	}
	return strings.Join(parts, ", and ")
}

// targets says in words what an objective for requests is; "": there is none.
func targets(r *v1alpha1.ServiceRequests) string {
	if r == nil {
		return ""
	}
	var all []string
	for _, t := range r.Targets {
		all = append(all, fmt.Sprintf("%s within %v", t.Percentile, t.Within.Duration))
	}
	return strings.Join(all, ", ") + " (source: " + r.Source + ")"
}

// unreported returns the objective of a pod about which its node says nothing.
func (o *Objective) unreported(said bool) *Objective {
	if !said {
		return nil
	}
	o.Text = "Its node has not reported yet whether it is kept."
	return o
}

// describe says in words what the report of a node says about the objective of a
// service. on is the name of the node. lasts is the time since the verdict began, such as " for 40s", or "".
func describe(s v1alpha1.ServiceObjective, lasts, on string, all *v1alpha1.Objectives) string {
	switch s.State {
	case v1alpha1.ObjectiveKept:
		text := fmt.Sprintf("It is kept%s%s.", lasts, after(": ", keptText(s)))
		if alone := boundAlone(s, all); alone != "" {
			text += " " + alone + "."
		}
		return text
	case v1alpha1.ObjectiveUndecided:
		if s.RunQueueDelay == nil {
			return "Whether it is kept is not known: " + undecidedText(s.Requests) + "."
		}
		if s.Cause == string(slo.Unmeasured) {
			return fmt.Sprintf("Whether it is kept is not known: %s does not measure the waits%s.", on, after(": ", s.Why))
		}
		return "Whether it is kept is not known yet: there were too few waits for a verdict."
	}
	text := fmt.Sprintf("It is missed%s: its threads wait up to %s (P99). ", lasts, measured(s))
	if s.Requests != nil && s.Requests.State == v1alpha1.ObjectiveMissed {
		text = fmt.Sprintf("It is missed%s: %s. ", lasts, answered(s.Requests))
	}
	alone := " Batch work is left alone."
	switch slo.Cause(s.Cause) {
	case slo.ForBE:
		return text + fmt.Sprintf("Best-effort work ran during %s%s. ", part(s, slo.ForBE), namesOf(s, slo.ForBE)) + aloneText(s, all, on)
	case slo.UnknownRunner:
		return text + "Which work ran meanwhile is not measured there, so best-effort work gives way. " + boundText(all, on)
	case slo.OwnLimit:
		return text + fmt.Sprintf("Its own CPU limit stopped it in %d of %d periods.", s.ThrottledPeriods, s.Periods) + alone
	case slo.OwnThreads:
		return text + fmt.Sprintf("Its own threads ran during %s: it has more threads to run than CPUs.", part(s, slo.OwnThreads)) + alone
	case slo.OtherService:
		return text + fmt.Sprintf("Other services ran during %s%s.", part(s, slo.OtherService), namesOf(s, slo.OtherService)) + alone
	case slo.System:
		return text + fmt.Sprintf("The system ran during %s%s.", part(s, slo.System), namesOf(s, slo.System)) + alone
	case slo.Host:
		return text + "Meanwhile the hypervisor ran something else on the CPUs of " + on + "." + alone
	}
	if slo.Cause(s.Cause) == slo.NotWaiting {
		return text + "Its threads hardly waited for a CPU: its own work took longer, or it waited for something else." + alone
	}
	return text + "For what they waited is not clear." + alone
}

// keptText says what was measured of a service that keeps its objective.
func keptText(s v1alpha1.ServiceObjective) string {
	var parts []string
	if s.Measured != nil {
		parts = append(parts, "99 of 100 waits ended within "+measured(s))
	}
	switch r := s.Requests; {
	case r == nil:
	case r.State == v1alpha1.ObjectiveKept:
		parts = append(parts, answered(r))
	default:
		parts = append(parts, "of its requests it is not known, because "+undecidedText(r))
	}
	return strings.Join(parts, ", and ")
}

// answered says how fast the requests of a window were answered.
func answered(r *v1alpha1.ServiceRequests) string {
	total := int64(0)
	for _, b := range r.Buckets {
		total += b.Count
	}
	of := ""
	if total > 0 {
		of = fmt.Sprintf(" of %d requests", total)
	}
	if r.Measured == nil {
		return fmt.Sprintf("%s%s is above the longest bucket of the histogram", r.Percentile, of)
	}
	return fmt.Sprintf("%s%s is at most %s", r.Percentile, of, short(r.Measured.Duration))
}

// undecidedText says why there is no verdict about the requests of a service.
func undecidedText(r *v1alpha1.ServiceRequests) string {
	if r == nil {
		return "its node does not say why"
	}
	switch slo.Cause(r.Cause) {
	case slo.TooFew:
		return "there were too few requests, or the first window has not ended"
	case slo.Straddled:
		return "too many requests are in the bucket of the histogram around " + r.Percentile + "; a bucket that ends at the target would decide"
	}
	return "its requests cannot be read (" + troubleText(r.Trouble) + ")"
}

// troubles has words for the reasons why a source cannot be used.
var troubles = map[node.SourceTrouble]string{
	node.TroubleOff:         "the administrator has switched this off, by scrape in objective-config",
	node.TroubleTooStrict:   "the target is shorter than leastRequestLatency in objective-config",
	node.TroubleHostNetwork: "the pod has the network of its node",
	node.TroubleNoAddress:   "the pod has no address",
	node.TroubleTooMany:     "too many services of the node have such an objective",
	node.TroubleConnect:     "the connection to the port fails",
	node.TroubleSlow:        "the answer takes longer than 2 s",
	node.TroubleRedirect:    "the answer is a redirection",
	node.TroubleStatus:      "the answer has another status than 200",
	node.TroubleContent:     "the answer is not the text format of Prometheus",
	node.TroubleTooLarge:    "the answer or the histogram is too large",
	node.TroubleAbsent:      "the answer does not have the histogram",
	node.TroubleDamaged:     "the numbers of the histogram contradict each other",
	node.TroubleReset:       "the histogram began again, or its buckets changed",
	node.TroubleStale:       "there was no answer for some time",
}

func troubleText(code string) string {
	if text := troubles[node.SourceTrouble(code)]; text != "" {
		return text
	}
	return code
}

func measured(s v1alpha1.ServiceObjective) string {
	if s.Measured == nil {
		return "?"
	}
	text := short(s.Measured.Duration)
	if s.Estimated {
		text += ", estimated from the mean"
	}
	return text
}

// part returns the share of the waits that runners of one kind caused.
func part(s v1alpha1.ServiceObjective, kind slo.Cause) string {
	var sum time.Duration
	for _, r := range s.Runners {
		if r.Kind == string(kind) {
			sum += r.Time.Duration
		}
	}
	return share(s, sum) + " of the waiting time"
}

func share(s v1alpha1.ServiceObjective, t time.Duration) string {
	if s.Waited == nil || s.Waited.Duration <= 0 {
		return short(t)
	}
	return fmt.Sprintf("%d %%", min(100*t/s.Waited.Duration, 100))
}

// namesOf lists the runners of one kind, each with its share.
func namesOf(s v1alpha1.ServiceObjective, kind slo.Cause) string {
	var names []string
	for _, r := range s.Runners {
		if r.Kind != string(kind) {
			continue
		}
		names = append(names, podName(r.Namespace, r.Pod)+" "+share(s, r.Time.Duration))
	}
	return after(": ", strings.Join(names, ", "))
}

// aloneText says which batch work is bounded for a service: single pods, or all of
// it.
func aloneText(s v1alpha1.ServiceObjective, all *v1alpha1.Objectives, node string) string {
	alone := boundAlone(s, all)
	switch {
	case alone == "":
		return boundText(all, node)
	case all.By == "":
		return alone + ". All other best-effort work keeps its CPU."
	}
	return alone + ". " + boundText(all, node)
}

// boundAlone names the pods that are bounded alone for a service. It returns "" if
// there are none.
func boundAlone(s v1alpha1.ServiceObjective, all *v1alpha1.Objectives) string {
	var names []string
	for _, b := range all.Bounded {
		if b.ServiceNamespace == s.Namespace && b.Service == s.Pod {
			names = append(names, fmt.Sprintf("%s alone has at most %.2f CPUs for it", podName(b.Namespace, b.Pod), float64(b.CPU.MilliValue())/1000))
		}
	}
	return strings.Join(names, ", and ")
}

func podName(namespace, pod string) string {
	if namespace == "" {
		return pod
	}
	return namespace + "/" + pod
}

// boundText says what bounds the best-effort work of a node.
func boundText(all *v1alpha1.Objectives, node string) string {
	why := after(" (", all.Why)
	if why != "" {
		why += ")"
	}
	switch {
	case all.BECPU != nil:
		return fmt.Sprintf("All best-effort work of %s has at most %.2f CPUs by %s%s now.", node, float64(all.BECPU.MilliValue())/1000, all.By, why)
	case all.By != "":
		return fmt.Sprintf("%s bounds the best-effort work of %s now%s.", all.By, node, why)
	}
	return fmt.Sprintf("Nothing bounds the best-effort work of %s now%s.", node, why)
}

// short rounds a time so that it is easy to read.
func short(t time.Duration) string {
	switch {
	case t >= 100*time.Millisecond:
		return t.Round(time.Millisecond).String()
	case t >= time.Millisecond:
		return t.Round(100 * time.Microsecond).String()
	}
	return t.Round(time.Microsecond).String()
}

// after puts a prefix before a text. It returns "" for an empty text.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
