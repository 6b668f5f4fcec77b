// Package trial holds the results of trials on the services of a node: which
// isolation mechanism made them wait less than the one in use.
package trial

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Status is what the agent knows from trials on the services of this node:
// which isolation mechanism made them wait less than the floor, and what it
// tries now. The policy that selects the mechanism fills it in.
type Status struct {
	// Kept is the mechanism that a trial kept; empty: the floor, which is the
	// least weight and, where the kernel has them, long slices.
	Kept node.Mechanism `json:"kept,omitempty"`
	// Since is the time since which Kept, or the floor, is in use.
	Since time.Time `json:"since,omitzero"`
	// Trying is the candidate of the trial in progress, and Pairs the number of
	// pairs of epochs that it has so far. Empty: no trial is in progress.
	Trying node.Mechanism `json:"trying,omitempty"`
	Pairs  int            `json:"pairs,omitempty"`
	// Why says what the agent does, or what it waits for, in one phrase.
	Why string `json:"why,omitempty"`
	// Next is the earliest time of the next round of trials; zero: not planned.
	Next time.Time `json:"next,omitzero"`
	// Results are the trials of the last round, in their order.
	Results []Result `json:"results,omitempty"`
}

// A Finding is the result of a trial.
type Finding string

// The findings. Every one but Kept leaves the node at what it had.
const (
	Kept    Finding = "kept"      // the services wait less with the candidate
	NoGain  Finding = "no gain"   // they do not wait less, or too little to tell
	Worse   Finding = "worse"     // they wait longer
	Harmed  Finding = "harms one" // all together wait less, but one of them may wait longer
	Stopped Finding = "stopped"   // an objective was missed, or the trial cost too much
	Failed  Finding = "failed"    // the candidate could not be in force, or nothing could be measured
)

// Findings lists the findings, for metrics.
var Findings = []Finding{Kept, NoGain, Worse, Harmed, Stopped, Failed}

// A Result is the result of one trial: pairs of short epochs, one with the
// candidate and one without it, in random order.
type Result struct {
	Candidate node.Mechanism `json:"candidate"`
	// Against is the mechanism of the other epochs; empty: the floor.
	Against node.Mechanism `json:"against,omitempty"`
	Finding Finding        `json:"finding"`
	Why     string         `json:"why,omitempty"`
	Began   time.Time      `json:"began"`
	Ended   time.Time      `json:"ended"`
	// Pairs is the number of pairs that count.
	Pairs int `json:"pairs"`
	// Ratio is the waiting of all services for each wait with the candidate, as
	// a multiple of that without it: the geometric mean over the pairs. Low and
	// High bound it with an error of 1.25 % on each side, by Student's t and by
	// the exact interval of the median, whichever is further. 0: too few pairs.
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Without and With are the mean time of a wait of all services.
	Without time.Duration `json:"without_ns,omitempty"`
	With    time.Duration `json:"with_ns,omitempty"`
	// Services are the services of the trial, those that waited longest first;
	// at most MostServices of them. More is the number of the others.
	Services []Service `json:"services,omitempty"`
	More     int       `json:"more,omitempty"`
}

// MostServices is the number of services that a Result names.
const MostServices = 16

// Service is one service in a trial. The replicas of a Kubernetes workload
// are one service.
type Service struct {
	Name string `json:"name"`
	// Pairs is the number of pairs in which it waited often enough to be judged.
	Pairs int `json:"pairs"`
	// Without and With are the mean time of a wait.
	Without time.Duration `json:"without_ns"`
	With    time.Duration `json:"with_ns"`
	// HourWithout is its waiting in an hour without the candidate, and HourWith
	// that of as many waits with the candidate.
	HourWithout time.Duration `json:"hour_without_ns"`
	HourWith    time.Duration `json:"hour_with_ns"`
}

// InForce returns the result of the trial that kept the mechanism in use.
func (v Status) InForce() (Result, bool) {
	for _, r := range v.Results {
		if v.Kept != "" && r.Finding == Kept && r.Candidate == v.Kept {
			return r, true
		}
	}
	return Result{}, false
}

// An Effect is what a mechanism does to one service, as its trial found: the time
// for which the service waits for a CPU in an hour.
type Effect struct {
	Mechanism node.Mechanism `json:"candidate"`
	// Kept: it is in use. If it is false, it was tried and is not used.
	Kept    bool          `json:"kept"`
	Found   Finding       `json:"found"`
	Ended   time.Time     `json:"ended"`
	Pairs   int           `json:"pairs"`
	Without time.Duration `json:"hour_without_ns"`
	With    time.Duration `json:"hour_with_ns"`
}

// On returns the effects on a service, in the order of the trials.
func (v Status) On(service string) []Effect {
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
