// Package trial holds the results of trials on the services of a node. A
// trial finds out whether services wait less for a CPU with another isolation
// mechanism than with the mechanism in use.
package trial

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Status holds the results of the trials on this node: the selected
// mechanism, the trial that runs now, and the trials of the last round. The
// policy that selects the isolation mechanism writes it.
type Status struct {
	// Kept is the mechanism in use, if a trial showed that services wait less with it.
	// Otherwise it is empty, and the floor is in use: the least weight, with long slices
	// where possible.
	Kept node.Mechanism `json:"kept,omitempty"`
	// Since is the time at which Kept, or the floor, came into use.
	Since time.Time `json:"since,omitzero"`
	// Trying is the candidate of the trial in progress, or empty. Pairs is the
	// number of pairs of epochs that this trial has so far.
	Trying node.Mechanism `json:"trying,omitempty"`
	Pairs  int            `json:"pairs,omitempty"`
	// Why says in one phrase what the trials do now, or what they wait for.
	Why string `json:"why,omitempty"`
	// Next is the earliest time of the next round of trials. It is zero if no
	// round is planned.
	Next time.Time `json:"next,omitzero"`
	// Results holds the results of the last round, in the order of its trials.
	Results []Result `json:"results,omitempty"`
}

// A Finding is the result of a trial.
type Finding string

// These are the values of Finding. Only after Kept does the node use the
// candidate. After any other Finding, it goes back to its earlier mechanism.
const (
	Kept    Finding = "kept"      // the services wait less with the candidate
	NoGain  Finding = "no gain"   // the services do not wait less, or the difference is too small to be sure
	Worse   Finding = "worse"     // the services wait longer
	Harmed  Finding = "harms one" // the services together wait less, but one of them may wait longer
	Stopped Finding = "stopped"   // an objective was missed, or the trial cost too much
	Failed  Finding = "failed"    // the node could not use the candidate, or nothing could be measured
)

// Findings lists the findings, for metrics.
var Findings = []Finding{Kept, NoGain, Worse, Harmed, Stopped, Failed}

// A Result is the result of one trial. A trial consists of pairs of short
// epochs, one with the candidate and one without it, in random order.
type Result struct {
	Candidate node.Mechanism `json:"candidate"`
	// Against is the mechanism in the epochs without the candidate. If it is
	// empty, the floor is used there (see docs/glossary.md).
	Against node.Mechanism `json:"against,omitempty"`
	Finding Finding        `json:"finding"`
	Why     string         `json:"why,omitempty"`
	Began   time.Time      `json:"began"`
	Ended   time.Time      `json:"ended"`
	// Pairs is the number of pairs from which Ratio is computed.
	Pairs int `json:"pairs"`
	// Ratio is the mean wait of all services with the candidate, divided by the
	// mean wait without it: the geometric mean over the pairs. It is 0 if there
	// are too few pairs. Low and High bound the true ratio; each bound is wrong
	// with a probability of 1.25 %. It is the wider of two bounds: that of
	// Student's t, and the exact bound of the median.
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Without and With are the mean length of a wait in the epochs without and
	// with the candidate, over all services.
	Without time.Duration `json:"without_ns,omitempty"`
	With    time.Duration `json:"with_ns,omitempty"`
	// Services lists the services that waited longest, the longest wait first,
	// at most MostServices of them. More is the number of services that are not
	// in the list.
	Services []Service `json:"services,omitempty"`
	More     int       `json:"more,omitempty"`
}

// MostServices is the maximum number of services that a Result names.
const MostServices = 16

// Service is one service in a trial. The replicas of a Kubernetes workload
// are one service.
type Service struct {
	Name string `json:"name"`
	// Pairs is the number of pairs of epochs in which the service waited often
	// enough for a judgement.
	Pairs int `json:"pairs"`
	// Without and With are the mean lengths of a wait of this service.
	Without time.Duration `json:"without_ns"`
	With    time.Duration `json:"with_ns"`
	// HourWithout is the total length of the service's waits in an hour without
	// the candidate. HourWith is the number of these waits, multiplied by the
	// mean length of a wait with the candidate.
	HourWithout time.Duration `json:"hour_without_ns"`
	HourWith    time.Duration `json:"hour_with_ns"`
}

// InForce returns the result of the trial because of which the node uses the mechanism v.Kept.
func (v Status) InForce() (Result, bool) {
	for _, r := range v.Results {
		if v.Kept != "" && r.Finding == Kept && r.Candidate == v.Kept {
			return r, true
		}
	}
	return Result{}, false
}

// An Effect says how much a mechanism changed the waits of one service in a
// trial: how long the service waits for a CPU in an hour.
type Effect struct {
	Mechanism node.Mechanism `json:"candidate"`
	// Kept says that the node uses the mechanism now, because of this trial.
	Kept    bool          `json:"kept"`
	Found   Finding       `json:"found"`
	Ended   time.Time     `json:"ended"`
	Pairs   int           `json:"pairs"`
	Without time.Duration `json:"hour_without_ns"`
	With    time.Duration `json:"hour_with_ns"`
}

// EffectsOn returns the effects of the tried mechanisms on a service, in the
// order of the trials.
func (v Status) EffectsOn(service string) []Effect {
	var all []Effect
	for _, r := range v.Results {
		for _, s := range r.Services {
			if s.Name == service && s.With > 0 {
				kept := r.Finding == Kept && v.Kept == r.Candidate
				all = append(all, Effect{r.Candidate, kept, r.Finding, r.Ended, s.Pairs, s.HourWithout, s.HourWith})
			}
		}
	}
	return all
}
