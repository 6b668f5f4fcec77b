// Package schedulers says whether the schedulers of a cluster and tenon-manager
// run, by their Leases and events, and which pods wait for a scheduler that does
// not run. It is pure: its caller reads the API.
package schedulers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
)

// A Lease is the Lease by which the replicas of a scheduler elect their leader.
type Lease struct {
	Namespace, Name string
	// Holder is empty if the last leader gave the Lease up.
	Holder   string
	Renewed  time.Time
	Duration time.Duration
}

// renewedWithin is the minimum age of a lost Lease. A leader renews its Lease
// every few seconds, but the clocks of the leader and of the reader may differ.
const renewedWithin = time.Minute

func (l Lease) age(now time.Time) time.Duration {
	return max(now.Sub(l.Renewed), 0).Truncate(time.Second)
}

// leads reports whether a leader has renewed the Lease lately.
func (l Lease) leads(now time.Time) bool {
	return l.Holder != "" && l.age(now) <= max(l.Duration, renewedWithin)
}

// A Scheduler contains the evidence that a scheduler runs. Its Lease proves
// this. A scheduler without leader election has no Lease; then its events are a
// hint.
type Scheduler struct {
	Name string
	// Leases are those with the name LeaseName, in any namespace.
	Leases []Lease
	// Spoke is the time of the newest event of the scheduler. It is zero if no
	// event is known. The API server keeps events for an hour by default.
	Spoke time.Time
	// Unread lists what could not be read, with the reasons.
	Unread []string
}

// Manager is the name of the program that answers Tenon's webhooks, and of its
// Lease.
const Manager = "tenon-manager"

// WithoutManager describes what happens while no replica of tenon-manager runs.
// docs/manager.md has the same for each webhook.
const WithoutManager = "until it runs, the webhooks of the chart refuse new pods that are BE or request batch resources, and changes of a pod's class; " +
	"other new pods start without profiles and checks; those that ask for CPUs and name no scheduler go to the cluster's own scheduler, which chooses no CPUs; " +
	"and the batch resources of nodes do not change"

// LeaseName returns the usual name of the Lease of a scheduler. For Kubernetes'
// own scheduler, this is the name of its program.
func LeaseName(scheduler string) string {
	if scheduler == corev1.DefaultSchedulerName {
		return "kube-scheduler"
	}
	return scheduler
}

// Of returns the name of the scheduler that a pod waits for.
func Of(p *corev1.Pod) string {
	if p.Spec.SchedulerName == "" {
		return corev1.DefaultSchedulerName
	}
	return p.Spec.SchedulerName
}

// A State says whether a scheduler runs, as far as this is known.
type State string

const (
	// Runs means that a leader renews the Lease of the scheduler.
	Runs State = "runs"
	// Stopped means that the Lease of the scheduler has no leader.
	Stopped State = "stopped"
	// Unseen means that there is no Lease with the name of the scheduler, and no
	// event from it.
	Unseen State = "unseen"
	// NotKnown means that the Leases and events do not show whether it runs, or
	// that they could not be read.
	NotKnown State = "unknown"
)

// NeedsEvents reports whether the Leases do not prove that the scheduler runs.
func (s Scheduler) NeedsEvents(now time.Time) bool {
	return !slices.ContainsFunc(s.Leases, func(l Lease) bool { return l.leads(now) })
}

// State returns whether the scheduler runs. The text describes the evidence, and
// continues a sentence that begins with "scheduler NAME".
func (s Scheduler) State(now time.Time) (State, string) {
	var last *Lease
	for i := range s.Leases {
		if l := &s.Leases[i]; last == nil || l.leads(now) && !last.leads(now) || l.leads(now) == last.leads(now) && l.Renewed.After(last.Renewed) {
			last = l
		}
	}
	if last != nil {
		name := last.Namespace + "/" + last.Name
		lost := fmt.Sprintf("%s renewed Lease %s %s ago for the last time", last.Holder, name, nodepages.Duration(last.age(now)))
		if last.Holder == "" {
			lost = fmt.Sprintf("Lease %s has no holder", name)
		}
		switch {
		case last.leads(now):
			return Runs, fmt.Sprintf("has a leader: %s renewed Lease %s %s ago", last.Holder, name, nodepages.Duration(last.age(now)))
		case s.Spoke.Sub(last.Renewed) > renewedWithin:
			return NotKnown, fmt.Sprintf("may run without its Lease: %s, but an event of it is newer (%s)", lost, s.spoke(now))
		}
		return Stopped, "has no leader: " + lost
	}
	switch {
	case !s.Spoke.IsZero() && len(s.Unread) > 0:
		return NotKnown, fmt.Sprintf("may run or not: %s; an event of it is %s old", strings.Join(s.Unread, "; "), s.spoke(now))
	case !s.Spoke.IsZero():
		return NotKnown, fmt.Sprintf("has no Lease of its name; an event of it is %s old", s.spoke(now))
	case len(s.Unread) > 0:
		return NotKnown, "may run or not: " + strings.Join(s.Unread, "; ")
	}
	return Unseen, "is not seen to run: no Lease has its name, and no event comes from it"
}

// Unknown returns why it is not known whether the scheduler runs, if the reason
// is something that could not be read. Otherwise it returns "".
func (s Scheduler) Unknown(now time.Time) string {
	if state, _ := s.State(now); state != NotKnown {
		return ""
	}
	return strings.Join(s.Unread, "; ")
}

func (s Scheduler) spoke(now time.Time) string {
	return nodepages.Duration(max(now.Sub(s.Spoke), 0))
}

// IsAbsence reports whether the state means that this scheduler does not run,
// as far as the cluster shows. The Lease of Kubernetes' own scheduler may be
// invisible, so for that scheduler, Unseen does not mean absence.
func (s State) IsAbsence(name string) bool {
	return s == Stopped || s == Unseen && name != corev1.DefaultSchedulerName
}

// IsWaiting reports whether a pod waits for its scheduler. A pod with a
// scheduling gate waits for the owner of the gate.
func IsWaiting(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && !kube.HasEnded(p) && p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) == 0
}

// A Seen contains what the API server knows about a pod that waits.
type Seen struct {
	Scheduler Scheduler
	// Events are those of the pod.
	Events []corev1.Event
	// Unread is the reason why the events could not be read, or "".
	Unread string
}

// Verdict returns the last answer of a scheduler to a pod, or "". It prefers a
// condition, which stays on the pod. Some schedulers write only events.
func (s Seen) Verdict(p *corev1.Pod) (message string, answered bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message, true
		}
	}
	var last *corev1.Event
	for i := range s.Events {
		e := &s.Events[i]
		if from := SourceOf(e); from == Of(p) || e.Reason == "FailedScheduling" {
			if last == nil || TimeOf(e).After(TimeOf(last)) {
				last = e
			}
		}
	}
	if last == nil {
		return "", false
	}
	return last.Message, true
}

// SourceOf returns the component that an event comes from.
func SourceOf(e *corev1.Event) string {
	if e.Source.Component != "" {
		return e.Source.Component
	}
	return e.ReportingController
}

// TimeOf returns when an event occurred last.
func TimeOf(e *corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	return at
}

const (
	// overdueAfter is the age above which the missing answer is a problem, unless
	// the scheduler runs.
	overdueAfter = 30 * time.Second
	// maxNamed is the maximum number of pods that a line names.
	maxNamed = 5
)

// WaitingFor returns the names of the schedulers that pods wait for.
func WaitingFor(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		if IsWaiting(&pods[i]) {
			names = append(names, Of(&pods[i]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Unattended returns a line for each scheduler that does not run although pods
// wait for it. It also returns a line if the scheduler is not known to run and
// has not answered the pods. A running scheduler may leave a pod without an
// answer for long, for example until all pods of its group exist.
func Unattended(pods []corev1.Pod, schedulers []Scheduler, now time.Time) []string {
	var lines []string
	for _, s := range schedulers {
		var all, unanswered []string
		oldest := now
		for i := range pods {
			p := &pods[i]
			if !IsWaiting(p) || Of(p) != s.Name || now.Sub(p.CreationTimestamp.Time) < overdueAfter {
				continue
			}
			all = append(all, kube.NameOf(p))
			if _, answered := (Seen{}).Verdict(p); !answered {
				unanswered = append(unanswered, kube.NameOf(p))
				if p.CreationTimestamp.Time.Before(oldest) {
					oldest = p.CreationTimestamp.Time
				}
			}
		}
		state, text := s.State(now)
		switch {
		case len(all) == 0 || state == Runs:
			continue
		case state.IsAbsence(s.Name):
			lines = append(lines, fmt.Sprintf("%s for scheduler %s, which %s: %s", wait(len(all)), s.Name, text, listed(all)))
		case len(unanswered) > 0 && s.Spoke.IsZero():
			lines = append(lines, fmt.Sprintf("%s for scheduler %s for up to %s without a condition from it, and it %s: %s",
				wait(len(unanswered)), s.Name, nodepages.Duration(now.Sub(oldest)), text, listed(unanswered)))
		}
	}
	return lines
}

func wait(n int) string {
	if n == 1 {
		return "1 pod waits"
	}
	return fmt.Sprintf("%d pods wait", n)
}

func listed(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}
