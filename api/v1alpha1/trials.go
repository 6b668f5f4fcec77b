package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Trials are the trials of isolation mechanisms on the services of a node. A trial is a series of
// pairs of short epochs, one with a candidate and one without it.
type Trials struct {
	// Kept is the mechanism that a trial kept. Empty: the floor, which is the least weight with
	// long slices. Since is the time at which the trial kept it.
	Kept  string       `json:"kept,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
	// Trying is the candidate of the trial in progress. Empty: there is no trial.
	Trying string `json:"trying,omitempty"`
	// Why explains what the agent does, or what it waits for.
	Why string `json:"why,omitempty"`
	// Results are the trials of the last round, the first trial first.
	// +listType=atomic
	Results []TrialResult `json:"results,omitempty"`
}

// TrialResult is the result of one trial.
type TrialResult struct {
	Candidate string `json:"candidate"`
	// Against is the mechanism in the epochs without the candidate. Empty: the
	// floor.
	Against string `json:"against,omitempty"`
	// Finding is kept, no gain, worse, harms one, stopped or failed.
	Finding string `json:"finding"`
	Why     string `json:"why,omitempty"`
	// Ended is the time of the end of the trial, on the clock of the node.
	Ended metav1.Time `json:"ended"`
	// Pairs is the number of pairs of epochs that the agent could use.
	Pairs int32 `json:"pairs"`
	// Without is the mean length of a wait in the epochs without the candidate,
	// over all services. With is the same in the epochs with the candidate.
	Without metav1.Duration `json:"without,omitempty"`
	With    metav1.Duration `json:"with,omitempty"`
	// Ratio is the mean length of a wait with the candidate, divided by that
	// without it, in thousandths. 0: there were too few pairs. Low and High are
	// the bounds of its interval, each with an error of 1.25 %.
	Ratio int64 `json:"ratio,omitempty"`
	Low   int64 `json:"low,omitempty"`
	High  int64 `json:"high,omitempty"`
	// Services are the services of the trial. The service that waited longest
	// comes first. More is the number of services that are missing in the list.
	// +listType=atomic
	Services []TrialService `json:"services,omitempty"`
	More     int32          `json:"more,omitempty"`
}

// TrialService is one service in a trial. The pods of a Deployment are one
// service.
type TrialService struct {
	Name string `json:"name"`
	// Pairs is the number of pairs in which the service waited often enough to
	// be judged.
	Pairs int32 `json:"pairs"`
	// Without is the total length of the service's waits in an hour without the candidate. With is
	// the number of these waits, multiplied by the mean length of a wait with the candidate.
	Without metav1.Duration `json:"without"`
	With    metav1.Duration `json:"with"`
}
